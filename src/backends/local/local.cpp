// SPDX-License-Identifier: Apache-2.0
#include "backends/builtin.hpp"
#include "comm/shared_backend.hpp"
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>

namespace ujoin {
namespace {

/// Many ranks in one process: smaller pieces keep the memory of 64 ranks in bounds.
constexpr size_t chunk_bytes(int32_t size) { return size <= 8 ? default_chunk : size_t{64} << 10; }

/// One group's ranks on their way to each other, and the memory they share.
struct Job {
    explicit Job(int32_t size)
        : bytes(RankArea::bytes(chunk_bytes(size))),
          memory(::operator new (bytes *static_cast<size_t>(size), std::align_val_t{4096})),
          came(static_cast<size_t>(size)) {
        for (int32_t k = 0; k < size; k++)
            areas.push_back(new (static_cast<char *>(memory) + bytes * static_cast<size_t>(k)) RankArea);
    }
    ~Job() { ::operator delete (memory, std::align_val_t{4096}); }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    size_t bytes;
    void *memory;
    std::vector<RankArea *> areas;
    std::vector<bool> came;
    size_t present = 0;
    bool given_up = false;
};

struct Meetings {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::shared_ptr<Job>> open; ///< by meeting; taken out once all have come
};
Meetings &meetings() {
    static auto *all = new Meetings; // never destroyed: threads may still wait when the process exits
    return *all;
}

/// Those who wait give up too, and nobody comes late to it. The mutex is held.
void close_meeting(Job &job, const std::string &meeting) {
    Meetings &all = meetings();
    job.given_up = true;
    if (const auto found = all.open.find(meeting); found != all.open.end() && found->second.get() == &job)
        all.open.erase(found);
    all.changed.notify_all();
}

[[noreturn]] void give_up(Job &job, const std::string &meeting) {
    std::vector<int32_t> missing;
    for (size_t k = 0; k < job.came.size(); k++)
        if (!job.came[k]) missing.push_back(static_cast<int32_t>(k));
    close_meeting(job, meeting);
    throw Error(UJOIN_E_TIMEOUT, cat("ranks ", join_list(missing), " did not come to ", meeting)).with_ranks(missing);
}

std::shared_ptr<Job> meet(const AttachRequest &request) {
    Meetings &all = meetings();
    std::unique_lock lock(all.mutex);
    std::shared_ptr<Job> &entry = all.open[request.meeting];
    if (!entry) entry = std::make_shared<Job>(request.size);
    const std::shared_ptr<Job> job = entry;
    const auto rank = static_cast<size_t>(request.rank);
    if (job->areas.size() != static_cast<size_t>(request.size))
        fail(UJOIN_E_MISMATCH, "rank ", request.rank, " says that the group has ", request.size, " ranks; others said ",
             job->areas.size());
    if (job->came[rank])
        fail(UJOIN_E_MISMATCH, "two threads say that they are rank ", request.rank, " of ", request.meeting);
    job->came[rank] = true;
    if (++job->present == job->areas.size()) {
        all.open.erase(request.meeting);
        all.changed.notify_all();
        return job;
    }
    while (job->present != job->areas.size()) {
        if (job->given_up || request.deadline.passed()) give_up(*job, request.meeting);
        const auto slice = std::chrono::nanoseconds(request.deadline.left_ns(os::slice_ns));
        if (all.changed.wait_for(lock, slice) != std::cv_status::timeout) continue;
        lock.unlock();
        try {
            os::check_interrupt();
        } catch (const Error &) {
            lock.lock();
            close_meeting(*job, request.meeting);
            throw;
        }
        lock.lock();
    }
    return job;
}

std::string why_not(const RanksAre &ranks) { return ranks.threads ? "" : "it needs the rendezvous local://name"; }

std::unique_ptr<Backend> attach(const AttachRequest &request) {
    const std::shared_ptr<Job> job = meet(request);
    SharedBackend::Parts parts;
    parts.name = "local";
    parts.rank = request.rank;
    parts.areas = job->areas;
    parts.keep_mapped = job;
    parts.chunk = chunk_bytes(request.size);
    parts.spin_ns = spin_time_ns(request.host_ranks);
    return std::make_unique<SharedBackend>(std::move(parts));
}

} // namespace

BackendFactory local_backend() { return {"local", why_not, attach, "ranks are threads of one process"}; }

} // namespace ujoin
