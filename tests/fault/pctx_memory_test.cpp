// SPDX-License-Identifier: Apache-2.0
// Process contexts without memory: on the thread that calls, on the library's own, and while a failure is recorded. Whatever
// happens ends as a status, leaves no process, and no files of a job that did not start.
#include "fault/shortage.hpp"
#include "harness/pctx_kit.hpp"
#include <array>
#include <utility>

using namespace pctx_kit;

namespace {

/// Two workers: one fails and leaves a record, the other one is told to end.
class Launch {
  public:
    Launch(const Folder &folder, ujoin_containment containment)
        : logs_(folder.file("logs of all attempts")), run_(next_run()) {
        spec_.size = sizeof spec_;
        spec_.program = program_.c_str();
        spec_.nprocs = 2;
        spec_.args = args_.data();
        spec_.arg_count = args_.size();
        spec_.log_dir = logs_.c_str();
        spec_.run_id = run_.c_str();
        spec_.tee = UJOIN_STD_ERR;
        spec_.containment = containment;
        spec_.output = [](void *, int32_t, ujoin_std, const char *, size_t) { return ujoin_status{UJOIN_OK}; };
    }
    ~Launch() { pctx_destroy(pctx_); }
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;

    ujoin_status create() { return pctx_create(&spec_, &pctx_); }
    ujoin_status name_rank(int32_t rank) { return pctx_set_env(pctx_, rank, "RANK", rank == 0 ? "0" : "1"); }
    ujoin_status let_all_run() { return pctx_set_env(pctx_, -1, "RANK", "1"); }
    ujoin_status describe() {
        ujoin_worker worker{};
        worker.size = sizeof worker;
        worker.args = args_.data();
        worker.arg_count = args_.size();
        return pctx_set_worker(pctx_, 1, &worker);
    }
    ujoin_status start() { return pctx_start(pctx_); }
    /// UJOIN_OK: a worker has failed, as it should.
    ujoin_status wait() {
        const ujoin_status status = pctx_wait(pctx_, at_most(10'000));
        return status == UJOIN_E_CHILD_FAILED ? UJOIN_OK : status == UJOIN_OK ? UJOIN_E_INTERNAL : status;
    }
    ujoin_status look() {
        for (int32_t rank = 0; rank < 2; rank++) {
            ujoin_worker_result result{};
            result.size = sizeof result;
            ujoin_worker_health health{};
            health.size = sizeof health;
            if (const ujoin_status status = pctx_get_result(pctx_, rank, &result); status < 0) return status;
            if (const ujoin_status status = pctx_health(pctx_, rank, &health); status < 0) return status;
        }
        return pctx_failed(pctx_) >= 0 && pctx_first_failure(pctx_) >= -1 ? UJOIN_OK : UJOIN_E_INTERNAL;
    }
    ujoin_status report() { return pctx_report(pctx_) ? UJOIN_OK : UJOIN_E_NO_MEMORY; }
    ujoin_status json() { return pctx_report_json(pctx_) ? UJOIN_OK : UJOIN_E_NO_MEMORY; }
    ujoin_status signal() {
        const ujoin_status status = pctx_signal(pctx_, -1, SIGCONT);
        return status < 0 ? status : pctx_stop(pctx_);
    }
    ujoin_status close() { return pctx_close(pctx_, 0, at_most(10'000)); }
    ujoin_status destroy() {
        pctx_destroy(std::exchange(pctx_, nullptr));
        return UJOIN_OK;
    }

    /// The processes of those that are there; before the end, for afterwards.
    void note_pids() {
        for (int32_t rank = 0; rank < 2; rank++) {
            ujoin_worker_result result{};
            result.size = sizeof result;
            ASSERT_EQ(pctx_get_result(pctx_, rank, &result), UJOIN_OK) << ujoin_last_error();
            pids_[static_cast<size_t>(rank)] = result.pid;
            running_ = running_ || result.state == UJOIN_WORKER_RUNNING;
        }
    }
    bool running() const { return running_; }
    void expect_no_process() const {
        for (const pid_t pid : pids_)
            EXPECT_TRUE(pid == 0 || eventually([&] { return !exists(pid); })) << pid << " is left";
    }
    bool has_files() const { return std::filesystem::exists(logs_ + "/" + run_); }

  private:
    static std::string next_run() {
        static int number = 0;
        return "run-" + std::to_string(number++);
    }

    const std::string logs_;
    const std::string run_;
    const std::string program_ = helper();
    const std::array<const char *, 5> args_ = {"out=a line that is longer than a string holds\\n",
                                               "err=and one for the console\\n", "0:record=a message for the record",
                                               "0:exit=3", "1:forever"};
    ujoin_pctx_spec spec_{};
    ujoin_pctx *pctx_ = nullptr;
    std::array<pid_t, 2> pids_{};
    bool running_ = false;
};

/// The tests' own environment is large, and a plan copies it variable by variable.
void keep_few_variables() {
    std::vector<std::pair<std::string, std::string>> kept;
    for (const char *name : {"PATH", "TMPDIR", "UJOIN_TEST_ID", "UJOIN_LIBEXEC_DIR", "LD_LIBRARY_PATH", "ASAN_OPTIONS",
                             "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})
        if (const char *value = std::getenv(name)) kept.emplace_back(name, value);
    clearenv();
    for (const auto &[name, value] : kept) setenv(name.c_str(), value.c_str(), 1);
}

class PctxMemory : public testing::TestWithParam<ujoin_containment> {};
INSTANTIATE_TEST_SUITE_P(Held, PctxMemory, testing::Values(UJOIN_CONTAINMENT_GROUP, UJOIN_CONTAINMENT_WARDEN),
                         [](const auto &of) { return of.param == UJOIN_CONTAINMENT_GROUP ? "group" : "warden"; });

TEST_P(PctxMemory, ERRORS_04_runs_out_in_calls) {
    keep_few_variables();
    const Folder folder;
    at_each_allocation(
        [&](Shortage &memory) {
            Launch job(folder, GetParam());
            if (!memory.ok([&] { return job.create(); })) return;
            memory.ok([&] { return job.name_rank(0); });
            memory.ok([&] { return job.name_rank(1); });
            memory.ok([&] { return job.describe(); });
            if (memory.over() || !memory.ok([&] { return job.start(); })) {
                EXPECT_FALSE(job.has_files());
                return;
            }
            job.note_pids();
            memory.ok([&] { return job.signal(); });
            memory.ok([&] { return job.look(); });
            memory.ok([&] { return job.wait(); });
            memory.ok([&] { return job.look(); });
            memory.ok([&] { return job.report(); });
            memory.ok([&] { return job.json(); });
            memory.ok([&] { return job.close(); });
            memory.ok([&] { return job.destroy(); });
            job.expect_no_process();
        },
        {60, 7});
}

/// Only the thread that ends the job lacks memory, and there is nothing more to say: the job ends all the same.
TEST_P(PctxMemory, ERRORS_04_runs_out_where_a_job_is_ended) {
    keep_few_variables();
    const Folder folder;
    const auto close = [](Launch &job) { return job.close(); };
    const auto destroy = [](Launch &job) { return job.destroy(); };
    for (const std::function<ujoin_status(Launch &)> &end : {std::function(close), std::function(destroy)}) {
        Launch job(folder, GetParam());
        ASSERT_PCTX_OK(job.create());
        ASSERT_PCTX_OK(job.let_all_run());
        ASSERT_PCTX_OK(job.start());
        job.note_pids();
        EXPECT_TRUE(job.running());
        t_shortage = {0};
        const ujoin_status status = end(job);
        t_shortage.left = -1;
        EXPECT_TRUE(status == UJOIN_OK || status == UJOIN_E_NO_MEMORY) << ujoin_last_error();
        job.expect_no_process();
    }
}

/// On the threads that start the workers, wait for them, read their output and write to the console.
TEST_P(PctxMemory, ERRORS_04_runs_out_on_the_threads_of_a_job) {
    keep_few_variables();
    const Folder folder;
    t_spared = true;
    ShortageOfOthers &memory = g_shortage_of_others;
    const Thinned which{100, 7};
    for (const bool only_once : {true, false}) {
        int started = 0;
        for (int64_t at = 0;; at = which.after(at)) {
            Launch job(folder, GetParam());
            ASSERT_PCTX_OK(job.create());
            ASSERT_PCTX_OK(job.name_rank(0));
            ASSERT_PCTX_OK(job.name_rank(1));
            memory.came = false;
            memory.only_once = only_once;
            memory.left = at;
            ujoin_status status = job.start();
            EXPECT_EQ(job.has_files(), status == UJOIN_OK);
            if (status == UJOIN_OK) {
                started++;
                job.note_pids();
                status = job.wait();
                if (status != UJOIN_OK) {
                    EXPECT_NE(std::string(ujoin_last_error()).find("out of memory"), std::string::npos);
                    EXPECT_EQ(job.close(), UJOIN_OK) << ujoin_last_error();
                }
            }
            EXPECT_TRUE(status == UJOIN_OK || status == UJOIN_E_NO_MEMORY)
                << ujoin_status_name(status) << ": " << ujoin_last_error();
            job.destroy();
            job.expect_no_process();
            memory.left = -1;
            ASSERT_FALSE(HasFailure()) << "allocation " << at << (only_once ? ", once" : ", for good");
            if (!memory.came) break;
        }
        EXPECT_GT(started, 1);
    }
}

/// A failure is recorded, or the call says why not; what was recorded before stays whole until then.
TEST(PctxMemory, ERRORS_04_runs_out_while_a_failure_is_recorded) {
    const Folder folder;
    const std::string path = folder.file("a file for the record of a failure.json");
    setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
    const auto fails = [](void *) { return ujoin_set_last_error(UJOIN_E_STATE, "a failure with a text of some length"); };
    at_each_allocation([&](Shortage &memory) {
        memory.ok([&] {
            const ujoin_status status = pctx_record(fails, nullptr);
            return status == UJOIN_E_STATE ? UJOIN_OK : status;
        });
        memory.ok([] { return pctx_record_error("a message of some length", "a traceback that is longer still", 7); });
        EXPECT_EQ(pctx_record_error("whole", "", 0), UJOIN_OK) << ujoin_last_error();
        EXPECT_NE(read_file(path).find("\"whole\""), std::string::npos);
        size_t files = 0;
        for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder.path)) files++;
        EXPECT_EQ(files, 1U) << "half a file is left";
    });
    unsetenv("TORCHELASTIC_ERROR_FILE");
}

} // namespace
