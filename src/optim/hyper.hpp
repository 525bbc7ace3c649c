// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <cstddef>
#include <string>
#include <vector>

namespace ujoin::optim {

struct HyperSpec {
    const char *name;
    double value; ///< default
    bool flag;    ///< 0 or 1
};

/// An update rule as the rest of the library sees it; the arithmetic is in rules.hpp.
struct Rule {
    ujoin_optimizer id;
    const char *name;
    std::vector<HyperSpec> hypers;
    std::vector<const char *> states; ///< names of the tensors that it keeps for a parameter, at most max_states
    bool counts_steps;                ///< keeps a number "step" for each parameter
};
inline constexpr size_t max_states = 3;

/// Values by their place in Rule::hypers.
using Hyper = std::vector<double>;

const Rule &find_rule(ujoin_optimizer id);
Hyper default_hyper(const Rule &rule);
/// Throws UJOIN_E_INVALID, which lists the known names.
size_t hyper_index(const Rule &rule, const std::string &name);
/// `base` with some values replaced, checked.
Hyper with_hyper(const Rule &rule, Hyper base, const ujoin_hyper *pairs, size_t count);
/// Throws UJOIN_E_INVALID if the values make no sense.
void check_hyper(const Rule &rule, const Hyper &hyper);

} // namespace ujoin::optim
