// SPDX-License-Identifier: Apache-2.0
#include "pctx/context.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "os/program.hpp"
#include "os/spawn.hpp"
#include <cerrno>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr const char *error_file_variable = "TORCHELASTIC_ERROR_FILE";
constexpr const char *default_path = "/usr/local/bin:/usr/bin:/bin"; // where PATH is not set

std::vector<std::string> own_environment() {
    std::vector<std::string> list;
    for (char **entry = environ; entry && *entry; entry++) list.emplace_back(*entry);
    return list;
}

} // namespace

ProcessContext::ProcessContext(JobSpec job) : job_(std::move(job)), workers_(static_cast<size_t>(job_.nprocs)) {}

ProcessContext::~ProcessContext() {
    if (set_) set_->release();
}

void ProcessContext::check_rank(int32_t rank, bool all_allowed) const {
    if (rank == -1 && all_allowed) return;
    if (rank < 0 || rank >= job_.nprocs)
        fail_invalid("rank is ", rank, "; expected 0 to ", job_.nprocs - 1, all_allowed ? ", or -1 for all" : "");
}

void ProcessContext::check_not_started(const char *what) const {
    std::scoped_lock lock(mutex_);
    if (started_) fail_state(what, " after pctx_start; make a new context");
}

void ProcessContext::set_env(int32_t rank, const char *name, const char *value) {
    check_not_started("a variable was set");
    check_rank(rank, true);
    if (!name) fail_invalid("name is NULL");
    const std::string text = name;
    if (text.empty() || text.find('=') != std::string::npos)
        fail_invalid("name is \"", text, "\"; expected the name of a variable, without \"=\"");
    changes_.push_back({rank, text, value ? std::optional<std::string>(value) : std::nullopt});
}

void ProcessContext::set_worker(int32_t rank, const ujoin_worker &worker) {
    check_not_started("a worker was set");
    check_rank(rank, true);
    for (int32_t i = 0; i < job_.nprocs; i++)
        if (rank == -1 || rank == i) apply_worker(worker, workers_[static_cast<size_t>(i)]);
}

JobPlan ProcessContext::make_plan() const {
    JobPlan plan;
    plan.job = job_;
    plan.environment = own_environment();
    plan.signal_mask = os::signal_mask();
    for (size_t i = 0; i < workers_.size(); i++) {
        const WorkerSpec &spec = workers_[i];
        WorkerPlan &worker = plan.workers.emplace_back();
        worker.program = spec.program.value_or(job_.program);
        worker.directory = spec.directory;
        worker.environment = make_environment(plan.environment, changes_, static_cast<int32_t>(i));
        worker.argv.push_back(worker.program);
        for (const std::string &arg : spec.args ? *spec.args : job_.args)
            worker.argv.push_back(substitute(arg, {{"local_rank", std::to_string(i)}}));
        int error = 0;
        const std::string path = find_variable(worker.environment, env::name(env::Var::path)).value_or(default_path);
        worker.file = os::find_program(worker.program, path, worker.directory, error);
        if (error != 0) fail_errno(error, cat("rank ", plan.rank_of(i), ": cannot find \"", worker.program, "\" in PATH"));
    }
    plan.files = StdioPlan::open(job_, workers_);
    for (size_t i = 0; i < workers_.size(); i++) {
        // Without a file the worker must not write over this process's own.
        const std::string &file = plan.files.workers[i].error_file;
        if (file.empty() && job_.log_dir != "/dev/null" && !find_variable(plan.environment, error_file_variable)) continue;
        std::vector<EnvChange> changes = {{-1, error_file_variable, file}};
        changes.insert(changes.end(), changes_.begin(), changes_.end());
        plan.workers[i].environment = make_environment(plan.environment, changes, static_cast<int32_t>(i));
    }
    return plan;
}

void ProcessContext::start() {
    std::shared_ptr<ProcessSet> set;
    {
        std::scoped_lock lock(mutex_);
        if (started_) fail_state("the workers were started before; a context starts once");
        if (closed_) fail_state("the context is closed");
        if (aborted_) fail(UJOIN_E_ABORTED, "aborted by pctx_abort before the start");
        started_ = true;
    }
    try {
        set = std::make_shared<ProcessSet>(make_plan());
        {
            std::scoped_lock lock(mutex_);
            set_ = set; // pctx_abort must reach it while it starts
            if (aborted_) set_->abort();
        }
        set->start();
    } catch (...) {
        std::scoped_lock lock(mutex_);
        failed_ = true;
        throw;
    }
}

std::shared_ptr<ProcessSet> ProcessContext::set() const {
    std::scoped_lock lock(mutex_);
    return failed_ ? nullptr : set_;
}

std::shared_ptr<ProcessSet> ProcessContext::need_set() const {
    if (auto found = set()) return found;
    std::scoped_lock lock(mutex_);
    if (aborted_) fail(UJOIN_E_ABORTED, "aborted by pctx_abort before the workers ran");
    fail_state(started_ ? "no worker runs: pctx_start failed" : "the workers are not started; call pctx_start");
}

ujoin_status ProcessContext::wait(int64_t timeout_ms) { return need_set()->wait(Deadline::in(timeout_ms)); }

int32_t ProcessContext::first_failure() const {
    const auto found = set();
    return found ? found->first_failure_seen() : -1;
}

ujoin_worker_result ProcessContext::result(int32_t rank) const {
    check_rank(rank, false);
    ujoin_worker_result out{};
    out.state = UJOIN_WORKER_CREATED;
    out.rank = rank;
    out.exit_code = -1;
    out.containment = job_.containment;
    out.stdout_path = "";
    out.stderr_path = "";
    if (const auto found = set()) found->fill(static_cast<size_t>(rank), out);
    return out;
}

const char *ProcessContext::report() {
    if (const auto found = set()) report_ = found->report();
    return report_.c_str();
}

void ProcessContext::signal(int32_t rank, int32_t signal) {
    check_rank(rank, true);
    if (signal < 1 || signal > 64) fail_invalid("signal is ", signal, "; expected 1 to 64");
    need_set()->signal(rank, signal);
}

ujoin_status ProcessContext::close(int32_t signal, int64_t grace_ms) {
    if (signal < 0 || signal > 64) fail_invalid("signal is ", signal, "; expected 1 to 64, or 0 for SIGTERM");
    {
        std::scoped_lock lock(mutex_);
        closed_ = true;
    }
    const auto found = set();
    return found ? found->close(signal == 0 ? SIGTERM : signal, grace_ms) : UJOIN_OK;
}

void ProcessContext::abort() {
    std::scoped_lock lock(mutex_);
    aborted_ = true;
    if (set_) set_->abort();
}

} // namespace ujoin
