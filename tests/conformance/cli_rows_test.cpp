// SPDX-License-Identifier: Apache-2.0
#include "harness/cli_kit.hpp"
#include <chrono>
#include <sched.h>
#include <sys/stat.h>
#include <thread>

using namespace cli_kit;

namespace {

using CliRows = Cli;

} // namespace

TEST_F(CliRows, R_01_four_workers_with_the_parents_environment) {
    const auto job = run({"--nproc-per-node", "4", worker_, "env"}, {{"FOO", "BAR"}});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3}));
    for (int rank = 0; rank < 4; rank++) {
        EXPECT_TRUE(has(environment(rank), "FOO=BAR"));
        EXPECT_TRUE(has(environment(rank), "RANK=" + std::to_string(rank)));
    }
}

TEST_F(CliRows, R_03_no_python_excludes_module) {
    const auto job = run({"--no-python", worker_, "env"});
    EXPECT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(ranks("env"), std::set<int>{0});
    const auto both = run({"--no-python", "--module", worker_, "env"});
    EXPECT_EQ(both->wait(), 2);
    EXPECT_NE(both->err().find("--no-python"), std::string::npos);
}

TEST_F(CliRows, R_04_one_worker_by_default) {
    const auto job = run({worker_, "env"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(ranks("env"), std::set<int>{0});
    for (const char *variable : {"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "LOCAL_WORLD_SIZE=1"})
        EXPECT_TRUE(has(environment(0), variable)) << variable;
}

TEST_F(CliRows, R_06_auto_is_one_worker_per_processor) {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    for (const auto *word : {"auto", "cpu"}) {
        const auto job = run({"--nproc-per-node", word, worker_, "env"});
        ASSERT_EQ(job->wait(), 0) << job->err();
        EXPECT_EQ(static_cast<int>(ranks("env").size()), CPU_COUNT(&set));
    }
}

TEST_F(CliRows, R_07_number_of_workers_in_both_spellings) {
    for (const Args &option : {Args{"--nproc-per-node", "4"}, {"--nproc_per_node=4"}}) {
        Args args = option;
        args.insert(args.end(), {worker_, "env"});
        const auto job = run(args);
        ASSERT_EQ(job->wait(), 0) << job->err();
        EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3}));
        for (int rank = 0; rank < 4; rank++) fs::remove(file("env." + std::to_string(rank)));
    }
}

TEST_F(CliRows, R_08_unknown_number_of_workers) {
    for (const auto *word : {"unknown", "0", "-1", "2x", "gpu", "99999999999"}) {
        const auto job = run({std::string("--nproc-per-node=") + word, worker_, "env"});
        EXPECT_EQ(job->wait(), 2) << word;
        EXPECT_NE(job->err().find(word), std::string::npos) << job->err();
        EXPECT_TRUE(ranks("env").empty());
    }
}

TEST_F(CliRows, R_26_worker_environment) {
    const auto job = run({"--nproc-per-node", "2", worker_, "env"},
                         {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}, {"TORCHELASTIC_ERROR_FILE", ""}});
    ASSERT_EQ(job->wait(), 0) << job->err();
    for (int rank = 0; rank < 2; rank++) {
        const auto variables = environment(rank);
        const std::string number = std::to_string(rank);
        for (const std::string &variable :
             {"RANK=" + number, "LOCAL_RANK=" + number, "ROLE_RANK=" + number, std::string("WORLD_SIZE=2"),
              std::string("LOCAL_WORLD_SIZE=2"), std::string("GROUP_RANK=0"), std::string("GROUP_WORLD_SIZE=1"),
              std::string("ROLE_WORLD_SIZE=2"), std::string("ROLE_NAME=default"), std::string("MASTER_ADDR=127.0.0.1"),
              std::string("MASTER_PORT=29500"), std::string("TORCHELASTIC_RESTART_COUNT=0"),
              std::string("TORCHELASTIC_MAX_RESTARTS=0"), std::string("TORCHELASTIC_USE_AGENT_STORE=False"),
              std::string("NCCL_ASYNC_ERROR_HANDLING=1"), std::string("TORCH_NCCL_ASYNC_ERROR_HANDLING=0")})
            EXPECT_TRUE(has(variables, variable)) << variable << " of rank " << rank;
        EXPECT_TRUE(std::any_of(variables.begin(), variables.end(),
                                [](const auto &v) { return v.rfind("TORCHELASTIC_RUN_ID=", 0) == 0 && v.size() > 24; }));
    }
    const auto options = run({"--log-dir", file("logs"), "--rdzv-id", "job7", "--role", "trainer", "--master-addr", "host",
                              "--master-port", "77", worker_, "env"});
    ASSERT_EQ(options->wait(), 0) << options->err();
    for (const std::string &variable :
         {std::string("TORCHELASTIC_RUN_ID=job7"), std::string("ROLE_NAME=trainer"), std::string("MASTER_ADDR=host"),
          std::string("MASTER_PORT=77"), std::string("TORCH_NCCL_ASYNC_ERROR_HANDLING=1"),
          "TORCHELASTIC_ERROR_FILE=" + file("logs/job7/attempt_0/0/error.json")})
        EXPECT_TRUE(has(environment(0), variable)) << variable;
}

TEST_F(CliRows, R_27_local_rank_in_arguments) {
    const auto job = run({"--nproc-per-node", "2", worker_, "args", "--rank=${local_rank}"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(read("args.0"), "args\n--rank=0\n");
    EXPECT_EQ(read("args.1"), "args\n--rank=1\n");
}

TEST_F(CliRows, R_28_threads_per_worker) {
    const auto unset = [](const std::string &variable) { return variable.rfind("OMP_NUM_THREADS=", 0) == 0; };
    ASSERT_EQ(run({"--nproc-per-node", "2", worker_, "env"})->wait(), 0);
    EXPECT_TRUE(has(environment(1), "OMP_NUM_THREADS=1"));
    ASSERT_EQ(run({"--nproc-per-node", "2", worker_, "env"}, {{"OMP_NUM_THREADS", "4"}})->wait(), 0);
    EXPECT_TRUE(has(environment(1), "OMP_NUM_THREADS=4"));
    ASSERT_EQ(run({worker_, "env"})->wait(), 0);
    const auto alone = environment(0);
    EXPECT_TRUE(std::none_of(alone.begin(), alone.end(), unset)) << "one worker has the machine for itself";
}

TEST_F(CliRows, R_33_not_R_32_exit_code_of_the_worker) {
    const auto job = run({"--nproc-per-node", "3", worker_, "exit", "1", "3"});
    EXPECT_EQ(job->wait(), 3);
    EXPECT_NE(job->err().find("the reason of rank 1"), std::string::npos);
    EXPECT_NE(last_line(job->err()).find("rank 1"), std::string::npos) << job->err();
    for (int rank = 0; rank < 3; rank++)
        if (there("pid." + std::to_string(rank))) {
            EXPECT_TRUE(gone(pid(rank)));
        }
}

TEST_F(CliRows, R_34_128_and_the_workers_signal) {
    for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
        const auto job = run({"--nproc-per-node", "2", worker_, "die", "1", std::to_string(signal)});
        EXPECT_EQ(job->wait(), 128 + signal);
        EXPECT_NE(last_line(job->err()).find("rank 1"), std::string::npos) << job->err();
        EXPECT_NE(last_line(job->err()).find(std::string("SIG") + sigabbrev_np(signal)), std::string::npos) << job->err();
    }
}

TEST_F(CliRows, R_35_128_and_the_launchers_signal_when_workers_exit_0) {
    const auto job = run({"--nproc-per-node", "2", worker_, "signals", "polite"});
    ASSERT_TRUE(wait_for_workers(2));
    job->signal(SIGTERM);
    EXPECT_EQ(job->wait(), 143);
    for (int rank = 0; rank < 2; rank++) {
        EXPECT_TRUE(wait_for_signal(rank, SIGTERM));
        EXPECT_TRUE(gone(pid(rank)));
    }
}

TEST_F(CliRows, R_36_flags_by_variables) {
    for (const auto &[value, wanted] :
         std::vector<std::pair<std::string, bool>>{{"1", true}, {"0", false}, {"true", true}, {"False", false}}) {
        ASSERT_EQ(run({worker_, "env"}, {{"PET_STANDALONE", value}})->wait(), 0);
        EXPECT_EQ(!has(environment(0), "MASTER_PORT=29500"), wanted) << value;
    }
    const auto job = run({worker_, "env"}, {{"PET_STANDALONE", "maybe"}});
    EXPECT_EQ(job->wait(), 2);
    EXPECT_NE(job->err().find("PET_STANDALONE"), std::string::npos) << job->err();
}

TEST_F(Cli, options_by_variables_give_way_to_the_command_line) {
    const Launch::Variables variables = {
        {"PET_NPROC_PER_NODE", "3"}, {"PET_ROLE", "actor"}, {"PET_RDZV_ID", "by-variable"}};
    ASSERT_EQ(run({"--rdzv-id", "by-option", worker_, "env"}, variables)->wait(), 0);
    EXPECT_EQ(ranks("env").size(), 3U);
    EXPECT_TRUE(has(environment(2), "ROLE_NAME=actor"));
    EXPECT_TRUE(has(environment(2), "TORCHELASTIC_RUN_ID=by-option"));
    const auto bad = run({worker_, "env"}, {{"PET_NPROC_PER_NODE", "many"}});
    EXPECT_EQ(bad->wait(), 2);
    EXPECT_NE(bad->err().find("many"), std::string::npos) << bad->err();
}

TEST_F(Cli, wrong_usage_is_2_and_says_what) {
    const std::vector<std::pair<Args, std::string>> table = {
        {{}, "no program"},
        {{"--"}, "no program"},
        {{"--nproc-per-node"}, "nproc-per-node"},
        {{"--no-such-option", worker_}, "--no-such-option"},
        {{"--nproc-per-nod=3", worker_}, "did you mean --nproc-per-node?"},
        {{"--max_restart", "3", worker_}, "did you mean --max-restarts?"},
        {{"--status-line", "on", worker_}, "--status-line is \"on\"; expected one of: auto, off"},
        {{"--max-restarts=-3", worker_}, "--max-restarts"},
        {{"--rdzv_backend=etcd", worker_}, "static, c10d"},
        {{"--nnodes", "2", worker_}, "--node-rank"},
        {{"--nnodes", "2", "--node-rank", "2", worker_}, "--node-rank"},
        {{"--nnodes", "3:2", worker_}, "--nnodes"},
        {{"--start-method", "clone", worker_}, "forkserver"},
        {{"--completion", "csh"}, "fish"},
        {{"--nnodes", "1:2:3", worker_}, "--nnodes"},
        {{"-r", "4", worker_}, "--redirects"},
        {{"-t", "0:x", worker_}, "--tee"},
        {{"--master-port", "70000", worker_}, "--master-port"},
        {{"--master-port", "x", worker_}, "master-port"},
        {{"--grace", "-1", worker_}, "--shutdown-timeout"},
        {{"--run-id", "a/b", worker_}, "a/b"},
        {{"--log-dir", file("worker-file/logs"), worker_}, "worker-file"},
        {{""}, "no program"},
    };
    std::ofstream(file("worker-file")) << "no directory";
    for (const auto &[args, part] : table) {
        const auto job = run(args);
        EXPECT_EQ(job->wait(), 2) << part;
        EXPECT_NE(job->err().find(part), std::string::npos) << job->err();
        EXPECT_EQ(job->out(), "");
        EXPECT_TRUE(ranks("pid").empty());
    }
}

TEST_F(Cli, help_version_and_info) {
    for (const auto &[option, part] : std::vector<std::pair<std::string, std::string>>{{"--help", "--nproc-per-node"},
                                                                                       {"-h", "Usage: ujoin-run"},
                                                                                       {"--version", "ujoin-run 0."},
                                                                                       {"--info", "shm\t"}}) {
        const auto job = run({option});
        EXPECT_EQ(job->wait(), 0);
        EXPECT_NE(job->out().find(part), std::string::npos) << job->out();
        EXPECT_EQ(job->err(), "");
    }
}

TEST_F(Cli, a_program_that_is_not_there_is_127) {
    for (const std::string &program :
         {file("no-such-program"), std::string("no-such-program-in-path"), file("script.py")}) {
        const auto job = run({"--nproc-per-node", "2", program});
        EXPECT_EQ(job->wait(), 127);
        EXPECT_NE(job->err().find(program), std::string::npos) << job->err();
        EXPECT_NE(job->err().find("No such file"), std::string::npos) << job->err();
    }
}

TEST_F(Cli, a_program_that_cannot_be_executed_is_126) {
    std::ofstream(file("text")) << "no program\n";
    for (const std::string &program : {file("text"), dir_.string()}) {
        const auto job = run({program});
        EXPECT_EQ(job->wait(), 126) << job->err();
        EXPECT_NE(job->err().find(program), std::string::npos) << job->err();
    }
}

TEST_F(Cli, the_programs_arguments_are_untouched) {
    const auto job =
        run({"--nproc-per-node=1", worker_, "args", "--nproc-per-node", "7", "-t", "--", "-h", "", "a b", "--tee=3"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(read("args.0"), "args\n--nproc-per-node\n7\n-t\n--\n-h\n\na b\n--tee=3\n");
    const auto marked = run({"--", worker_, "args", "--", "--help"});
    ASSERT_EQ(marked->wait(), 0) << marked->err();
    EXPECT_EQ(read("args.0"), "args\n--\n--help\n");
}

TEST_F(Cli, python_runs_scripts_and_modules) {
    std::ofstream(file("script.py")) << "";
    const Launch::Variables python = {{"PYTHON_EXEC", worker_}};
    ASSERT_EQ(run({file("script.py"), "--lr", "1"}, python)->wait(), 0);
    EXPECT_EQ(read("args.0"), "-u\n" + file("script.py") + "\n--lr\n1\n");
    ASSERT_EQ(run({"-m", "package.module", "-x"}, python)->wait(), 0);
    EXPECT_EQ(read("args.0"), "-u\n-m\npackage.module\n-x\n");
    EXPECT_EQ(run({"--no-python", file("script.py")}, python)->wait(), 126) << "it is no program";
}

TEST_F(Cli, streams_go_where_they_were_sent) {
    const auto job = run(
        {"--nproc-per-node", "2", "--log-dir", file("logs"), "--run-id", "job", "-r", "0:1", "-t", "2", worker_, "print"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(read("logs/job/attempt_0/0/stdout.log"), "out of 0\n");
    EXPECT_EQ(read("logs/job/attempt_0/0/stderr.log"), "err of 0\n");
    EXPECT_EQ(read("logs/job/attempt_0/1/stderr.log"), "err of 1\n");
    EXPECT_FALSE(there("logs/job/attempt_0/1/stdout.log"));
    EXPECT_EQ(fs::read_symlink(file("logs/latest")).string().rfind("job", 0), 0U);
    EXPECT_EQ(job->out(), "out of 1\n") << "rank 0's went to its file alone";
    EXPECT_NE(job->err().find("[cli_worker0]: err of 0\n"), std::string::npos) << job->err();
    EXPECT_NE(job->err().find("[cli_worker1]: err of 1\n"), std::string::npos) << job->err();
    struct stat info {};
    ASSERT_EQ(stat(file("logs/job/attempt_0/0/stdout.log").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(CliRows, R_21_prefixes_by_rank) {
    const auto job = run({"--nproc-per-node", "3", "-r", "3", "-t", "3", "--role", "actor", worker_, "print"},
                         {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]: "}});
    ASSERT_EQ(job->wait(), 0) << job->err();
    for (const auto *line : {"[rank0]: out of 0", "[rank1]: out of 1", "[rank2]: out of 2"})
        EXPECT_TRUE(has(lines_of(job->out()), line)) << job->out();
    EXPECT_NE(job->err().find("log files are in " + dir_.string()), std::string::npos)
        << "nobody knows where: " << job->err();
    const auto role = run({"-t", "3", "--role", "actor", worker_, "print"});
    ASSERT_EQ(role->wait(), 0);
    EXPECT_TRUE(has(lines_of(role->out()), "[actor0]: out of 0")) << role->out();
}

TEST_F(Cli, a_failure_is_reported_with_its_last_words) {
    const auto job = run({"--nproc-per-node", "3", "-r", "2", "--log-dir", file("logs"), worker_, "exit", "2", "7"});
    EXPECT_EQ(job->wait(), 7);
    const std::string text = job->err();
    for (const auto *part :
         {"cli_worker FAILED", "rank 2", "exited with code 7", "the reason of rank 2", "stopped by the launcher"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
    EXPECT_EQ(last_line(text), "ujoin-run: rank 2 failed, exit status 7");
}

TEST_F(Cli, two_jobs_at_once_do_not_meet) {
    const fs::path other = dir_ / "other";
    fs::create_directory(other);
    const auto a = run({"--nproc-per-node", "2", worker_, "group"});
    const auto b = run({"--nproc-per-node", "3", worker_, "group"}, {{"CLI_DIR", other.string()}});
    EXPECT_EQ(a->wait(), 0) << a->err();
    EXPECT_EQ(b->wait(), 0) << b->err();
    for (int rank = 0; rank < 2; rank++) EXPECT_EQ(read("sum." + std::to_string(rank)), "3\n");
    for (int rank = 0; rank < 3; rank++) EXPECT_EQ(read("other/sum." + std::to_string(rank)), "6\n");
}

TEST_F(CliRows, R_13_standalone) {
    const auto job = run({"--standalone", "--nproc-per-node", "4", worker_, "env"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3}));
    const auto starting = [&](int rank, const std::string &start) {
        for (const std::string &variable : environment(rank))
            if (variable.rfind(start, 0) == 0) return variable;
        return std::string();
    };
    for (int rank = 0; rank < 4; rank++) {
        EXPECT_EQ(starting(rank, "MASTER_PORT="), starting(0, "MASTER_PORT="));
        EXPECT_NE(starting(rank, "MASTER_PORT="), "MASTER_PORT=29500") << "a free one, so that two jobs do not meet";
        EXPECT_TRUE(has(environment(rank), "WORLD_SIZE=4"));
    }
}

TEST_F(Cli, standalone_has_a_port_and_a_name_of_its_own) {
    ASSERT_EQ(run({"--standalone", "--rdzv-id", "given", "--master-port", "29500", worker_, "env"})->wait(), 0);
    EXPECT_FALSE(has(environment(0), "MASTER_PORT=29500"));
    EXPECT_FALSE(has(environment(0), "MASTER_PORT=0"));
    EXPECT_FALSE(has(environment(0), "TORCHELASTIC_RUN_ID=given"));
}

class CliSignals : public Cli, public testing::WithParamInterface<int> {};

TEST_P(CliSignals, is_passed_on_and_ends_the_job) {
    Args args{"--nproc-per-node", "2", worker_, "signals", "polite"};
    if (GetParam() == SIGQUIT) args.insert(args.begin(), {"--signals-to-handle", "SIGQUIT"}); // else it is a question
    const auto job = run(args);
    ASSERT_TRUE(wait_for_workers(2));
    job->signal(GetParam());
    EXPECT_EQ(job->wait(), 128 + GetParam());
    EXPECT_TRUE(wait_for_signal(0, GetParam()) && wait_for_signal(1, GetParam()));
    EXPECT_NE(last_line(job->err()).find(std::string("SIG") + sigabbrev_np(GetParam())), std::string::npos) << job->err();
}

INSTANTIATE_TEST_SUITE_P(All, CliSignals, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT),
                         [](const auto &of) { return sigabbrev_np(of.param); });

TEST_F(CliRows, R_31_an_interrupt_reaches_the_workers_and_the_grace_ends_them) {
    const auto job = run({"--nproc-per-node", "2", "--grace", "0.4", worker_, "signals", "stubborn"});
    ASSERT_TRUE(wait_for_workers(2));
    const auto begin = std::chrono::steady_clock::now();
    job->signal(SIGINT);
    EXPECT_EQ(job->wait(), 130);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400));
    for (int rank = 0; rank < 2; rank++) {
        EXPECT_TRUE(wait_for_signal(rank, SIGINT));
        EXPECT_TRUE(gone(pid(rank)));
    }
}

TEST_F(Cli, a_second_interrupt_does_not_wait) {
    const auto job = run({"--nproc-per-node", "2", "--grace", "10000", worker_, "signals", "stubborn"});
    ASSERT_TRUE(wait_for_workers(2));
    job->signal(SIGINT);
    ASSERT_TRUE(wait_for_signal(0, SIGINT) && wait_for_signal(1, SIGINT));
    job->signal(SIGINT);
    EXPECT_EQ(job->wait(), 130);
    for (int rank = 0; rank < 2; rank++) EXPECT_TRUE(gone(pid(rank)));
}

TEST_F(Cli, stop_and_continue_reach_workers_and_launcher) {
    const auto job = run({"--nproc-per-node", "2", worker_, "signals", "polite"});
    ASSERT_TRUE(wait_for_workers(2));
    job->signal(SIGTSTP);
    ASSERT_TRUE(job->wait_until_stopped());
    for (int rank = 0; rank < 2; rank++)
        EXPECT_TRUE(harness::eventually([&] { return state_of(pid(rank)) == 'T'; })) << state_of(pid(rank));
    job->signal(SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        EXPECT_TRUE(wait_for_signal(rank, SIGTSTP));
        EXPECT_TRUE(wait_for_signal(rank, SIGCONT));
        EXPECT_NE(state_of(pid(rank)), 'T');
    }
    job->signal(SIGTERM);
    EXPECT_EQ(job->wait(), 143);
}

TEST_F(Cli, a_killed_launcher_leaves_no_worker) {
    const auto job = run({"--nproc-per-node", "2", worker_, "signals", "stubborn"});
    ASSERT_TRUE(wait_for_workers(2));
    job->signal(SIGKILL);
    EXPECT_EQ(job->wait(), 1000 + SIGKILL);
    for (int rank = 0; rank < 2; rank++) EXPECT_TRUE(harness::eventually([&] { return gone(pid(rank)); }));
}

TEST_F(Cli, a_signal_during_the_start_is_not_lost) {
    const auto job = run({"--nproc-per-node", "64", worker_, "signals", "polite"});
    ASSERT_TRUE(harness::eventually([&] { return !ranks("pid").empty(); }));
    job->signal(SIGTERM);
    EXPECT_EQ(job->wait(), 143) << job->err();
}
