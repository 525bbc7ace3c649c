// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include "os/spawn.hpp"
#include "ujoin.h"
#include <string>
#include <vector>

// Workers that run a function of the program. Launcher and worker share two files in memory: the worker reads its *call* from
// one descriptor and leaves its *answer* in another. So a value of any size waits for nobody.
namespace ujoin {

inline constexpr const char *worker_is_function = "function:";    // values of UJOIN_WORKER; here two numbers follow, "3:4"
inline constexpr const char *worker_is_forkserver = "forkserver"; //

/// The descriptors of call and answer inside the worker.
struct CallFiles {
    int call = 3;
    int answer = 4;
};
/// The lowest two from 3 on that the program does not want for its own.
CallFiles call_files(const std::vector<ujoin_worker_fd> &wanted);
/// Those of a request for a function worker: they come after the standard streams.
CallFiles call_files(const os::SpawnRequest &request);

/// What a worker is to run.
struct FunctionCall {
    std::string function; // a registered name, or library:symbol
    std::vector<std::string> args;
    std::string input;
    int32_t rank = 0;
    int32_t nprocs = 0;
};

os::Fd pack_call(const FunctionCall &call);
FunctionCall unpack_call(int fd);

enum class AnswerState : int64_t { none = 0, returned = 1, failed = 2 };

/// What a worker left, mapped: `data` is its value, or the JSON of its failure.
class Answer {
  public:
    Answer() = default;
    explicit Answer(int fd);
    ~Answer();
    Answer(Answer &&other) noexcept;
    Answer &operator=(Answer &&other) noexcept;
    Answer(const Answer &) = delete;
    Answer &operator=(const Answer &) = delete;

    AnswerState state() const { return state_; }
    const void *data() const { return size_ > 0 ? data_ : nullptr; }
    size_t size() const { return size_; }

  private:
    AnswerState state_ = AnswerState::none;
    void *map_ = nullptr;
    size_t map_size_ = 0;
    const char *data_ = nullptr;
    size_t size_ = 0;
};

os::Fd make_answer();

/// Registers; UJOIN_E_INVALID if the name is taken or cannot be one. Owns user_data only if it succeeds.
void register_function(const char *name, ujoin_worker_fn fn, void *user_data, ujoin_destroy_fn destroy);

/// Runs the call in this process, a worker. Returns the exit code.
int run_function_worker(const CallFiles &files);
/// The value of this worker's function. UJOIN_E_STATE: this is none, or it has returned one.
void return_value(const void *data, size_t size);

/// The first thing in main: UJOIN_OK: no worker; UJOIN_DONE: has run. Throws if it is one that cannot run.
ujoin_status worker_main(int32_t &exit_code);
/// This process is a worker, but has not come to worker_main.
bool is_unpassed_worker();

/// Runs `fn` and records its failure in this process's error file (pctx_record). Returns its status.
ujoin_status record_failure(ujoin_call_fn fn, void *user_data);
/// Leaves a record; what goes wrong is a warning.
void record_error(const std::string &message, const std::string &callstack, int32_t code);
/// On this thread pctx_wait has just told of a worker's failure: its file and code, for record_failure.
void note_child_failure(const std::string &error_file, int32_t code);

} // namespace ujoin
