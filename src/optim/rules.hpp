// SPDX-License-Identifier: Apache-2.0
#pragma once
// The update rules, each in a file of rules/: names and defaults of its hyper-parameters, its state, its arithmetic.
// Factors are computed in double and used in the element's type; each expression is evaluated in the order in which
// PyTorch evaluates it. What works element by element does not depend on how elements are spread over ranks.
#include "optim/hyper.hpp"

namespace ujoin::optim {

Rule sgd_rule();
Rule adam_rule();
Rule adamw_rule();
Rule adagrad_rule();
Rule rmsprop_rule();
Rule adadelta_rule();
Rule adamax_rule();
Rule nadam_rule();
Rule radam_rule();
Rule rprop_rule();
Rule lamb_rule();
Rule lion_rule();

// For their checks.
void at_least_zero(const char *name, double value);
void below_one(const char *name, double value);
/// Of rules that begin with (lr, beta1, beta2, eps, weight_decay).
void check_like_adam(const Hyper &hyper);

} // namespace ujoin::optim
