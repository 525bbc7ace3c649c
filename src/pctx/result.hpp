// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include "os/job_page.hpp"
#include "os/process.hpp"
#include "pctx/error_file.hpp"
#include "pctx/function_worker.hpp"
#include "pctx/spec.hpp"
#include "pctx/stdio_plan.hpp"
#include "ujoin.h"
#include <map>
#include <memory>
#include <optional>
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
    std::optional<FunctionCall> call; // of a function worker
    ujoin_stdin stdin_from = UJOIN_STDIN_NULL;
    std::string stdin_bytes;
    std::string stdin_path;
    std::optional<os::SpawnSettings> settings;
    std::vector<ujoin_worker_fd> fds;
};

/// A job, ready to be started.
struct JobPlan {
    JobSpec job;
    std::vector<WorkerPlan> workers;
    StdioPlan files;
    std::shared_ptr<os::JobPage> page;    // UJOIN_JOB names it to the workers
    std::vector<std::string> environment; // the launcher's
    uint64_t signal_mask = 0;             // of the thread that starts the job
    std::map<int, os::Fd> inherited;      // copies of the descriptors that workers get, until all have them
    std::string own_program;              // of a job that runs functions: what is executed for it
    ujoin_containment held_by = UJOIN_CONTAINMENT_GROUP;

    int32_t rank_of(size_t index) const { return job.first_rank + static_cast<int32_t>(index); }
};

/// Of a worker that has ended.
inline ujoin_worker_state state_of(const os::ExitInfo &exit) {
    return exit.signal != 0 ? UJOIN_WORKER_SIGNALED : UJOIN_WORKER_EXITED;
}

/// What is known of a worker.
struct WorkerRecord {
    ujoin_worker_state state = UJOIN_WORKER_CREATED;
    int32_t pid = 0;
    os::ExitInfo exit;
    bool failed = false;
    bool stopped = false;
    bool later = false;   // failed by itself, with a record, when the job was being ended already
    int64_t start_ns = 0; // CLOCK_REALTIME
    int64_t end_ns = 0;
    int64_t end_monotonic_ns = 0; // when it was noticed
};

/// Why a worker ended badly, for texts: out of its error file, its answer, its signal, its stderr.
struct Explanation {
    std::string message;
    std::string traceback;
    std::string error_path; // "" if it wrote none that can be read
    int64_t failed_ns = 0;  // CLOCK_REALTIME
    int64_t monotonic_ns = 0;
    std::string doing; // what its group was in; "" if it had none, or had closed it
};
/// `answer` may be empty. For a worker that ended well, or runs, all is empty.
Explanation explain(const JobPlan &plan, const WorkerRecord &record, size_t index, const Answer *answer);

/// Whether it ended, and not by exiting with 0 after what it had to do.
bool ended_badly(const WorkerRecord &record);
/// The exit code as Python has it: -signal for one that died of a signal.
int32_t python_code(const WorkerRecord &record);

/// "14:02:11.532", local time.
std::string clock_text(int64_t realtime_ns);

/// "rank 2 (pid 4711) died of SIGSEGV"
std::string describe_end(const JobPlan &plan, const WorkerRecord &record, size_t index);
/// The failure for a person, in PyTorch's layout; `first` is the worker that failed first.
std::string make_report(const JobPlan &plan, const std::vector<WorkerRecord> &records, size_t first,
                        const std::vector<Explanation> &whys);
/// All results as JSON; `first` -1: none failed.
std::string make_json_report(const JobPlan &plan, const std::vector<ujoin_worker_result> &results, int32_t first);

} // namespace ujoin
