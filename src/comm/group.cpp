// SPDX-License-Identifier: Apache-2.0
#include "comm/group.hpp"
#include "base/env.hpp"
#include "comm/registry.hpp"
#include "comm/shared_backend.hpp"
#include "os/cpu.hpp"
#include "os/thread.hpp"
#include <algorithm>
#include <utility>

namespace ujoin {
namespace {

constexpr int64_t default_timeout_ms = 600'000;
constexpr int max_threads = 1024;

bool progress_allowed(int processors, int32_t local_size) {
    if (const auto forced = env::number(env::Var::progress, 0, 1)) return *forced != 0;
    return processors >= local_size;
}

/// That compute, in each rank: its share of the processors, unless the program or the environment says otherwise.
int thread_count(int32_t option, int processors, int32_t local_size) {
    if (option < 0 || option > max_threads)
        fail_invalid("ujoin_group_options.threads is ", option, "; expected 1 to ", max_threads, ", or 0 for the default");
    if (option != 0) return option;
    if (const auto number = env::number(env::Var::threads, 1, max_threads)) return static_cast<int>(*number);
    return std::clamp(processors / local_size, 1, max_threads);
}

} // namespace

Group::Group(std::unique_ptr<Backend> backend, int32_t rank, int32_t size, HostPlace here, const GroupConfig &config,
             int32_t host_ranks)
    : health_(launcher_.health_lines(), rank, size, config.name), backend_(std::move(backend)), rank_(rank), size_(size),
      here_(here), host_ranks_(host_ranks ? host_ranks : here.size), shadow_collectives_(config.shadow_collectives),
      processors_(os::processor_count()), progress_allowed_(progress_allowed(processors_, host_ranks_)),
      pool_(thread_count(config.threads, processors_, host_ranks_)) {
    const int64_t fallback = env::number(env::Var::timeout_ms, 1, INT64_MAX / 2).value_or(default_timeout_ms);
    timeout_ms_ = duration_option(config.timeout_ms, fallback, "ujoin_group_options.timeout_ms");
    if (health_) backend_->tell(health_);
}

Group::~Group() {
    {
        const std::scoped_lock lock(progress_->mutex);
        progress_->stopping = true;
        progress_->changed.notify_all();
    }
    if (!closed_) backend_->abort("", true); // goodbye: nothing for those who need nothing more of this rank
    std::thread &thread = progress_->thread;
    if (!thread.joinable()) return;
    if (thread.get_id() == std::this_thread::get_id())
        thread.detach();
    else
        thread.join(); // idle: work in flight would keep the group alive
}

int64_t Group::timeout_ms(int64_t timeout_option) const {
    return duration_option(timeout_option, timeout_ms_, "timeout_ms");
}

void Group::check_usable() {
    if (broken_.load(std::memory_order_acquire)) {
        const std::scoped_lock lock(cause_mutex_);
        throw Error(cause_->code(), cat("the group is broken: ", cause_->text())).with_ranks(cause_->ranks());
    }
    if (closed_.load(std::memory_order_acquire)) fail_state("the group is closed");
}

void Group::break_with(const Error &error) {
    {
        const std::scoped_lock lock(cause_mutex_);
        if (!cause_) cause_ = error;
    }
    broken_.store(true, std::memory_order_release);
    health_.broken();
}

void Group::run(OpArgs &op, const Deadline &deadline) {
    check_usable();
    tag(op);
    const auto inside = [&] {
        try {
            backend_->run(op, deadline, Deadline::never(), true);
        } catch (const Error &error) {
            break_with(error);
            throw;
        } catch (const std::bad_alloc &) {
            throw abort_without_memory();
        }
    };
    if (progress_->in_flight.load(std::memory_order_acquire) == 0) {
        inside();
    } else {
        Lock lock(progress_->mutex);
        drain(lock);
        progress_->busy = true;
        lock.unlock();
        struct Leave {
            Progress &progress;
            Lock &lock;
            ~Leave() {
                lock.lock();
                progress.busy = false;
                progress.changed.notify_all();
            }
        } const leave{*progress_, lock};
        check_usable();
        inside();
    }
    if (Tagger *to = tagger()) to->after(op);
}

void Group::tag(OpArgs &op) {
    if (op.empty) return; // it has its peer's
    if (!shadow_collectives_) op.program = false;
    if (Tagger *to = tagger())
        to->before(op);
    else
        op.program = false;
}

void Group::shadow(const OpArgs &of) {
    OpArgs op = empty_shadow_of(of);
    run(op);
}

void Group::drain() {
    if (progress_->in_flight.load(std::memory_order_acquire) == 0) return;
    Lock lock(progress_->mutex);
    drain(lock);
}

/// Waits until everything in flight is complete and nobody is inside the backend.
void Group::drain(Lock &lock) {
    while (!progress_->queue.empty() || progress_->busy) {
        if (!progress_->queue.empty() && !progress_->busy && !progress_allowed_) {
            step_front(lock, Deadline::never(), true, true);
            continue;
        }
        if (progress_->changed.wait_for(lock, std::chrono::nanoseconds(os::slice_ns)) == std::cv_status::timeout) {
            lock.unlock();
            os::check_interrupt();
            lock.lock();
        }
    }
}

std::shared_ptr<Work> Group::submit(const OpArgs &op, const Deadline &deadline, Release release) {
    check_usable();
    auto work = std::make_shared<Work>(shared_from_this(), op, deadline, std::move(release));
    put_in_flight(&work, 1);
    return work;
}

std::shared_ptr<Work> Group::submit_all(std::vector<OpArgs> ops, const Deadline &deadline, Release release) {
    check_usable();
    std::vector<std::shared_ptr<Work>> works;
    works.reserve(ops.size());
    for (size_t i = 0; i + 1 < ops.size(); i++)
        works.push_back(std::make_shared<Work>(shared_from_this(), ops[i], deadline, Release()));
    works.push_back(std::make_shared<Work>(shared_from_this(), ops.back(), deadline, std::move(release)));
    put_in_flight(works.data(), works.size());
    return works.back();
}

std::shared_ptr<Work> Group::submit_idle(const OpArgs &op, int64_t idle_timeout_ms, Release release) {
    check_usable();
    auto work = std::make_shared<Work>(shared_from_this(), op, Deadline::never(), std::move(release));
    work->idle_timeout_ms_ = idle_timeout_ms;
    put_in_flight(&work, 1);
    return work;
}

/// All or none.
void Group::put_in_flight(const std::shared_ptr<Work> *works, size_t count) {
    for (size_t i = 0; i < count; i++) tag(works[i]->op_);
    Lock lock(progress_->mutex);
    size_t put = 0;
    try {
        for (; put < count; put++) progress_->queue.push_back(works[put]);
    } catch (const std::bad_alloc &) {
        for (; put > 0; put--) progress_->queue.pop_back();
        throw abort_without_memory(); // the others wait for them
    }
    progress_->in_flight.fetch_add(count, std::memory_order_acq_rel);
    if (progress_allowed_) start_progress();
    if (progress_allowed_)
        progress_->changed.notify_all();
    else
        while (step_front(lock, Deadline::in(0), false, false)) {
        }
}

void Group::start_progress() {
    if (progress_->thread.joinable()) return;
    try {
        progress_->thread = os::start_thread("ujoin-progress", [progress = progress_] { progress_loop(progress); });
    } catch (const std::exception &) { // no more threads, or no memory for one
        progress_allowed_ = false;     // operations advance inside the calls then
    }
}

void Group::progress_loop(std::shared_ptr<Progress> progress) {
    Lock lock(progress->mutex);
    for (;;) {
        progress->changed.wait(lock, [&] { return progress->stopping || (!progress->queue.empty() && !progress->busy); });
        if (progress->stopping) return;
        std::shared_ptr<Group> group = progress->queue.front()->keep_group_;
        group->step_front(lock, Deadline::never(), false, true);
        lock.unlock();
        group.reset(); // perhaps the last reference
        lock.lock();
    }
}

/// Moves the first operation in flight on: as far as it goes, or, if it may wait, to its end. False = nothing more can be
/// done now.
bool Group::step_front(Lock &lock, const Deadline &patience, bool interruptible, bool may_wait) {
    Progress &progress = *progress_;
    if (progress.queue.empty() || progress.busy) return false;
    const std::shared_ptr<Work> work = progress.queue.front();
    progress.busy = true;
    lock.unlock();
    std::optional<Error> error;
    bool complete = false;
    if (work->idle_timeout_ms_ >= 0) work->deadline_ = Deadline::in(std::exchange(work->idle_timeout_ms_, -1));
    try {
        check_usable();
        complete =
            may_wait ? backend_->run(work->op_, work->deadline_, patience, interruptible) : backend_->advance(work->op_);
    } catch (const Error &caught) {
        error = caught;
        break_with(caught);
    } catch (const std::bad_alloc &) {
        error = abort_without_memory();
    }
    std::shared_ptr<Group> keep = work->keep_group_;
    const bool ended = complete || error.has_value();
    if (ended) work->complete(std::move(error));
    lock.lock();
    progress.busy = false;
    if (ended) {
        progress.queue.pop_front();
        progress.in_flight.fetch_sub(1, std::memory_order_acq_rel);
        work->keep_group_.reset();
    }
    progress.changed.notify_all();
    return ended;
}

void Group::all_gather_parts(const Memory &recv, const size_t *part_offsets, const Deadline &deadline) {
    OpArgs op;
    op.kind = OpKind::all_gather;
    op.count = recv.bytes();
    op.recv = recv;
    op.part_offsets = part_offsets;
    run(op, deadline);
}

std::vector<os::Fd> Group::pass(const os::Fd &own) {
    check_usable();
    drain();
    constexpr int64_t limit_ms = 60'000; // all are known to be there
    try {
        return backend_->pass(own, Deadline::in(limit_ms));
    } catch (const Error &error) {
        break_with(error);
        backend_->abort(error.text(), false);
        throw;
    }
}

void Group::broadcast(const Memory &memory, int32_t root) {
    OpArgs op;
    op.kind = OpKind::broadcast;
    op.count = memory.bytes();
    op.recv = memory;
    op.root = root;
    run(op);
}

void Group::barrier() {
    OpArgs op;
    op.kind = OpKind::barrier;
    run(op);
}

std::vector<std::string> Group::exchange(const std::string &mine, const Deadline &deadline) {
    const auto ranks = static_cast<size_t>(size_);
    std::vector<uint64_t> sizes(ranks);
    const uint64_t own = mine.size();
    OpArgs op;
    op.kind = OpKind::all_gather;
    op.dtype = UJOIN_U8;
    op.count = sizeof own;
    op.send = Memory(&own, sizeof own);
    op.recv = Memory(sizes.data(), ranks * sizeof own);
    run(op, deadline);

    std::vector<size_t> offsets(ranks + 1);
    for (size_t k = 0; k < ranks; k++) offsets[k + 1] = offsets[k] + sizes[k];
    std::string all(offsets[ranks], '\0');
    mine.copy(all.data() + offsets[static_cast<size_t>(rank_)], mine.size());
    all_gather_parts(Memory(all.data(), all.size()), offsets.data(), deadline);

    std::vector<std::string> result;
    for (size_t k = 0; k < ranks; k++) result.push_back(all.substr(offsets[k], sizes[k]));
    return result;
}

void Group::agree(const std::optional<Error> &error, const Deadline &deadline) {
    std::string mine;
    if (error) mine = cat(error->code(), " ", error->system_errno(), " ", error->text());
    const std::vector<std::string> all = exchange(mine, deadline);
    std::vector<int32_t> ranks;
    std::string text;
    ujoin_status code = UJOIN_OK;
    int32_t system_errno = 0;
    for (int32_t k = 0; k < size_; k++) {
        const std::string &of = all[static_cast<size_t>(k)];
        if (of.empty()) continue;
        char *end = nullptr;
        const long its_code = std::strtol(of.c_str(), &end, 10);
        const long its_errno = std::strtol(end, &end, 10);
        if (code == UJOIN_OK) {
            code = static_cast<ujoin_status>(its_code);
            system_errno = static_cast<int32_t>(its_errno);
        }
        ranks.push_back(k);
        text += cat(text.empty() ? "" : "; ", size_ > 1 ? cat("rank ", k, ": ") : "", *end ? end + 1 : end);
    }
    if (code != UJOIN_OK) throw Error(code, text).with_errno(system_errno).with_ranks(ranks);
}

ujoin_status Group::close(int64_t timeout_ms) {
    if (closed_.load(std::memory_order_acquire)) return UJOIN_OK;
    if (!closing_) {
        OpArgs op;
        op.kind = OpKind::close;
        closing_ = submit(op, Deadline::never());
    }
    const ujoin_status status = closing_->wait(timeout_ms);
    if (status == UJOIN_OK) closed_.store(true, std::memory_order_release);
    return status;
}

void Group::abort(const std::string &reason) {
    const std::string text =
        reason.empty() ? cat("rank ", rank_, " aborted the group") : cat("rank ", rank_, " aborted the group: ", reason);
    break_with(Error(UJOIN_E_ABORTED, text).with_ranks({rank_}));
    backend_->abort(text, false);
}

Error Group::abort_without_memory() {
    Error error(UJOIN_E_NO_MEMORY, "out of memory"); // so short a text needs no memory
    break_with(error);
    backend_->abort(error.text(), false);
    return error;
}

void Group::handle_dropped() {
    if (progress_allowed_) return;
    Lock lock(progress_->mutex);
    if (progress_->queue.empty()) return;
    progress_allowed_ = true; // nobody else will move it on
    start_progress();
    progress_->changed.notify_all();
}

} // namespace ujoin
