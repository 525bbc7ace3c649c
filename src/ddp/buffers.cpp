// SPDX-License-Identifier: Apache-2.0
#include "ddp/buffers.hpp"
#include <optional>
#include <utility>

namespace ujoin {

void average_buffers(const Round &round, const std::vector<ujoin_buffer> &buffers, const Deadline &deadline) {
    for (const ujoin_buffer &buffer : buffers) {
        OpArgs op;
        op.kind = OpKind::all_reduce;
        op.reduce = UJOIN_AVG;
        op.dtype = buffer.dtype;
        op.count = buffer.count;
        op.recv = Memory(buffer.data, buffer.count * dtype_size(buffer.dtype));
        op.shadow = round.shadow();
        round.group().run(op, deadline);
    }
}

namespace {

class HookRun {
  public:
    HookRun(Round &round, const std::vector<ujoin_buffer> &buffers, BucketHook &hook)
        : group_(round.group()), hook_(hook), args_(buffers.size()), works_(buffers.size()) {
        const Agreed &agreed = round.agreed();
        for (size_t k = 0; k < buffers.size(); k++) {
            BucketArgs &args = args_[k];
            args.data = buffers[k].data;
            args.count = buffers[k].count;
            args.dtype = buffers[k].dtype;
            args.divisor = agreed.active;
            args.iteration = round.iteration();
            args.index = static_cast<int32_t>(k);
            args.is_last = k + 1 == buffers.size();
            args.is_shadow = round.shadow();
            args.source_rank = agreed.source_rank;
        }
    }

    /// `start` of each, then rounds of `then` in the same order, so that all ranks issue the same operations.
    void run() {
        for (size_t k = 0; k < args_.size() && !failure_; k++) call(k, &BucketHook::start);
        for (bool more = true; more;) {
            more = false;
            for (size_t k = 0; k < works_.size(); k++) {
                const std::shared_ptr<Work> work = std::move(works_[k]);
                if (!work) continue;
                std::optional<Error> failure = wait_to_the_end(group_, *work);
                if (!failure_) failure_ = std::move(failure);
                if (!failure_) call(k, &BucketHook::then);
                more = more || works_[k];
            }
        }
        if (failure_) throw *failure_;
    }

  private:
    void call(size_t k, std::shared_ptr<Work> (BucketHook::*part)(const BucketArgs &)) {
        try {
            works_[k] = (hook_.*part)(args_[k]);
        } catch (Error &error) {
            failure_ = error.in(cat("the buffer hook for buffer ", k, " on rank ", group_.rank()));
            group_.abort(failure_->text());
        }
    }

    Group &group_;
    BucketHook &hook_;
    std::vector<BucketArgs> args_;
    std::vector<std::shared_ptr<Work>> works_;
    std::optional<Error> failure_;
};

} // namespace

void run_buffer_hook(Round &round, const std::vector<ujoin_buffer> &buffers, BucketHook &hook) {
    HookRun(round, buffers, hook).run();
}

} // namespace ujoin
