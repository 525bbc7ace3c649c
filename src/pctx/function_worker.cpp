// SPDX-License-Identifier: Apache-2.0
// Inside a function worker.
#include "pctx/function_worker.hpp"
#include "base/callback.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "os/spawn.hpp"
#include "os/warden_server.hpp"
#include "pctx/error_file.hpp"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <exception>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>

namespace ujoin {
namespace {

struct Function {
    ujoin_worker_fn fn = nullptr;
    void *user_data = nullptr;
    ujoin_destroy_fn destroy = nullptr;
};

struct Registry {
    std::mutex mutex;
    std::map<std::string, Function> functions;
    bool is_worker = false; // a function of this process runs as a worker
    bool returned = false;
    int answer_fd = -1;
};

/// Lives as long as the process: a worker's function may run until its end.
Registry &registry() {
    static auto *one = new Registry;
    return *one;
}

Function find_function(const std::string &name) {
    if (const size_t colon = name.rfind(':'); colon != std::string::npos) {
        void *library = dlopen(name.substr(0, colon).c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (!library) fail_invalid("cannot load the library of the function ", name, ": ", dlerror());
        Function function;
        function.fn = reinterpret_cast<ujoin_worker_fn>(dlsym(library, name.c_str() + colon + 1));
        if (!function.fn) fail_invalid("the library of the function ", name, " has no such symbol");
        return function;
    }
    std::scoped_lock lock(registry().mutex);
    const auto found = registry().functions.find(name);
    if (found != registry().functions.end()) return found->second;
    std::vector<std::string> known;
    for (const auto &entry : registry().functions) known.push_back(entry.first);
    fail_invalid("no function \"", name,
                 "\" is registered in the worker; known are: ", known.empty() ? std::string("none") : join_list(known),
                 "; register before pctx_worker_main");
}

/// Writes the answer, its head last, so that half an answer is none.
void write_answer(AnswerState state, const void *data, size_t size) {
    const char *from = static_cast<const char *>(data);
    const int answer_fd = registry().answer_fd;
    if (ftruncate(answer_fd, static_cast<off_t>(16 + size)) != 0) fail_errno(errno, "cannot return a value");
    for (size_t at = 0; at < size;) {
        const ssize_t done = pwrite(answer_fd, from + at, size - at, static_cast<off_t>(16 + at));
        if (done < 0 && errno != EINTR) fail_errno(errno, cat("cannot return a value of ", size, " bytes"));
        if (done > 0) at += static_cast<size_t>(done);
    }
    const int64_t head[2] = {static_cast<int64_t>(state), static_cast<int64_t>(size)};
    if (pwrite(answer_fd, head, sizeof head, 0) != sizeof head) fail_errno(errno, "cannot return a value");
}

struct Outcome {
    ujoin_status status = UJOIN_OK;
    std::string text; // of a failure
    bool thrown = false;
};

template <class Fn> Outcome run_caught(Fn &&fn) {
    Outcome outcome;
    try {
        outcome.status = fn();
    } catch (const abi::__forced_unwind &) { // the thread is cancelled: not ours to stop
        throw;
    } catch (const std::exception &error) {
        outcome = {UJOIN_E_CALLBACK, exception_text(error.what()), true};
    } catch (...) {
        outcome = {UJOIN_E_CALLBACK, exception_text(nullptr), true};
    }
    if (outcome.status < 0 && !outcome.thrown) outcome.text = last_error().text;
    if (outcome.status < 0 && outcome.text.empty()) outcome.text = status_name(outcome.status);
    return outcome;
}

struct ChildFailure {
    std::string file;
    int32_t code = 0;
};
thread_local ChildFailure t_child_failure;

/// What the program has recorded itself.
struct Record {
    std::string message;
    std::string callstack;
    int32_t code = 0;
};
thread_local Record t_recorded;

/// Who records a failure and then returns it has said more: the record has a traceback, the status a text alone.
bool has_recorded(const Outcome &outcome) {
    const std::string &told = t_recorded.message;
    if (told.empty()) return false;
    return outcome.text.find(told) != std::string::npos || told.find(outcome.text) != std::string::npos;
}

/// A failure that is not only a child's: what the launcher can show.
void leave_failure(const Outcome &outcome) {
    const bool recorded = has_recorded(outcome);
    if (!own_error_file().empty()) {
        if (!recorded) record_error(outcome.text, "", 0);
        return;
    }
    const Record what = recorded ? t_recorded : Record{outcome.text, "", 0};
    const std::string record = make_error(what.message, what.callstack, what.code);
    write_answer(AnswerState::failed, record.data(), record.size());
}

} // namespace

void register_function(const char *name, ujoin_worker_fn fn, void *user_data, ujoin_destroy_fn destroy) {
    if (!name || !*name) fail_invalid("name is ", name ? "empty" : "NULL");
    if (std::strchr(name, ':')) fail_invalid("name is \"", name, "\"; a \":\" is for functions of libraries");
    if (!fn) fail_invalid("fn is NULL");
    std::scoped_lock lock(registry().mutex);
    if (!registry().functions.try_emplace(name, Function{fn, user_data, destroy}).second)
        fail_invalid("the function name \"", name, "\" is taken");
}

int run_function_worker(const CallFiles &files) {
    fcntl(files.call, F_SETFD, FD_CLOEXEC); // a child of the function's would keep them
    fcntl(files.answer, F_SETFD, FD_CLOEXEC);
    {
        std::scoped_lock lock(registry().mutex);
        registry().is_worker = true;
        registry().returned = false;
        registry().answer_fd = files.answer;
    }
    const FunctionCall call = unpack_call(files.call);
    Outcome outcome = run_caught([&] {
        const Function function = find_function(call.function);
        std::vector<const char *> args;
        for (const std::string &arg : call.args) args.push_back(arg.c_str());
        ujoin_worker_args told{};
        told.size = sizeof told;
        told.args = args.data();
        told.arg_count = args.size();
        told.input = call.input.empty() ? nullptr : call.input.data();
        told.input_size = call.input.size();
        told.rank = call.rank;
        told.nprocs = call.nprocs;
        last_error() = {};
        t_recorded = {};
        return function.fn(function.user_data, &told);
    });
    std::fflush(nullptr);
    if (outcome.status >= 0) {
        bool returned = false;
        {
            std::scoped_lock lock(registry().mutex);
            returned = registry().returned;
        }
        if (!returned)
            write_answer(AnswerState::returned, nullptr, 0);
        else if (const int64_t state = static_cast<int64_t>(AnswerState::returned);
                 pwrite(files.answer, &state, sizeof state, 0) != sizeof state)
            fail_errno(errno, "cannot return a value");
        return 0;
    }
    std::fprintf(stderr, "worker %d failed: %s\n", call.rank, outcome.text.c_str());
    leave_failure(outcome);
    return 1;
}

void return_value(const void *data, size_t size) {
    if (!data && size > 0) fail_invalid("data is NULL, but size is ", size);
    std::scoped_lock lock(registry().mutex);
    if (!registry().is_worker) fail_state("this process runs no function of a launcher's");
    if (registry().returned) fail_state("the function has returned a value before");
    write_answer(AnswerState::none, data, size); // counts when the function has ended well
    registry().returned = true;
}

bool is_unpassed_worker() { return env::text(env::Var::worker).has_value(); }

ujoin_status worker_main(int32_t &exit_code) {
    const std::optional<std::string> kind = env::text(env::Var::worker);
    if (!kind) return UJOIN_OK;
    exit_code = 1;
    unsetenv(env::name(env::Var::worker)); // NOLINT(concurrency-mt-unsafe): the first thing in main
    if (*kind == worker_is_forkserver) {
        if (!os::warden::is_started_by_launcher()) fail_state("this process was not started by a launcher");
        os::warden::serve([](const os::SpawnRequest &request) {
            return os::spawn_copy(request, [&request] {
                try {
                    return run_function_worker(call_files(request));
                } catch (const std::exception &error) {
                    std::fprintf(stderr, "function worker: %s\n", error.what());
                    return 1;
                }
            });
        });
        exit_code = 0;
        return UJOIN_DONE;
    }
    CallFiles files;
    const size_t length = std::strlen(worker_is_function);
    if (kind->compare(0, length, worker_is_function) != 0 ||
        std::sscanf(kind->c_str() + length, "%d:%d", &files.call, &files.answer) != 2)
        fail_invalid("UJOIN_WORKER is \"", *kind, "\"; it is set by launchers only");
    exit_code = run_function_worker(files);
    return UJOIN_DONE;
}

void record_error(const std::string &message, const std::string &callstack, int32_t code) {
    t_recorded = {message, callstack, code};
    const std::string path = own_error_file();
    if (path.empty()) return;
    try {
        write_whole_file(path, make_error(message, callstack, code));
    } catch (const Error &error) {
        log_warning(error.text()); // the worker's own failure counts
    }
}

void note_child_failure(const std::string &error_file, int32_t code) { t_child_failure = {error_file, code}; }

ujoin_status record_failure(ujoin_call_fn fn, void *user_data) {
    t_child_failure = {};
    t_recorded = {};
    Outcome outcome = run_caught([&] { return fn(user_data); });
    if (outcome.status >= 0) return outcome.status;
    try {
        if (outcome.status == UJOIN_E_CHILD_FAILED) {
            copy_error_file(t_child_failure.file, t_child_failure.code);
        } else if (!has_recorded(outcome)) {
            record_error(outcome.text, "", 0);
        }
    } catch (const std::bad_alloc &) {
        log_warning("a failure was not recorded: out of memory"); // it counts itself
    }
    if (outcome.thrown) throw Error(outcome.status, outcome.text);
    return outcome.status; // whose text is there already
}

} // namespace ujoin
