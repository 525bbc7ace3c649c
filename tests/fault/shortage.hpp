// SPDX-License-Identifier: Apache-2.0
// What tests of missing memory share: calls in which it runs out.
#pragma once
#include "fault/short_memory.hpp"
#include "ujoin.h"
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <string>

/// Memory runs out within its calls; what is between them is the test's.
class Shortage {
  public:
    Shortage(int64_t at, bool only_once) : left_(at), only_once_(only_once) {}

    /// False: the call failed, for want of memory and with a text that says so.
    template <class Call> bool ok(Call &&call) {
        if (over_) return false;
        t_shortage = {left_, only_once_};
        const ujoin_status status = call();
        left_ = t_shortage.left;
        t_shortage.left = -1;
        if (!t_shortage.came) {
            EXPECT_GE(status, 0) << ujoin_last_error();
            return true;
        }
        over_ = true;
        if (status >= 0) return true; // it did without
        EXPECT_EQ(status, UJOIN_E_NO_MEMORY) << ujoin_status_name(status) << ": " << ujoin_last_error();
        EXPECT_NE(std::string(ujoin_last_error()).find("out of memory"), std::string::npos) << ujoin_last_error();
        return false;
    }
    bool over() const { return over_; }

  private:
    int64_t left_;
    bool only_once_;
    bool over_ = false;
};

/// Which allocations are tried where a body takes long: all of the first ones, then every so many.
struct Thinned {
    int64_t all_below = std::numeric_limits<int64_t>::max();
    int64_t stride = 1;
    int64_t after(int64_t at) const { return at + (at < all_below ? 1 : stride); }
};

/// Runs out of memory at the first allocation, at the second, ..., once or for good, until the body has enough.
inline void at_each_allocation(const std::function<void(Shortage &)> &body, const Thinned &which = {}) {
    for (const bool only_once : {true, false})
        for (int64_t at = 0;; at = which.after(at)) {
            Shortage shortage(at, only_once);
            body(shortage);
            if (testing::Test::HasFailure()) FAIL() << "allocation " << at << (only_once ? ", once" : ", for good");
            if (shortage.over()) continue;
            EXPECT_GT(at, 0);
            break;
        }
}
