// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include "pctx/spec.hpp"
#include <array>
#include <string>
#include <vector>

namespace ujoin {

/// Where one stream of a worker goes.
enum class StreamKind {
    inherit, // the host's own descriptor
    discard, // /dev/null
    file,    // the worker writes into the file itself
    pipe     // the launcher reads it, for the console, the file, filters or the program's callback
};

struct StreamPlan {
    StreamKind kind = StreamKind::inherit;
    os::Fd file;
    std::string path;     // "" if there is no file
    bool console = false; // of a pipe
};

struct WorkerStdio {
    std::array<StreamPlan, 2> streams; // stdout, stderr
    std::string error_file;            // "" if no log directory is in use
};

/// The files of one attempt: <log_dir>/<run_id>/attempt_<k>/<rank>/{stdout.log,stderr.log,error.json}. Directories are 0700
/// and files 0600 whatever the umask; nothing that exists is overwritten, no link is followed below the log directory.
/// Another attempt, or another host's ranks, may share the run's directory; a rank's own directory must be new.
class StdioPlan {
  public:
    StdioPlan() = default;
    ~StdioPlan() { undo(); }
    StdioPlan(StdioPlan &&) = default;
    StdioPlan &operator=(StdioPlan &&) = default;
    static StdioPlan open(const JobSpec &job, const std::vector<WorkerSpec> &workers);

    std::vector<WorkerStdio> workers;
    std::string directory;          // of the attempt; "" if no files
    std::array<os::Fd, 2> filtered; // filtered_stdout.log, filtered_stderr.log, where there are filters
    /// The workers have started: points the link "latest" in the log directory to this attempt.
    void publish();
    /// Takes away what open() made, for a job that could not be started; so does the destructor.
    void undo() noexcept;

  private:
    std::vector<std::string> made_; // files and directories, in order
    os::Fd top_;
    std::string latest_; // what the link points to
};

} // namespace ujoin
