// SPDX-License-Identifier: Apache-2.0
// The part of ProcessSet that decides how workers are held, if not as children of this process alone.
#include "base/env.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "pctx/process_set.hpp"
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <unistd.h>

namespace ujoin {

/// Who holds the workers: the helper, or this program itself as a fork server.
void ProcessSet::start_warden() {
    const JobSpec &job = plan_->job;
    std::vector<std::string> environment = plan_->environment;
    const bool fork_server = !job.function.empty() && job.start_method == UJOIN_START_FORKSERVER;
    if (fork_server) environment.push_back(cat(env::name(env::Var::worker), "=", worker_is_forkserver));
    if (!fork_server && job.containment == UJOIN_CONTAINMENT_GROUP) return;
    std::vector<char *> variables;
    variables.reserve(environment.size() + 1);
    for (std::string &entry : environment) variables.push_back(entry.data());
    variables.push_back(nullptr);
    if (fork_server)
        warden_.emplace(plan_->own_program, !job.same_session, variables.data());
    else
        warden_.emplace(!job.same_session, variables.data());
    plan_->held_by = UJOIN_CONTAINMENT_WARDEN;
    if (job.containment >= UJOIN_CONTAINMENT_CGROUP) enter_cgroup();
}

/// The warden makes it, so that it goes away with the warden whenever this process is killed.
void ProcessSet::enter_cgroup() {
    std::string why;
    int error = ENOENT;
    std::string path = os::own_cgroup("/proc/self", why);
    if (!path.empty()) {
        path += cat("/ujoin-", getpid(), "-", random_hex(4));
        error = warden_->hold(path);
        if (error != 0) why = cat("\"", path, "\": ", std::strerror(error)); // NOLINT(concurrency-mt-unsafe)
        if (error == EACCES || error == EPERM || error == EROFS)
            why +=
                "; the cgroup of this process has to be given to its user (systemd-run --user --scope -p Delegate=yes), or "
                "in a container to be mounted writable";
    }
    if (error == 0) {
        error = cgroup_.open(path);
        if (error != 0) fail_errno(error, cat("cannot open the cgroup of the workers, \"", path, "\""));
        plan_->held_by = UJOIN_CONTAINMENT_CGROUP;
    } else if (plan_->job.containment == UJOIN_CONTAINMENT_CGROUP) {
        throw Error(UJOIN_E_SYSTEM, cat("cannot make a cgroup for the workers: ", why)).with_errno(error);
    } else {
        log_line(UJOIN_LOG_INFO, cat("no cgroup for the workers, a warden holds them: ", why));
    }
}

/// A warden that has died cannot remove it.
void ProcessSet::leave_cgroup() {
    const Deadline deadline = Deadline::in(warden_died_ ? kill_limit_ms : 0);
    while (warden_died_ && !cgroup_.remove() && !deadline.passed()) {
        cgroup_.kill_all();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    cgroup_ = os::Cgroup();
}

} // namespace ujoin
