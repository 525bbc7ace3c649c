// SPDX-License-Identifier: Apache-2.0
#include "ddp/reducer.hpp"
#include <algorithm>
#include <cmath>

namespace ujoin {
namespace {

constexpr size_t no_bucket = static_cast<size_t>(-1);

} // namespace

/// The reducer as a join context sees it. The context may outlive the reducer, whose memory it must not hold on to.
class Ddp::Participant : public Joinable {
  public:
    explicit Participant(std::shared_ptr<Group> group) : Joinable(std::move(group), "ddp") {}
    void serve(const std::shared_ptr<Ddp> &owner) { owner_ = owner; }

    void check_between_uses() const override { owner()->check_between_iterations(); }
    void main_hook(const HookArgs &) override { owner()->shadow(); }
    void post_hook(const HookArgs &args) override {
        const std::shared_ptr<Ddp> ddp = owner();
        if (!args.is_last_joiner) {
            const std::scoped_lock lock(ddp->mutex_);
            ddp->joined_uneven_ = true;
        }
        ddp->broadcast_parameters(args.authoritative_rank);
    }

  private:
    std::shared_ptr<Ddp> owner() const {
        std::shared_ptr<Ddp> ddp = owner_.lock();
        if (!ddp)
            fail_state(
                "rank ", group()->rank(),
                ": the gradient reducer was destroyed while its join context was armed; destroy it after ujoin_ctx_finish");
        return ddp;
    }
    std::weak_ptr<Ddp> owner_;
};

/// Keeps the memory of one operation until it is complete, and notes when that was.
struct Ddp::InFlight {
    std::shared_ptr<Borrowed> borrowed;
    size_t bucket;

    static void done(void *self) {
        const std::unique_ptr<InFlight> flight(static_cast<InFlight *>(self));
        flight->borrowed->finished_ns[flight->bucket].store(now_ns(), std::memory_order_relaxed);
    }
};

std::shared_ptr<Ddp> Ddp::create(std::shared_ptr<Group> group, const DdpConfig &config, std::optional<Error> local,
                                 Release release) {
    auto borrowed = std::make_shared<Borrowed>();
    borrowed->release = std::move(release);
    std::shared_ptr<Ddp> ddp;
    if (!local) {
        try {
            check_gradients_apart(config.params);
            ddp = std::shared_ptr<Ddp>(new Ddp(group, config, borrowed));
        } catch (Error &error) {
            local = error.in(cat("rank ", group->rank()));
        } catch (const std::bad_alloc &) {
            local = Error(UJOIN_E_NO_MEMORY, "out of memory");
        }
    }
    agree_on_config(*group, config, local);
    if (config.initial_broadcast) ddp->broadcast_parameters(config.source_rank);
    const auto participant = std::make_shared<Participant>(std::move(group));
    participant->serve(ddp);
    ddp->joinable_ = participant;
    return ddp;
}

Ddp::Ddp(std::shared_ptr<Group> group, DdpConfig config, std::shared_ptr<Borrowed> borrowed)
    : group_(std::move(group)), config_(std::move(config)), borrowed_(std::move(borrowed)) {
    borrowed_->buckets = assign_buckets(config_.params, config_.first_bucket_bytes, config_.bucket_bytes);
    borrowed_->finished_ns = std::vector<std::atomic<int64_t>>(borrowed_->buckets.size());
    for (const GradParam &param : config_.params) append_segment(borrowed_->parameters, param.data, param.bytes());
    bucket_of_.assign(config_.params.size(), no_bucket);
    for (size_t b = 0; b < borrowed_->buckets.size(); b++)
        for (const size_t i : borrowed_->buckets[b].params) bucket_of_[i] = b;
    ready_.resize(config_.params.size());
    unfilled_.resize(borrowed_->buckets.size());
    submitted_ns_.resize(borrowed_->buckets.size());
    works_.reserve(borrowed_->buckets.size());
}

void Ddp::broadcast_parameters(int32_t root) {
    if (group_->size() == 1) return;
    OpArgs op;
    op.kind = OpKind::broadcast;
    op.dtype = UJOIN_U8;
    op.root = root;
    op.recv = Memory(borrowed_->parameters.data(), borrowed_->parameters.size());
    op.count = op.recv.bytes();
    group_->run(op, Deadline::in(config_.idle_timeout_ms));
}

ujoin_status Ddp::forward(double samples) {
    if (!std::isfinite(samples) || samples < 0)
        fail_invalid("rank ", group_->rank(), ": samples is ", samples, "; expected 0 or more");
    group_->check_usable();
    check_between_iterations();
    const ujoin_status status = joinable_->notify();
    if (status == UJOIN_JOINED) return status;
    begin(samples);
    return UJOIN_OK;
}

void Ddp::begin(double samples) {
    const std::scoped_lock lock(mutex_);
    samples_ = samples;
    std::fill(ready_.begin(), ready_.end(), false);
    not_ready_ = ready_.size();
    for (size_t b = 0; b < unfilled_.size(); b++) unfilled_[b] = borrowed_->buckets[b].params.size();
    works_.clear();
    iterating_ = true;
}

void Ddp::check_between_iterations() const {
    const std::scoped_lock lock(mutex_);
    if (!iterating_) return;
    fail_state("rank ", group_->rank(), ": the last iteration is not finished; ",
               not_ready_ ? missing() : "all gradients are ready: call ujoin_ddp_finish first");
}

std::string Ddp::missing() const {
    constexpr size_t shown = 8;
    std::vector<std::string> names;
    for (size_t i = 0; i < ready_.size() && names.size() < shown; i++)
        if (!ready_[i]) names.push_back(cat(i, " (\"", config_.params[i].name, "\")"));
    if (not_ready_ > names.size()) names.push_back(cat("and ", not_ready_ - names.size(), " more"));
    return cat("no gradient is ready for parameter ", join_list(names),
               ": call ujoin_ddp_ready for each, then ujoin_ddp_finish");
}

void Ddp::ready(size_t index) {
    if (index >= bucket_of_.size())
        fail_invalid("rank ", group_->rank(), ": index is ", index, "; the reducer has ", bucket_of_.size(), " parameters");
    group_->check_usable();
    const std::scoped_lock lock(mutex_);
    if (!iterating_)
        fail_state("rank ", group_->rank(), ": parameter ", index, " (\"", config_.params[index].name,
                   "\") is ready outside of an iteration; call ujoin_ddp_forward first");
    if (ready_[index])
        fail_state("rank ", group_->rank(), ": parameter ", index, " (\"", config_.params[index].name,
                   "\") is ready already in this iteration; its reduction may have begun");
    ready_[index] = true;
    not_ready_--;
    if (bucket_of_[index] == no_bucket) return;
    unfilled_[bucket_of_[index]]--;
    while (works_.size() < unfilled_.size() && unfilled_[works_.size()] == 0) launch(works_, works_.size(), false);
}

void Ddp::launch(Works &works, size_t bucket, bool shadow) {
    const Bucket &what = borrowed_->buckets[bucket];
    OpArgs op;
    op.kind = OpKind::all_reduce;
    op.dtype = what.dtype;
    op.recv = Memory(what.gradients.data(), what.gradients.size());
    op.count = what.bytes / dtype_size(what.dtype);
    op.shadow = shadow;
    op.weight = shadow ? 0 : samples_;
    if (config_.division == UJOIN_DIVISION_INITIAL) op.divide = Divide::ranks;
    if (config_.division == UJOIN_DIVISION_ACTIVE) op.divide = Divide::contributors;
    if (config_.division == UJOIN_DIVISION_SAMPLES) {
        op.divide = Divide::weight;
        if (config_.gradient_kind == UJOIN_GRADIENT_MEAN) op.scale = op.weight;
    }
    auto flight = std::make_unique<InFlight>(InFlight{borrowed_, bucket});
    submitted_ns_[bucket] = now_ns();
    works.push_back(group_->submit_idle(op, config_.idle_timeout_ms, Release(&InFlight::done, flight.release())));
}

void Ddp::finish() {
    std::unique_lock lock(mutex_);
    if (!iterating_ || not_ready_ != 0) {
        group_->check_usable();
        if (!iterating_) fail_state("rank ", group_->rank(), ": no iteration was begun; call ujoin_ddp_forward first");
        fail_state("rank ", group_->rank(), ": ", missing());
    }
    iterating_ = false; // whatever comes now: this one is over
    Works works = std::move(works_);
    works_.clear();
    lock.unlock();
    const int64_t start_ns = now_ns();
    const OpOutcome outcome = complete(std::move(works), false);
    lock.lock();
    exposed_ns_ += now_ns() - start_ns;
    iterations_++;
    account(outcome);
}

/// Launches the buckets that are not in flight (in an iteration those whose launch failed) and waits for all.
OpOutcome Ddp::complete(Works works, bool shadow) {
    try {
        while (works.size() < borrowed_->buckets.size()) launch(works, works.size(), shadow);
    } catch (const Error &) {
        settle(works); // throws the first cause, if one of these has it
        throw;
    }
    return settle(works);
}

OpOutcome Ddp::settle(const Works &works) {
    std::optional<Error> failure;
    for (const std::shared_ptr<Work> &work : works) {
        while (!work->done() || !failure) {
            try {
                work->wait(-1);
                break;
            } catch (const Error &error) {
                if (!failure) failure = error;
                // The interrupt check ends a wait, not the operation. No memory may be in use when the caller gets it back.
                if (!work->done()) group_->abort(error.text());
            }
        }
    }
    if (failure) throw *failure;
    return works.empty() ? OpOutcome{} : works.front()->outcome();
}

void Ddp::account(const OpOutcome &outcome) {
    int64_t before = 0;
    for (size_t b = 0; b < submitted_ns_.size(); b++) {
        const int64_t end = borrowed_->finished_ns[b].load(std::memory_order_relaxed);
        reduce_ns_ += std::max<int64_t>(0, end - std::max(submitted_ns_[b], before));
        before = std::max(before, end);
    }
    total_samples_ = outcome.weight;
    if (config_.division == UJOIN_DIVISION_INITIAL) divisor_ = group_->size();
    if (config_.division == UJOIN_DIVISION_ACTIVE) divisor_ = outcome.contributors;
    if (config_.division == UJOIN_DIVISION_SAMPLES) divisor_ = outcome.weight;
    if (outcome.contributors < group_->size()) joined_uneven_ = true;
}

/// The operations of one iteration, for a rank that has joined: it contributes nothing and gets the result, so that an
/// optimizer that follows steps its part with the same gradients as everybody.
void Ddp::shadow() {
    const OpOutcome outcome = complete({}, true);
    const std::scoped_lock lock(mutex_);
    account(outcome);
}

ujoin_ddp_report Ddp::report() const {
    const std::scoped_lock lock(mutex_);
    ujoin_ddp_report report{};
    report.size = sizeof report;
    report.iterations = iterations_;
    report.divisor = divisor_;
    report.samples = total_samples_;
    report.reduce_us = reduce_ns_ / 1000;
    report.exposed_us = exposed_ns_ / 1000;
    report.bucket_count = borrowed_->buckets.size();
    report.joined_uneven = joined_uneven_ ? 1 : 0;
    return report;
}

} // namespace ujoin
