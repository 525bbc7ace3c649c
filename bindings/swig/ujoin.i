// SPDX-License-Identifier: Apache-2.0
// The one interface of the bindings. With UJOIN_API_XML SWIG reads the plain header, and writes the tree from which
// bindings/tools makes the Rust crate, Go's constants and the layout programs; else a language's own rules come first.
%module ujoin
%{
#include <ujoin.h>
%}
%include <stdint.i>
#if !defined(UJOIN_API_XML)
#if defined(SWIGPYTHON)
%include "python.i"
#elif defined(SWIGGO)
%include "go.i"
#endif
#endif
%include "ujoin.h"
