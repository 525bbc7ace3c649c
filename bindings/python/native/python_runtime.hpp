// SPDX-License-Identifier: Apache-2.0
// What the wrappers of bindings/swig/python.i are made of. Included once, by the generated file, under CPython's limited API
// 3.11.
#pragma once
#include "answers.hpp"
#include "callbacks.hpp"
#include "errors.hpp"
#include "handles.hpp"
#include "hooks.hpp"
#include "memory.hpp"
