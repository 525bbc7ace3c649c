// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/work.hpp"
#include "optim/hyper.hpp"
#include "optim/update.hpp"
#include "zero/params.hpp"
#include <memory>
#include <vector>

namespace ujoin {

/// An update rule of the program's own.
class CustomRule {
  public:
    /// Checks and copies. `user_data` is what destroys the rule's user_data.
    CustomRule(const ujoin_rule &rule, Release user_data);

    const optim::Rule &rule() const { return rule_; }
    /// Calls the program: for a first update `init`, then `step`. UJOIN_E_CALLBACK with the program's text.
    void update(const ZeroParam &param, size_t index, const optim::Hyper &hyper, const optim::Update &update) const;

  private:
    void call(ujoin_rule_fn fn, const char *what, const ujoin_rule_args &args) const;

    Release user_data_; ///< first, hence run last
    optim::Rule rule_;
    ujoin_rule_fn step_;
    ujoin_rule_fn init_;
    void *argument_;
};

} // namespace ujoin
