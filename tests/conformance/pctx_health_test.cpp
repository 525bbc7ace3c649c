// SPDX-License-Identifier: Apache-2.0
// What a launcher is told of its workers: pctx_health, and ujoin-run's lines on SIGQUIT.
#include "harness/launch.hpp"
#include "harness/pctx_kit.hpp"
#include <set>

using harness::Launch;
using namespace pctx_kit;

namespace {

/// A job of health_worker whose ranks can meet; killed at the end.
class HealthJob {
  public:
    explicit HealthJob(int nprocs, std::vector<std::string> commands) : job_(nprocs, std::move(commands)) {
        program_ = helper("health_worker");
        job_.spec.program = program_.c_str();
        job_.spec.grace_ms = UJOIN_NOW;
    }
    ~HealthJob() {
        if (job_.handle) pctx_close(job_.handle, SIGKILL, 0);
    }
    void create() {
        ASSERT_PCTX_OK(job_.create());
        const std::string size = std::to_string(job_.spec.nprocs);
        const std::string run = harness::unique("health");
        for (const auto &[name, value] : {std::pair{"WORLD_SIZE", size},
                                          {"LOCAL_WORLD_SIZE", size},
                                          {"TORCHELASTIC_RUN_ID", run},
                                          {"HEALTH_DIR", folder_.path.string()}})
            ASSERT_PCTX_OK(pctx_set_env(job_.handle, -1, name, value.c_str()));
    }
    void start() {
        create();
        ASSERT_PCTX_OK(pctx_start(job_.handle));
    }
    ujoin_worker_health look(int32_t rank) const {
        ujoin_worker_health out{};
        out.size = sizeof out;
        EXPECT_EQ(pctx_health(job_.handle, rank, &out), UJOIN_OK) << ujoin_last_error();
        return out;
    }
    bool wait_for_mark(const std::string &name) const {
        return harness::eventually([&] { return std::filesystem::exists(folder_.path / name); });
    }
    /// Until that rank of "hang" waits in its fourth operation.
    bool wait_until_hung(int32_t rank) const {
        return harness::eventually([&] {
            const ujoin_worker_health health = look(rank);
            return health.sequence == 4 && *health.waiting_for != '\0';
        });
    }
    Job &job() { return job_; }

  private:
    Folder folder_;
    Job job_;
    std::string program_;
};

std::vector<int32_t> missing(const ujoin_worker_health &health) {
    return {health.missing, health.missing + health.missing_count};
}
bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }
int64_t realtime_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

} // namespace

TEST(PctxHealth, names_the_operation_and_whom_it_waits_for) {
    HealthJob job(4, {"hang", "grads"});
    const int64_t before = realtime_ns();
    job.start();
    for (int32_t rank = 0; rank < 3; rank++) {
        ASSERT_TRUE(job.wait_until_hung(rank));
        ASSERT_TRUE(harness::eventually([&] { return missing(job.look(rank)) == std::vector<int32_t>{3}; })) << rank;
        const ujoin_worker_health health = job.look(rank);
        EXPECT_STREQ(health.operation, "all_reduce");
        EXPECT_STREQ(health.waiting_for, "all_reduce(sum, f32, 7)");
        EXPECT_STREQ(health.group, "grads");
        EXPECT_EQ(health.sequence, 4);
        EXPECT_EQ(health.in_operation, 1);
        EXPECT_EQ(health.in_context, 0);
        EXPECT_EQ(health.joined, 0);
        EXPECT_EQ(health.broken, 0);
        EXPECT_EQ(health.round, -1);
        EXPECT_EQ(health.state, UJOIN_WORKER_RUNNING);
        EXPECT_EQ(health.rank, rank);
        EXPECT_EQ(health.group_rank, rank);
        EXPECT_EQ(health.group_size, 4);
        EXPECT_EQ(health.groups, 1);
        EXPECT_EQ(health.pid, job.job().result(rank).pid);
        EXPECT_EQ(health.group_pid, health.pid);
        EXPECT_GE(health.since_ns, before - 20'000'000) << "a coarse clock, but not another one";
        EXPECT_LE(health.since_ns, realtime_ns());
        EXPECT_TRUE(contains(health.text, "rank " + std::to_string(rank) + " (pid " + std::to_string(health.pid) +
                                              "): in all_reduce(sum, f32, 7), operation 4, for "))
            << health.text;
        EXPECT_TRUE(contains(health.text, "; waits for rank 3 (group \"grads\")")) << health.text;
    }
    ASSERT_TRUE(job.wait_for_mark("idle.3"));
    const ujoin_worker_health late = job.look(3);
    EXPECT_EQ(late.sequence, 3);
    EXPECT_EQ(late.in_operation, 0);
    EXPECT_STREQ(late.waiting_for, "");
    EXPECT_EQ(late.missing_count, 0U);
    EXPECT_TRUE(contains(late.text, "between operations, after operation 3, for ")) << late.text;
}

TEST(PctxHealth, tells_rounds_and_who_has_joined) {
    HealthJob job(2, {"join"});
    job.start();
    ASSERT_TRUE(job.wait_for_mark("idle.0"));
    ASSERT_TRUE(harness::eventually([&] {
        return contains(job.look(1).waiting_for, "rank 0 to begin use 3 or to join in join context 1");
    })) << job.look(1).text;
    const ujoin_worker_health joined = job.look(1);
    EXPECT_EQ(joined.in_context, 1);
    EXPECT_EQ(joined.joined, 1);
    EXPECT_EQ(joined.round, 3) << "two of its own and one for rank 0";
    EXPECT_EQ(joined.in_operation, 0);
    EXPECT_EQ(missing(joined), std::vector<int32_t>{0});
    EXPECT_TRUE(contains(joined.text, ", waits for rank 0 to begin use 3")) << joined.text;
    EXPECT_TRUE(contains(joined.text, ", round 3, joined, for ")) << joined.text;
    const ujoin_worker_health running = job.look(0);
    EXPECT_EQ(running.in_context, 1);
    EXPECT_EQ(running.joined, 0);
    EXPECT_EQ(running.round, 3);
}

TEST(PctxHealth, of_several_groups_the_one_that_waits) {
    HealthJob job(2, {"many"});
    job.start();
    ASSERT_TRUE(job.wait_for_mark("idle.1") && job.wait_for_mark("enters.0"));
    ASSERT_TRUE(harness::eventually([&] { return std::string(job.look(0).group) == "third"; })) << job.look(0).text;
    EXPECT_STREQ(job.look(0).operation, "barrier");
    EXPECT_EQ(job.look(0).groups, 4) << "the fifth has no line";
    EXPECT_STREQ(job.look(1).group, "first") << "none waits";
    EXPECT_EQ(job.look(1).sequence, 1);
}

TEST(PctxHealth, of_a_worker_without_a_group_its_state) {
    HealthJob job(2, {"none"});
    job.create();
    EXPECT_EQ(job.look(0).state, UJOIN_WORKER_CREATED);
    EXPECT_EQ(job.look(0).pid, 0);
    EXPECT_STREQ(job.look(1).text, "rank 1: not started");
    ASSERT_PCTX_OK(pctx_start(job.job().handle));
    ASSERT_TRUE(job.wait_for_mark("idle.0"));
    const ujoin_worker_health health = job.look(0);
    EXPECT_EQ(health.state, UJOIN_WORKER_RUNNING);
    EXPECT_EQ(health.group_rank, -1);
    EXPECT_EQ(health.round, -1);
    EXPECT_STREQ(health.operation, "");
    EXPECT_STREQ(health.waiting_for, "");
    EXPECT_STREQ(health.group, "");
    EXPECT_EQ(std::string(health.text), "rank 0 (pid " + std::to_string(health.pid) + "): no group");
}

TEST(PctxHealth, a_group_that_is_gone_is_not_told_of) {
    HealthJob job(2, {"leave"});
    job.start();
    ASSERT_TRUE(job.wait_for_mark("left.0"));
    EXPECT_TRUE(harness::eventually([&] { return job.look(0).group_rank == -1; })) << job.look(0).text;
}

TEST(PctxHealth, a_dead_worker_keeps_what_it_was_doing) {
    HealthJob job(2, {"hang"});
    job.start();
    ASSERT_TRUE(job.wait_until_hung(0));
    ASSERT_PCTX_OK(pctx_signal(job.job().handle, 0, SIGKILL));
    EXPECT_EQ(pctx_wait(job.job().handle, -1), UJOIN_E_CHILD_FAILED);
    const ujoin_worker_health dead = job.look(0);
    EXPECT_EQ(dead.state, UJOIN_WORKER_SIGNALED);
    EXPECT_EQ(dead.sequence, 4);
    EXPECT_TRUE(contains(dead.text, "died of SIGKILL")) << dead.text;
    EXPECT_TRUE(contains(dead.text, " ago; it was in all_reduce(sum, f32, 7), operation 4, for ")) << dead.text;
    EXPECT_TRUE(contains(pctx_report(job.job().handle), "doing     : in all_reduce(sum, f32, 7), operation 4"))
        << pctx_report(job.job().handle);
}

TEST(PctxHealth, nonsense_of_a_worker_harms_nobody) {
    HealthJob job(3, {"lie"});
    job.start();
    ASSERT_TRUE(job.wait_for_mark("lies.0") && job.wait_for_mark("lies.1"));
    for (int i = 0; i < 2'000; i++) {
        const ujoin_worker_health health = job.look(i % 3);
        EXPECT_EQ(health.state, UJOIN_WORKER_RUNNING);
        EXPECT_LE(health.missing_count, 1024U);
        for (size_t m = 0; m < health.missing_count; m++) ASSERT_LT(static_cast<uint32_t>(health.missing[m]), 1024U);
        for (const char *text : {health.operation, health.waiting_for, health.group, health.text})
            for (const char *c = text; *c; c++) ASSERT_TRUE(*c >= ' ' && *c <= '~') << static_cast<int>(*c);
        EXPECT_LE(health.since_ns, realtime_ns());
    }
    EXPECT_EQ(pctx_close(job.job().handle, SIGKILL, 0), UJOIN_OK);
}

TEST(PctxHealth, its_errors) {
    HealthJob job(1, {"none"});
    job.create();
    ujoin_worker_health out{};
    out.size = sizeof out;
    EXPECT_EQ(pctx_health(job.job().handle, 1, &out), UJOIN_E_INVALID);
    EXPECT_TRUE(contains(ujoin_last_error(), "rank is 1; expected 0 to 0"));
    EXPECT_EQ(pctx_health(job.job().handle, -1, &out), UJOIN_E_INVALID);
    EXPECT_EQ(pctx_health(job.job().handle, 0, nullptr), UJOIN_E_INVALID);
    EXPECT_EQ(pctx_health(nullptr, 0, &out), UJOIN_E_INVALID);
    out.size = 0;
    EXPECT_EQ(pctx_health(job.job().handle, 0, &out), UJOIN_E_INVALID);
}

TEST(PctxHealth, is_told_while_another_thread_waits) {
    HealthJob job(2, {"hang"});
    job.start();
    std::thread waiting([&] { EXPECT_EQ(pctx_wait(job.job().handle, -1), UJOIN_E_ABORTED); });
    EXPECT_TRUE(job.wait_until_hung(0));
    pctx_abort(job.job().handle);
    waiting.join();
}

namespace {

std::set<std::string> with_prefix(const std::string &text, const std::string &prefix) {
    std::set<std::string> found;
    for (const std::string &line : split_lines(text))
        if (line.rfind(prefix, 0) == 0) found.insert(line);
    return found;
}

/// ujoin-run with workers that hang.
struct HungLaunch {
    Folder folder;
    std::unique_ptr<Launch> launch;
    explicit HungLaunch(const std::vector<std::string> &options) {
        std::vector<std::string> argv{harness::built("bin/ujoin-run"), "--standalone", "--nproc-per-node", "3"};
        argv.insert(argv.end(), options.begin(), options.end());
        argv.insert(argv.end(), {harness::built("tests/bin/health_worker"), "hang"});
        launch = std::make_unique<Launch>(
            argv, Launch::Variables{{"HEALTH_DIR", folder.path.string()}, {"RANK", ""}, {"WORLD_SIZE", ""}});
    }
    bool hangs() const {
        return harness::eventually([&] {
            return std::filesystem::exists(folder.path / "idle.2") && std::filesystem::exists(folder.path / "enters.0") &&
                   std::filesystem::exists(folder.path / "enters.1");
        });
    }
};

} // namespace

TEST(PctxHealth, SIGQUIT_prints_a_line_for_each_rank_and_the_job_goes_on) {
    HungLaunch hung({});
    ASSERT_TRUE(hung.hangs());
    const auto seen = [&] {
        return contains(hung.launch->err(), "rank 0") &&
               contains(hung.launch->err(), "in all_reduce(sum, f32, 7), operation 4, for ") &&
               contains(hung.launch->err(), "; waits for rank 2");
    };
    for (int i = 0; i < 50 && !seen(); i++) { // a rank that has just entered does not wait yet
        const size_t before = with_prefix(hung.launch->err(), "ujoin-run: rank ").size();
        hung.launch->signal(SIGQUIT);
        ASSERT_TRUE(
            harness::eventually([&] { return with_prefix(hung.launch->err(), "ujoin-run: rank ").size() > before; }));
    }
    EXPECT_TRUE(seen()) << hung.launch->err();
    EXPECT_TRUE(contains(hung.launch->err(), "ujoin-run: rank 2 (pid ")) << hung.launch->err();
    EXPECT_TRUE(contains(hung.launch->err(), "between operations, after operation 3")) << hung.launch->err();
    hung.launch->signal(SIGTERM);
    EXPECT_EQ(hung.launch->wait(), 128 + SIGTERM) << "QUIT had ended nobody: " << hung.launch->err();
}

TEST(PctxHealth, SIGQUIT_ends_the_job_too_where_it_is_named) {
    HungLaunch hung({"--signals-to-handle", "SIGTERM,SIGQUIT"});
    ASSERT_TRUE(hung.hangs());
    hung.launch->signal(SIGQUIT);
    EXPECT_EQ(hung.launch->wait(), 128 + SIGQUIT) << hung.launch->err();
    EXPECT_EQ(with_prefix(hung.launch->err(), "ujoin-run: rank ").size(), 3U) << hung.launch->err();
}
