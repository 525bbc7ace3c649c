// SPDX-License-Identifier: Apache-2.0
// What the program calls; the rounds that they begin and end are in rounds.cpp.
#include "ddp/reducer.hpp"
#include "base/checksum.hpp"
#include "ddp/participant.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace ujoin {

std::shared_ptr<Ddp> Ddp::create(std::shared_ptr<Group> group, const DdpConfig &config, std::optional<Error> local,
                                 Release release) {
    auto loan = std::make_shared<Loan>();
    loan->release = std::move(release);
    std::shared_ptr<Ddp> ddp;
    if (!local) {
        try {
            ddp = std::shared_ptr<Ddp>(new Ddp(group, config, loan));
        } catch (Error &error) {
            local = error.in(cat("rank ", group->rank()));
        } catch (const std::bad_alloc &) {
            local = Error(UJOIN_E_NO_MEMORY, "out of memory");
        }
    }
    agree_on_config(*group, config, local);
    if (config.initial_broadcast) ddp->broadcast_state(config.source_rank);
    const auto participant = std::make_shared<Participant>(std::move(group));
    participant->serve(ddp);
    ddp->joinable_ = participant;
    return ddp;
}

Ddp::Ddp(std::shared_ptr<Group> group, DdpConfig config, std::shared_ptr<Loan> loan)
    : group_(std::move(group)), config_(std::move(config)), loan_(std::move(loan)) {
    loan_->params = config_.params;
    if (config_.bucket_view) give_gradients_memory();
    const std::vector<GradParam> &params = loan_->params;
    check_gradients_apart(params);
    for (const GradParam &param : params)
        if (!param.ignored) append_segment(state_, param.data, param.bytes());
    for (const ujoin_buffer &buffer : config_.buffers) {
        append_segment(state_, buffer.data, buffer.count * dtype_size(buffer.dtype));
        append_segment(buffer_memory_, buffer.data, buffer.count * dtype_size(buffer.dtype));
    }
    loan_->low_rank.resize(params.size());
    used_.assign(params.size(), false);
    ready_.assign(params.size(), false);
    awaited_.assign(params.size(), false);
    used_by_.assign(params.size(), 0);
    install(config_.to_owner
                ? Buckets()
                : assign_buckets(params, backward_order(params.size()), config_.first_bucket_bytes, config_.bucket_bytes));
}

/// Operations of the library's own keep what they use. Those of a hook do not: nothing may be in flight on freed memory.
Ddp::~Ddp() {
    const auto waits = [](const auto &flight) { return flight->must_be_waited_for(); };
    if (std::none_of(flights_.begin(), flights_.end(), waits)) return;
    group_->abort("a gradient reducer was destroyed while its comm hook had work in flight");
    for (const std::shared_ptr<Reduction> &flight : flights_) flight->wait(*group_);
}

/// One block for each type, so that neighbours are adjacent whatever the buckets are. They never move.
void Ddp::give_gradients_memory() {
    std::map<ujoin_dtype, size_t> bytes;
    for (const GradParam &param : loan_->params) bytes[param.dtype] += param.bytes();
    std::map<ujoin_dtype, char *> next;
    loan_->gradients.reserve(bytes.size());
    for (const auto &[dtype, size] : bytes) next[dtype] = loan_->gradients.emplace_back(size).data();
    for (GradParam &param : loan_->params) {
        if (param.ignored) continue;
        char *to = next[param.dtype];
        if (param.grad) std::memcpy(to, param.grad, param.bytes());
        param.grad = to;
        next[param.dtype] += param.bytes();
    }
}

void Ddp::install(Buckets buckets) {
    buckets_ = std::make_shared<const Buckets>(std::move(buckets));
    bucket_of_.assign(loan_->params.size(), no_bucket);
    for (size_t b = 0; b < buckets_->size(); b++)
        for (const size_t i : (*buckets_)[b].params) bucket_of_[i] = b;
    unfilled_.assign(buckets_->size(), 0);
    flights_.reserve(buckets_->size());
    loan_->scratch.resize(std::max(loan_->scratch.size(), buckets_->size()));
}

/// A hook that calls back would wait for itself.
Ddp::Lock Ddp::enter() const {
    if (in_hook_.load(std::memory_order_relaxed) == std::this_thread::get_id())
        fail_state("rank ", group_->rank(), ": a hook of a gradient reducer may not call that reducer");
    return Lock(mutex_);
}

ujoin_status Ddp::forward(double samples) {
    if (!std::isfinite(samples) || samples < 0)
        fail_invalid("rank ", group_->rank(), ": samples is ", samples, "; expected 0 or more");
    group_->check_usable();
    check_between_iterations();
    if (sync_) check_step();
    if (sync_ && joinable_->notify() == UJOIN_JOINED) return UJOIN_JOINED;
    const Lock lock = enter();
    samples_ += samples;
    window_++;
    reducing_ = sync_;
    untaken_.reset();
    if (sync_) begin_round(false);
    begin_iteration();
    return UJOIN_OK;
}

void Ddp::check_between_iterations() const {
    const Lock lock = enter();
    if (!iterating_) return;
    fail_state("rank ", group_->rank(), ": the last iteration is not finished; ",
               reducing_ && not_ready_ ? missing() : "call ujoin_ddp_finish first");
}

/// Before anything has happened: a broken optimizer would only be noticed once the others wait for its update.
void Ddp::check_step() const {
    const Lock lock = enter();
    const std::shared_ptr<BucketStep> step = optimizer();
    if (step) return step->check_step();
    if (config_.to_owner)
        fail_state("rank ", group_->rank(),
                   ": gradient_sync is UJOIN_GRADIENT_SYNC_TO_OWNER, but there is no optimizer whose step would sum the "
                   "gradients: make one with ujoin_zero_options.ddp");
}

void Ddp::check_attachable() const {
    const Lock lock = enter();
    if (iterating_)
        fail_state("rank ", group_->rank(),
                   ": an iteration of options.ddp is not finished; make the optimizer between iterations");
    if (optimizer())
        fail_state("rank ", group_->rank(),
                   ": options.ddp makes the steps of another optimizer already; a reducer has one");
}

std::shared_ptr<BucketStep> Ddp::optimizer() const {
    std::shared_ptr<BucketStep> step = optimizer_.lock();
    return step && !step->dropped() ? step : nullptr;
}

void Ddp::attach(std::weak_ptr<BucketStep> optimizer) {
    const Lock lock = enter();
    optimizer_ = std::move(optimizer);
}

Contribution Ddp::take() {
    const Lock lock = enter();
    if (iterating_)
        fail_state("rank ", group_->rank(), ": the iteration of the reducer is not finished; call ujoin_ddp_finish first");
    if (!untaken_)
        fail_state("rank ", group_->rank(),
                   ": no iteration of the reducer has been finished since the last step, or not "
                   "one that synchronises; a step follows each ujoin_ddp_forward, _ready and _finish");
    Contribution taken = std::move(*untaken_);
    untaken_.reset();
    return taken;
}

std::string Ddp::missing() const {
    constexpr size_t shown = 8;
    std::vector<std::string> names;
    for (size_t i = 0; i < ready_.size() && names.size() < shown; i++)
        if (awaited_[i] && !ready_[i]) names.push_back(cat(i, " (\"", loan_->params[i].name, "\")"));
    if (not_ready_ > names.size()) names.push_back(cat("and ", not_ready_ - names.size(), " more"));
    return cat("no gradient is ready for parameter ", join_list(names), ": call ujoin_ddp_ready for each, then ",
               "ujoin_ddp_finish; if they are not used in every iteration, create the reducer with find_unused");
}

/// A group that is broken has ended the iteration.
void Ddp::check_round() {
    if (early_end_) throw Error(*early_end_);
    try {
        group_->check_usable();
    } catch (const Error &error) {
        if (iterating_ && reducing_) end_iteration(error);
        throw;
    }
}

void Ddp::ready(size_t index) {
    if (index >= bucket_of_.size())
        fail_invalid("rank ", group_->rank(), ": index is ", index, "; the reducer has ", bucket_of_.size(), " parameters");
    const Lock lock = enter();
    check_round();
    if (loan_->params[index].ignored) return;
    const auto refuse = [&](const char *why) {
        fail_state("rank ", group_->rank(), ": parameter ", index, " (\"", loan_->params[index].name, "\") ", why);
    };
    if (!iterating_) refuse("is ready outside of an iteration; call ujoin_ddp_forward first");
    if (ready_[index]) refuse("is ready already in this iteration; its reduction may have begun");
    const bool late = config_.static_graph && own_graph_.empty() && rounds_ > 1 && used_by_[index] == 0;
    if (reducing_ && (!awaited_[index] || late))
        refuse("was not used in the first iteration, but the graph is static; create the reducer with find_unused alone");
    ready_[index] = true;
    used_[index] = true;
    if (!reducing_) return;
    not_ready_--;
    note_order(index);
    if (bucket_of_[index] == no_bucket) return;
    unfilled_[bucket_of_[index]]--;
    launch_full();
}

void Ddp::finish() {
    const int64_t start_ns = now_ns();
    const Lock lock = enter();
    const bool may_lack = config_.finds_unused() && own_graph_.empty();
    if (!iterating_ || (reducing_ && not_ready_ != 0 && !may_lack)) {
        check_round();
        if (!iterating_) fail_state("rank ", group_->rank(), ": no iteration was begun; call ujoin_ddp_forward first");
        fail_state("rank ", group_->rank(), ": ", missing());
    }
    iterating_ = false; // whatever comes now: this one is over
    if (!reducing_) return;
    complete();
    exposed_ns_ += now_ns() - start_ns;
    iterations_++;
}

void Ddp::set_sync(bool enabled) {
    const Lock lock = enter();
    if (iterating_)
        fail_state("rank ", group_->rank(), ": an iteration is not finished; change synchronisation between iterations");
    sync_ = enabled;
}

void Ddp::check_before_first(const char *what) const {
    if (rounds_ != 0 || iterating_ || window_ != 0)
        fail_state("rank ", group_->rank(), ": iterations have begun; set the ", what, " before the first one");
}

void Ddp::set_comm_hook(HookChoice hook) {
    const Lock lock = enter();
    if (config_.to_owner)
        fail_state("rank ", group_->rank(),
                   ": a comm hook is not possible with UJOIN_GRADIENT_SYNC_TO_OWNER: gradients are "
                   "summed in zero_step, without buckets");
    check_before_first("comm hook");
    if (hook_set_) fail_state("rank ", group_->rank(), ": the comm hook is set already; a reducer has one");
    hook_ = std::move(hook);
    hook_set_ = true;
}

void Ddp::set_buffer_hook(ujoin_buffer_time time, HookChoice hook) {
    const Lock lock = enter();
    check_before_first("buffer hook");
    if (buffer_time_ != 0) fail_state("rank ", group_->rank(), ": the buffer hook is set already; a reducer has one");
    if (hook.kind == UJOIN_COMM_HOOK_ALL_REDUCE)
        for (size_t k = 0; k < config_.buffers.size(); k++)
            if (config_.buffers[k].dtype == UJOIN_U8)
                fail_invalid("buffers[", k, "] is u8: bytes cannot be averaged; give a hook of your own");
    buffer_hook_ = std::move(hook);
    buffer_time_ = time;
}

/// What all ranks must have set alike.
uint32_t Ddp::hook_digest() const {
    Checksum sum;
    for (const HookChoice *hook : {&hook_, &buffer_hook_}) {
        sum.word(static_cast<uint64_t>(hook->kind));
        if (hook->kind != UJOIN_COMM_HOOK_LOW_RANK) continue;
        sum.word(static_cast<uint64_t>(hook->start_iteration));
        sum.word(static_cast<uint64_t>(hook->rank));
    }
    sum.word(static_cast<uint64_t>(buffer_time_));
    sum.word(stepping_ ? 1 : 0);
    return sum.folded();
}

void *Ddp::gradient(size_t index) const {
    if (index >= loan_->params.size())
        fail_invalid("index is ", index, "; the reducer has ", loan_->params.size(), " parameters");
    return loan_->params[index].ignored ? nullptr : loan_->params[index].grad;
}

std::vector<int32_t> Ddp::used() const {
    const Lock lock = enter();
    return used_by_;
}

ujoin_ddp_report Ddp::report() const {
    const Lock lock = enter();
    ujoin_ddp_report report{};
    report.size = sizeof report;
    report.iterations = iterations_;
    report.divisor = divisor_;
    report.samples = total_samples_;
    report.reduce_us = reduce_ns_ / 1000;
    report.exposed_us = exposed_ns_ / 1000;
    report.bucket_count = buckets_->size();
    report.rebuilt = rebuilt_ ? 1 : 0;
    report.joined_uneven = joined_uneven_ ? 1 : 0;
    return report;
}

} // namespace ujoin
