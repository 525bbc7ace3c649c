// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ujoin::optim {

struct HyperSpec {
    std::string name;
    double value;      ///< default
    bool flag = false; ///< 0 or 1
};

/// Values by their place in Rule::hypers.
using Hyper = std::vector<double>;
struct Update;

/// An update rule as the rest of the library sees it; rules/ has one file for each, with its arithmetic.
struct Rule {
    ujoin_optimizer id;
    std::string name;
    std::vector<HyperSpec> hypers;
    std::vector<std::string> states; ///< names of the tensors that it keeps for a parameter, at most max_states
    bool per_tensor = false;         ///< looks at a parameter as a whole: no part of it can be updated alone
    bool counts_steps = false;       ///< saves a number "step" for each parameter
    std::string number;              ///< name of one more number that it keeps for each parameter, 1 at first; "" = none
    /// Throws UJOIN_E_INVALID if the values make no sense. What concerns single values (finite, flags) is checked before.
    void (*check)(const Hyper &hyper) = nullptr;
    /// The states that a step with these values needs: bit i = states[i]. New ones begin as zeros. Null: all.
    unsigned (*needed)(const Hyper &hyper) = nullptr;
    /// The value of `number` in a step, from that in the step before. Null if there is no such number.
    double (*next_number)(const Hyper &hyper, int64_t step, double number) = nullptr;
    /// A per_tensor rule: looks at elements before any is updated, and writes Update::sums. Added up over all elements, in
    /// pieces of piece_elements, they are what `apply` needs.
    void (*measure)(const Hyper &hyper, const Update &update) = nullptr;
    /// Updates elements, each by itself. Null: a rule of the program's own, which this folder knows nothing of.
    void (*apply)(const Hyper &hyper, const Update &update) = nullptr;
};
inline constexpr size_t max_states = 8;
inline constexpr size_t max_sums = 2;

const Rule &find_rule(ujoin_optimizer id);
/// The same, for who also takes rules that can go away.
std::shared_ptr<const Rule> shared_rule(ujoin_optimizer id);
Hyper default_hyper(const Rule &rule);
/// Throws UJOIN_E_INVALID, which lists the known names.
size_t hyper_index(const Rule &rule, const std::string &name);
/// `base` with some values replaced, checked.
Hyper with_hyper(const Rule &rule, Hyper base, const ujoin_hyper *pairs, size_t count);
void check_hyper(const Rule &rule, const Hyper &hyper);

} // namespace ujoin::optim
