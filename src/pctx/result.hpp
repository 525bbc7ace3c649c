// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/process.hpp"
#include "pctx/spec.hpp"
#include "pctx/stdio_plan.hpp"
#include "ujoin.h"
#include <string>
#include <vector>

namespace ujoin {

/// One worker, ready to be started.
struct WorkerPlan {
    std::string program;           // as the caller named it
    std::string file;              // as execve takes it
    std::vector<std::string> argv; // with the program's name
    std::vector<std::string> environment;
    std::string directory;
};

/// A job, ready to be started.
struct JobPlan {
    JobSpec job;
    std::vector<WorkerPlan> workers;
    StdioPlan files;
    std::vector<std::string> environment; // the launcher's
    uint64_t signal_mask = 0;             // of the thread that starts the job

    int32_t rank_of(size_t index) const { return job.first_rank + static_cast<int32_t>(index); }
};

/// What is known of a worker.
struct WorkerRecord {
    ujoin_worker_state state = UJOIN_WORKER_CREATED;
    int32_t pid = 0;
    os::ExitInfo exit;
    bool failed = false;
    bool stopped = false;
    int64_t start_ns = 0; // CLOCK_REALTIME
    int64_t end_ns = 0;
};

/// "rank 2 (pid 4711) died of SIGSEGV"
std::string describe_end(const JobPlan &plan, const WorkerRecord &record, size_t index);
/// The failure for a person; `first` is the worker that failed first.
std::string make_report(const JobPlan &plan, const std::vector<WorkerRecord> &records, size_t first);

} // namespace ujoin
