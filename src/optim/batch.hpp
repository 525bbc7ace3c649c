// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "optim/pieces.hpp"
#include "optim/update.hpp"

namespace ujoin::optim {

/// Updates of several parameters by one rule, made together by several threads. The bits do not depend on how many.
class Batch {
  public:
    /// The updates of so many parameters, `elements` in all, need no memory then.
    void reserve(size_t updates, size_t elements);
    void clear() { jobs_.clear(); }
    /// `hyper` must live until run() returns.
    void add(const Hyper &hyper, const Update &update) { jobs_.push_back({&hyper, update}); }
    void run(const Rule &rule, Parallel &parallel);

  private:
    struct Job {
        const Hyper *hyper;
        Update update;
    };
    void run_whole(const Rule &rule, const Job &job, Parallel &parallel);

    std::vector<Job> jobs_;
    Pieces pieces_;
    std::vector<double> sums_; ///< of a per_tensor rule, by piece of one parameter
};

} // namespace ujoin::optim
