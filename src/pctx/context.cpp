// SPDX-License-Identifier: Apache-2.0
#include "pctx/context.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "os/program.hpp"
#include "os/spawn.hpp"
#include "pctx/limits.hpp"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <sys/resource.h>
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

/// What is executed to have this program once more.
std::string own_program() {
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) fail_errno(errno, "cannot find the file of this program");
    return {path, static_cast<size_t>(length)};
}

void set_bits(uint64_t *words, size_t count, const std::vector<int32_t> &numbers, const char *what) {
    for (const int32_t number : numbers) {
        if (number < 0 || static_cast<size_t>(number) >= 64 * count)
            fail_invalid(what, " ", number, " is not there; expected 0 to ", 64 * count - 1);
        words[number / 64] |= uint64_t{1} << (number % 64);
    }
}

/// Processors, limits and umask; nothing where none is asked for.
std::optional<os::SpawnSettings> make_settings(const JobSpec &job, const WorkerSpec &spec, const Topology &topology,
                                               size_t index) {
    const bool placed = job.binding != UJOIN_BINDING_NONE;
    if (!placed && spec.limits.empty() && spec.umask < 0) return std::nullopt;
    os::SpawnSettings settings{};
    settings.umask = spec.umask;
    for (const os::SpawnLimit &limit : spec.limits) settings.limits[settings.limit_count++] = limit;
    if (!placed) return settings;
    const std::vector<int32_t> cpus = job.binding == UJOIN_BINDING_LIST
                                          ? spec.cpus
                                          : place_worker(topology, job.binding, index, static_cast<size_t>(job.nprocs));
    set_bits(settings.cpus, std::size(settings.cpus), cpus, "processor");
    settings.has_cpus = 1;
    if (topology.nodes.size() < 2) return settings;
    set_bits(settings.nodes, std::size(settings.nodes), nodes_of(topology, cpus), "memory node");
    settings.has_nodes = 1;
    return settings;
}

} // namespace

bool ProcessContext::is_set(const char *name, int32_t rank) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const EnvChange &change) {
        return change.name == name && (change.rank == -1 || change.rank == rank);
    });
}

ProcessContext::ProcessContext(JobSpec job)
    : job_(std::move(job)), workers_(static_cast<size_t>(job_.nprocs)), health_(workers_.size()) {}

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

/// Every worker needs something to run; the text names those that have nothing.
void ProcessContext::check_programs() const {
    std::vector<size_t> missing;
    std::vector<int32_t> readers;
    for (size_t i = 0; i < workers_.size(); i++) {
        if (job_.program.empty() && job_.function.empty() && !workers_[i].program) missing.push_back(i);
        if (workers_[i].stdin_from == UJOIN_STDIN_INHERIT) readers.push_back(static_cast<int32_t>(i));
        if (job_.binding == UJOIN_BINDING_LIST && workers_[i].cpus.empty())
            fail_invalid("spec.binding is UJOIN_BINDING_LIST, but rank ", i, " has no processors (worker.cpus)");
    }
    if (!missing.empty())
        fail_invalid("neither spec.program nor spec.function is set, and of ranks 0 to ", workers_.size() - 1,
                     " these have no program of their own: ", join_list(missing));
    if (readers.size() > 1)
        fail_invalid("one worker at most can inherit stdin, but ranks ", join_list(readers), " ask for it");
    const bool held = job_.containment == UJOIN_CONTAINMENT_WARDEN || job_.containment == UJOIN_CONTAINMENT_CGROUP;
    if (forks() && held)
        fail(UJOIN_E_UNSUPPORTED, "a forked worker is a child of this process: UJOIN_START_FORK goes with "
                                  "UJOIN_CONTAINMENT_GROUP, UJOIN_START_FORKSERVER with the warden and a cgroup");
}

bool ProcessContext::forks() const { return job_.start_method == UJOIN_START_FORK && !job_.function.empty(); }

/// Copies of the descriptors that workers get, so that nobody can close them, or put others in their place, meanwhile. Before
/// this library opens anything: its own could have the number of one that was closed.
void ProcessContext::copy_descriptors(JobPlan &plan) const {
    rlimit most{};
    getrlimit(RLIMIT_NOFILE, &most);
    for (size_t i = 0; i < workers_.size(); i++) {
        for (const ujoin_worker_fd &fd : workers_[i].fds) {
            if (static_cast<uint64_t>(fd.to) >= most.rlim_cur)
                fail_invalid("rank ", plan.rank_of(i), ": descriptor ", fd.to,
                             " of the worker is not below the limit for open files, ", most.rlim_cur);
            if (fcntl(fd.from, F_GETFD) < 0)
                fail_invalid("rank ", plan.rank_of(i), ": descriptor ", fd.from,
                             " (worker.fds) is not open in this process");
        }
    }
    for (const WorkerSpec &worker : workers_) {
        for (const ujoin_worker_fd &fd : worker.fds) {
            os::Fd &copy = plan.inherited[fd.from];
            if (!copy) copy.reset(fcntl(fd.from, F_DUPFD_CLOEXEC, 3));
            if (!copy) fail_errno(errno, cat("cannot copy descriptor ", fd.from, " for a worker"));
        }
    }
}

void ProcessContext::plan_program(JobPlan &plan, size_t index) const {
    const WorkerSpec &spec = workers_[index];
    WorkerPlan &worker = plan.workers[index];
    std::vector<std::string> args;
    for (const std::string &arg : spec.args ? *spec.args : job_.args)
        args.push_back(substitute(arg, {{"local_rank", std::to_string(index)}}));
    if (!job_.function.empty() && !spec.program) {
        worker.program = job_.function;
        worker.file = plan.own_program;
        worker.argv = {plan.own_program};
        worker.call = FunctionCall{job_.function, std::move(args), spec.input, static_cast<int32_t>(index), job_.nprocs};
        const CallFiles at = call_files(worker.fds);
        if (job_.start_method == UJOIN_START_SPAWN)
            worker.environment.push_back(
                cat(env::name(env::Var::worker), "=", worker_is_function, at.call, ":", at.answer));
        return;
    }
    worker.program = spec.program.value_or(job_.program);
    worker.argv.push_back(worker.program);
    worker.argv.insert(worker.argv.end(), args.begin(), args.end());
    int error = 0;
    const std::string path = find_variable(worker.environment, env::name(env::Var::path)).value_or(default_path);
    worker.file = os::find_program(worker.program, path, worker.directory, error);
    if (error != 0) fail_errno(error, cat("rank ", plan.rank_of(index), ": cannot find \"", worker.program, "\" in PATH"));
}

JobPlan ProcessContext::make_plan() const {
    check_programs();
    JobPlan plan;
    plan.job = job_;
    copy_descriptors(plan);
    plan.page = std::make_shared<os::JobPage>(workers_.size());
    plan.environment = own_environment();
    plan.signal_mask = os::signal_mask();
    if (forks()) plan.job.containment = UJOIN_CONTAINMENT_GROUP; // also where the best is asked for
    if (!job_.function.empty()) plan.own_program = own_program();
    const Topology topology = job_.binding == UJOIN_BINDING_NONE ? Topology() : Topology::read("/sys");
    for (size_t i = 0; i < workers_.size(); i++) {
        const WorkerSpec &spec = workers_[i];
        WorkerPlan &worker = plan.workers.emplace_back();
        worker.directory = spec.directory;
        const EnvChange page{-1, env::name(env::Var::job), plan.page->address(i)};
        worker.environment =
            make_environment(make_environment(plan.environment, {page}, 0), changes_, static_cast<int32_t>(i));
        worker.stdin_bytes = spec.stdin_bytes;
        worker.stdin_path = spec.stdin_path;
        if (spec.stdin_from != 0)
            worker.stdin_from = spec.stdin_from;
        else if (job_.same_session)
            worker.stdin_from = UJOIN_STDIN_INHERIT;
        worker.settings = make_settings(job_, spec, topology, i);
        worker.fds = spec.fds;
        plan_program(plan, i);
    }
    plan.files = StdioPlan::open(job_, workers_);
    for (size_t i = 0; i < workers_.size(); i++) {
        // Without a file the worker must not write over this process's own.
        const std::string &file = plan.files.workers[i].error_file;
        if (file.empty() && job_.log_dir != "/dev/null" && !find_variable(plan.environment, error_file_variable)) continue;
        std::vector<std::string> &environment = plan.workers[i].environment;
        if (is_set(error_file_variable, static_cast<int32_t>(i))) continue;
        environment = make_environment(environment, {{-1, error_file_variable, file}}, 0);
    }
    return plan;
}

void ProcessContext::start() {
    std::shared_ptr<ProcessSet> set;
    {
        std::scoped_lock lock(mutex_);
        if (is_unpassed_worker())
            fail_state(
                "this process is a function worker that has not passed pctx_worker_main, which comes first in main; it "
                "would start itself without end");
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
    } catch (const Error &error) {
        std::scoped_lock lock(mutex_);
        const bool refused = !set && error.code() == UJOIN_E_INVALID; // what was asked for can be mended
        started_ = !refused;
        failed_ = !refused;
        throw;
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
    out.message = "";
    out.traceback = "";
    out.stdout_path = "";
    out.stderr_path = "";
    out.error_path = "";
    if (const auto found = set()) found->fill(static_cast<size_t>(rank), out);
    return out;
}

ujoin_worker_health ProcessContext::health(int32_t rank) {
    check_rank(rank, false);
    const auto index = static_cast<size_t>(rank);
    const auto found = set();
    const std::scoped_lock lock(health_mutex_);
    health_[index] = found ? found->health(index) : WorkerHealth::not_started(job_.first_rank, index);
    return health_[index].fill();
}

const char *ProcessContext::report() {
    if (const auto found = set()) report_ = found->report();
    return report_.c_str();
}

const char *ProcessContext::json_report() {
    const auto found = set();
    json_ = found ? found->json_report() : "{}";
    return json_.c_str();
}

void ProcessContext::signal(int32_t rank, int32_t signal) {
    check_rank(rank, true);
    if (signal < 1 || signal > 64) fail_invalid("signal is ", signal, "; expected 1 to 64");
    need_set()->signal(rank, signal);
}

void ProcessContext::stop() { need_set()->stop(); }

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
