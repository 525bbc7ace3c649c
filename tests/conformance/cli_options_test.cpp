// SPDX-License-Identifier: Apache-2.0
// Options of ujoin-run beyond the first ones: restarts, filters, signals, results, several hosts as several launchers.
#include "harness/cli_kit.hpp"
#include "os/fd.hpp"
#include "ujoin.h"
#include <arpa/inet.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace cli_kit;
using nlohmann::json;

namespace {

using CliRows = Cli;

/// Two ports in a row, kept for whoever asks for them by number: while it lives, nobody is given one of them as any free port.
/// It does not listen, and servers that reuse addresses, as ours do, may.
class KeptPorts {
  public:
    KeptPorts() {
        while (!bind_both())
            for (ujoin::os::Fd &fd : fds_) fd.reset();
        const int yes = 1; // only now: a port that another test keeps is in use
        for (const ujoin::os::Fd &fd : fds_) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    }
    int first() const { return first_; }

  private:
    bool bind_both() {
        for (int i = 0; i < 2; i++) {
            fds_[i].reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            sockaddr_in address{};
            address.sin_family = AF_INET;
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            address.sin_port = htons(static_cast<uint16_t>(i == 0 ? 0 : first_ + 1));
            socklen_t size = sizeof address;
            if (bind(fds_[i].get(), reinterpret_cast<sockaddr *>(&address), size) != 0) return false;
            getsockname(fds_[i].get(), reinterpret_cast<sockaddr *>(&address), &size);
            if (i == 0) first_ = ntohs(address.sin_port);
        }
        return first_ < 65000;
    }

    ujoin::os::Fd fds_[2];
    int first_ = 0;
};

bool somebody_listens(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool connected = connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
    close(fd);
    return connected;
}

/// The signals that a process has handlers for.
bool handles(pid_t pid, int signal) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("SigCgt:", 0) == 0) return std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1;
    return false;
}

} // namespace

TEST_F(CliRows, R_02_a_given_address_and_node_rank) {
    const auto job = run({"--nnodes", "1", "--nproc-per-node", "4", "--rdzv-backend", "static", "--node-rank", "0",
                          "--master-addr", "localhost", "--master-port", "29511", worker_, "env"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3}));
    for (int rank = 0; rank < 4; rank++)
        for (const char *variable : {"MASTER_PORT=29511", "MASTER_ADDR=localhost", "GROUP_RANK=0", "WORLD_SIZE=4"})
            EXPECT_TRUE(has(environment(rank), variable)) << variable << " of rank " << rank;
}

TEST_F(CliRows, R_05_all_options_by_variables) {
    const Launch::Variables variables = {
        {"PET_NPROC_PER_NODE", "2"},    {"PET_NNODES", "1"},          {"PET_NODE_RANK", "0"},
        {"PET_RDZV_BACKEND", "static"}, {"PET_RDZV_ID", "by_pet"},    {"PET_MAX_RESTARTS", "3"},
        {"PET_MONITOR_INTERVAL", "2"},  {"PET_START_METHOD", "fork"}, {"PET_ROLE", "actor"},
        {"PET_LOG_DIR", file("logs")},  {"PET_REDIRECTS", "3"},       {"PET_TEE", "0"},
        {"PET_MASTER_ADDR", "here"},    {"PET_MASTER_PORT", "77"},    {"PET_LOCAL_RANKS_FILTER", "0"},
        {"PET_SHUTDOWN_TIMEOUT", "3"},  {"PET_NO_PYTHON", "1"},       {"PET_SIGNALS_TO_HANDLE", "SIGTERM"}};
    ASSERT_EQ(run({worker_, "env"}, variables)->wait(), 0);
    for (const char *variable : {"ROLE_NAME=actor", "MASTER_ADDR=here", "MASTER_PORT=77", "TORCHELASTIC_MAX_RESTARTS=3",
                                 "TORCHELASTIC_RUN_ID=by_pet", "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM"})
        EXPECT_TRUE(has(environment(1), variable)) << variable;
    EXPECT_TRUE(there("logs/by_pet/attempt_0/1/stdout.log"));
    const auto both = run({worker_, "env"}, {{"PET_MODULE", "1"}, {"PET_NO_PYTHON", "1"}});
    EXPECT_EQ(both->wait(), 2);
    EXPECT_EQ(run({worker_, "env"}, {{"PET_MODULE", "0"}, {"PET_NO_PYTHON", "1"}})->wait(), 0);
    ASSERT_EQ(run({worker_, "env"}, {{"PET_ROLE", "pet"}, {"UJOIN_ROLE", "ours"}})->wait(), 0);
    EXPECT_TRUE(has(environment(0), "ROLE_NAME=ours"));
}

TEST_F(CliRows, R_09_R_22_workers_and_accelerators) {
    fs::create_directory(dir_ / "dev");
    for (const char *name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"})
        std::ofstream(file("dev/") + name) << "";
    const Launch::Variables three = {{"UJOIN_DEV_DIR", file("dev")}, {"CUDA_VISIBLE_DEVICES", ""}};
    for (const char *word : {"gpu", "auto"}) {
        ASSERT_EQ(run({"--nproc-per-node", word, worker_, "env"}, three)->wait(), 0);
        EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2})) << word;
    }
    const Launch::Variables two = {{"UJOIN_DEV_DIR", file("dev")}, {"CUDA_VISIBLE_DEVICES", "4,5"}};
    ASSERT_EQ(run({"--nproc-per-node", "2", "--virtual-local-rank", worker_, "env"}, two)->wait(), 0);
    for (int rank = 0; rank < 2; rank++) {
        EXPECT_TRUE(has(environment(rank), "LOCAL_RANK=0"));
        EXPECT_TRUE(has(environment(rank), "CUDA_VISIBLE_DEVICES=" + std::to_string(4 + rank)));
    }
    ASSERT_EQ(run({"--nproc-per-node", "2", worker_, "env"}, two)->wait(), 0);
    EXPECT_TRUE(has(environment(1), "LOCAL_RANK=1"));
    EXPECT_TRUE(has(environment(1), "CUDA_VISIBLE_DEVICES=4,5")) << "all workers see both, and choose by their rank";
}

TEST_F(CliRows, R_10_R_16_ranges_of_hosts) {
    const auto job = run({"--nnodes", "1:2", "--nproc-per-node", "4", worker_, "env"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3}));
    for (const char *variable : {"WORLD_SIZE=4", "GROUP_WORLD_SIZE=1", "GROUP_RANK=0", "RANK=3"})
        EXPECT_TRUE(has(environment(3), variable)) << variable;
    EXPECT_EQ(run({"--nnodes", "2:20:30", worker_, "env"})->wait(), 2);
    EXPECT_EQ(run({"--nnodes", "0", worker_, "env"})->wait(), 2);
    const auto range = run({"--nnodes", "2:20", worker_, "env"}); // read as such: now it needs to know where to meet
    EXPECT_EQ(range->wait(), 2);
    EXPECT_NE(range->err().find("--node-rank"), std::string::npos) << range->err();
}

TEST_F(CliRows, R_11_R_12_failures_of_the_script_and_of_the_launcher_are_told_once) {
    const auto job = run({"--max-restarts", "0", "--nproc-per-node", "2", worker_, "exit", "0", "9"});
    EXPECT_EQ(job->wait(), 9);
    const std::string text = job->err();
    const size_t first = text.find("Root Cause");
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find("Root Cause", first + 1), std::string::npos);
    EXPECT_EQ(text.find("starting again"), std::string::npos);
    std::ofstream(file("a-file")) << "";
    const auto own = run({"--log-dir", file("a-file/logs"), "-r", "3", worker_, "env"});
    EXPECT_EQ(own->wait(), 2);
    EXPECT_EQ(lines_of(own->err()).size(), 1U) << own->err();
}

TEST_F(CliRows, R_18_R_23_R_24_what_workers_know_of_the_launcher) {
    ASSERT_EQ(run({worker_, "env"})->wait(), 0);
    EXPECT_TRUE(has(environment(0), "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT"));
    const auto variables = environment(0);
    EXPECT_TRUE(std::any_of(variables.begin(), variables.end(), [](const auto &v) {
        return v.rfind("TORCHELASTIC_RUN_ID=", 0) == 0;
    })) << "launched";
    EXPECT_EQ(std::getenv("TORCHELASTIC_RUN_ID"), nullptr) << "this process was not";
    ASSERT_EQ(run({"--signals-to-handle", "SIGTERM,SIGUSR1,SIGUSR2", worker_, "env"})->wait(), 0);
    EXPECT_TRUE(has(environment(0), "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGUSR1,SIGUSR2"));
}

TEST_F(CliRows, R_19_R_30_malformed_words) {
    const auto specs = run({"--logs-specs", "no_such", worker_, "env"});
    EXPECT_EQ(specs->wait(), 2);
    EXPECT_NE(specs->err().find("no_such"), std::string::npos);
    const auto filter = run({"--local-ranks-filter", "0,x", worker_, "env"});
    EXPECT_EQ(filter->wait(), 2);
    EXPECT_NE(filter->err().find("\"x\""), std::string::npos) << filter->err();
}

TEST_F(CliRows, R_20_groups_by_address_and_by_environment) {
    const KeptPorts ports;
    const std::string port = std::to_string(ports.first());
    for (const char *how : {"env", "tcp"}) {
        const auto job = run({"--nproc-per-node", "4", "--master-port", port, worker_, "group", how});
        ASSERT_EQ(job->wait(), 0) << job->err();
        for (int rank = 0; rank < 4; rank++) EXPECT_EQ(read("sum." + std::to_string(rank)), "10\n");
    }
}

TEST_F(CliRows, R_29_a_second_attempt) {
    const auto job = run({"--nproc-per-node", "2", "--max-restarts", "2", "--log-dir", file("logs"), "--run-id", "job",
                          "-r", "3", "--json", file("result.json"), worker_, "fail_once", "1"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_NE(job->err().find("starting again, attempt 1 of at most 2"), std::string::npos) << job->err();
    EXPECT_TRUE(there("logs/job/attempt_0/1/stderr.log"));
    EXPECT_TRUE(there("logs/job/attempt_1/1/stderr.log"));
    EXPECT_FALSE(there("logs/job/attempt_2"));
    EXPECT_EQ(fs::read_symlink(file("logs/latest")), "job/attempt_1");
    EXPECT_TRUE(has(environment(1), "TORCHELASTIC_RESTART_COUNT=1"));
    EXPECT_TRUE(has(environment(0), "TORCHELASTIC_RESTART_COUNT=1")) << "the other one was started again too";
    const json result = json::parse(read("result.json"));
    EXPECT_EQ(result["exit_status"], 0);
    EXPECT_EQ(result["restarts"], 1);
    EXPECT_EQ(result["job"]["workers"].size(), 2U);
    const auto never = run({"--max-restarts", "1", "--json", "-", worker_, "exit", "0", "4"});
    EXPECT_EQ(never->wait(), 4);
    EXPECT_EQ(json::parse(never->out())["exit_status"], 4);
    EXPECT_EQ(json::parse(never->out())["restarts"], 1);
}

TEST_F(CliRows, R_37_a_death_is_noticed_at_once) {
    const auto job = run({"--monitor-interval", "1000", "--nproc-per-node", "2", worker_, "signals", "polite"});
    ASSERT_TRUE(wait_for_workers(2));
    kill(pid(1), SIGKILL);
    EXPECT_EQ(job->wait(), 137); // waits for 30 s at most
    EXPECT_TRUE(gone(pid(0)));
}

TEST_F(CliRows, P_43_P_44_LAUNCHER_06_signals_that_are_handled) {
    const auto job = run({"--signals-to-handle", "SIGTERM,SIGUSR1,SIGUSR2,INVALID_SIGNAL", "--nproc-per-node", "2", worker_,
                          "signals", "polite"});
    ASSERT_TRUE(wait_for_workers(2));
    EXPECT_NE(job->err().find("INVALID_SIGNAL"), std::string::npos) << job->err();
    for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) EXPECT_TRUE(handles(job->pid(), signal)) << signal;
    for (const int signal : {SIGINT, SIGHUP, SIGQUIT}) EXPECT_FALSE(handles(job->pid(), signal)) << signal;
    job->signal(SIGUSR1);
    for (int rank = 0; rank < 2; rank++) {
        EXPECT_TRUE(wait_for_signal(rank, SIGUSR1));
        EXPECT_EQ(read("signals." + std::to_string(rank)), "10\n") << "one, and the job goes on";
    }
    job->signal(SIGTERM);
    EXPECT_EQ(job->wait(), 143);
}

TEST_F(Cli, output_options) {
    const auto job =
        run({"--nproc-per-node", "2", "--log-dir", file("logs"), "--run-id", "job", "-t", "3", "--local-ranks-filter", "1",
             "--duplicate-stdout-filters", "out of", "--rotate-bytes", "4096", "--timestamps", worker_, "print"});
    ASSERT_EQ(job->wait(), 0) << job->err();
    EXPECT_EQ(lines_of(job->out()).size(), 1U) << job->out();
    EXPECT_EQ(job->out().substr(12), " [cli_worker1]: out of 1\n") << job->out();
    EXPECT_EQ(read("logs/job/attempt_0/filtered_stdout.log").substr(12), " [cli_worker1]: out of 1\n")
        << "rank 0 is not shown";
    EXPECT_EQ(read("logs/job/attempt_0/0/stdout.log"), "out of 0\n");
}

TEST_F(Cli, a_dry_run_starts_nothing_and_says_what_it_would) {
    const auto job = run({"--dry-run", "--nproc-per-node", "2", "--role", "actor", worker_, "env"});
    EXPECT_EQ(job->wait(), 0);
    EXPECT_TRUE(ranks("env").empty());
    for (const char *part : {"would start 2 workers", "cli_worker env", "ROLE_NAME=actor", "local rank 1: RANK=1"})
        EXPECT_NE(job->out().find(part), std::string::npos) << job->out();
}

TEST_F(Cli, completions) {
    for (const char *shell : {"bash", "zsh", "fish"}) {
        const auto job = run({"--completion", shell});
        EXPECT_EQ(job->wait(), 0);
        EXPECT_NE(job->out().find("nproc-per-node"), std::string::npos) << job->out();
    }
}

TEST_F(Cli, E_14_the_launchers_own_error_file_is_that_of_the_worker) {
    const auto job = run({"--nproc-per-node", "2", "--log-dir", file("logs"), worker_, "record", "1"},
                         {{"TORCHELASTIC_ERROR_FILE", file("own.json")}});
    EXPECT_EQ(job->wait(), 1);
    const json own = json::parse(read("own.json"));
    EXPECT_EQ(own["message"]["message"], "the reason");
    EXPECT_EQ(own["message"]["errorCode"], 1);
    fs::remove(file("own.json"));
    const auto silent =
        run({"--log-dir", file("logs2"), worker_, "exit", "0", "3"}, {{"TORCHELASTIC_ERROR_FILE", file("own.json")}});
    EXPECT_EQ(silent->wait(), 3);
    EXPECT_FALSE(there("own.json")) << "a child without a file";
}

TEST_F(Cli, E_09_E_10_an_exit_inside_a_recorded_function_leaves_no_file) {
    for (const char *code : {"0", "1"}) {
        const auto job =
            run({"--log-dir", file(std::string("logs") + code), "--run-id", "job", worker_, "record_exit", code});
        EXPECT_EQ(job->wait(), std::stoi(code));
        EXPECT_FALSE(there(std::string("logs") + code + "/job/attempt_0/0/error.json"));
    }
}

TEST_F(Cli, functions_of_a_library) {
    const auto job =
        run({"--nproc-per-node", "2", "--function", harness::built("tests/bin/libworker.so") + ":greet", "hello"});
    EXPECT_EQ(job->wait(), 0) << job->err();
    const auto lines = lines_of(job->out());
    EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()), (std::set<std::string>{"hello from 0", "hello from 1"}));
}

TEST_F(Cli, as_the_first_process_it_frees_foreign_children_and_ends_with_the_job) {
    const auto job = run({"--nproc-per-node", "1", worker_, "signals", "polite"}, {{"UJOIN_INIT", "1"}});
    ASSERT_TRUE(wait_for_workers(1));
    job->signal(SIGTERM);
    EXPECT_EQ(job->wait(), 143);
    EXPECT_EQ(run({worker_, "exit", "0", "6"}, {{"UJOIN_INIT", "1"}})->wait(), 6);
    EXPECT_EQ(run({worker_, "die", "0", "9"}, {{"UJOIN_INIT", "1"}})->wait(), 137);
}

TEST_F(Cli, LAUNCHER_05_grace_of_the_command_line) {
    for (const Launch::Variables &variables : {Launch::Variables{}, Launch::Variables{{"PET_SHUTDOWN_TIMEOUT", "0.3"}}}) {
        fs::remove(file("ready.0"));
        Args args = {"--shutdown-timeout", "0.3", worker_, "signals", "stubborn"};
        if (!variables.empty()) args.erase(args.begin(), args.begin() + 2);
        const auto job = run(args, variables);
        ASSERT_TRUE(wait_for_workers(1));
        job->signal(SIGTERM);
        EXPECT_EQ(job->wait(), 143) << "the worker would stay for ever";
        EXPECT_TRUE(gone(pid(0)));
    }
}

/// Everything that a run leaves, as one text.
std::string all_files(const fs::path &root) {
    std::string text;
    for (const auto &entry : fs::recursive_directory_iterator(root)) {
        text += entry.path().string() + "\n";
        if (!entry.is_regular_file()) continue;
        std::ifstream in(entry.path(), std::ios::binary);
        text.append(std::istreambuf_iterator<char>(in), {});
    }
    return text;
}

TEST_F(Cli, SECURITY_03_no_secret_is_told_and_nothing_planted_is_used) {
    const mode_t old = umask(0);
    const auto job = run({"--event-log-handler", "console", "--nproc-per-node", "2", "--log-dir", file("logs"), "--run-id",
                          "fixed", "-t", "1", "-r", "2", "--json", file("logs/result.json"), worker_, "record", "1"},
                         {{"TEST_TOKEN", "s3cr3t-4711"}, {"TORCHELASTIC_ERROR_FILE", file("own.json")}});
    EXPECT_EQ(job->wait(), 1) << job->err();
    umask(old);
    EXPECT_NE(all_files(dir_).find("the reason"), std::string::npos);
    EXPECT_EQ((job->out() + job->err() + all_files(dir_)).find("s3cr3t-4711"), std::string::npos);
    for (const auto &entry : fs::recursive_directory_iterator(file("logs"))) {
        if (entry.is_symlink() || entry.path().filename() == "result.json") continue; // that is where the user said
        const auto mode = static_cast<unsigned>(entry.status().permissions());
        EXPECT_EQ(mode, entry.is_directory() ? 0700U : 0600U) << entry.path();
    }
    fs::create_directory(dir_ / "target");
    fs::create_directory_symlink(dir_ / "target", dir_ / "logs" / "planted");
    const auto refused = run({"--log-dir", file("logs"), "--run-id", "planted", "-r", "3", worker_, "print"});
    EXPECT_EQ(refused->wait(), 2) << refused->err();
    EXPECT_TRUE(fs::is_empty(dir_ / "target"));
    if (geteuid() == 0) {
        fs::create_directory(dir_ / "logs" / "foreign");
        ASSERT_EQ(chown(file("logs/foreign").c_str(), 4711, 4711), 0);
        const auto foreign = run({"--log-dir", file("logs"), "--run-id", "foreign", "-r", "3", worker_, "print"});
        EXPECT_EQ(foreign->wait(), 2) << foreign->err();
        EXPECT_TRUE(fs::is_empty(dir_ / "logs" / "foreign"));
    }
}

// ------------------------------------------------------------------------------------------------------ several hosts

class CliNodes : public Cli {
  protected:
    std::unique_ptr<Launch> node(int number, const Args &more, const Launch::Variables &variables = {}) const {
        Args args = {
            "--nnodes",           "2", "--node-rank", std::to_string(number), "--master-port", std::to_string(port_),
            "--shutdown-timeout", "5"};
        args.insert(args.end(), more.begin(), more.end());
        Launch::Variables all = {{"UJOIN_SECRET", "hush"}};
        all.insert(all.end(), variables.begin(), variables.end());
        return run(args, all);
    }
    const KeptPorts ports_;
    const int port_ = ports_.first();
};

TEST_F(CliNodes, R_15_R_17_two_launchers_of_four_workers) {
    const auto second = node(1, {"--nproc-per-node", "4", worker_, "env"});
    const auto first = node(0, {"--nproc-per-node", "4", worker_, "env"});
    ASSERT_EQ(first->wait(), 0) << first->err();
    ASSERT_EQ(second->wait(), 0) << second->err();
    EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
    for (const char *variable : {"WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4", "LOCAL_RANK=2", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
                                 "MASTER_ADDR=127.0.0.1"})
        EXPECT_TRUE(has(environment(6), variable)) << variable;
    EXPECT_TRUE(has(environment(6), "UJOIN_STORE=127.0.0.1:" + std::to_string(port_ + 1)));
    const auto id = [&](int rank) {
        for (const std::string &v : environment(rank))
            if (v.rfind("TORCHELASTIC_RUN_ID=", 0) == 0) return v;
        return std::string();
    };
    EXPECT_EQ(id(0), id(7));
    EXPECT_FALSE(somebody_listens(port_ + 1)) << "the meeting place has gone with the job";
}

TEST_F(CliNodes, R_25_a_failure_ends_all_hosts_with_its_status) {
    const auto first = node(0, {"--nproc-per-node", "2", worker_, "exit", "3", "7"});
    const auto second = node(1, {"--nproc-per-node", "2", worker_, "exit", "3", "7"}); // its second worker
    EXPECT_EQ(second->wait(), 7) << second->err();
    EXPECT_EQ(first->wait(), 7) << first->err();
    EXPECT_NE(first->err().find("host 1: rank 3 failed"), std::string::npos) << first->err();
    for (int rank = 0; rank < 4; rank++) {
        if (there("pid." + std::to_string(rank))) {
            EXPECT_TRUE(gone(pid(rank)));
        }
    }
}

TEST_F(CliNodes, R_25_a_store_that_is_gone_hides_no_failure) {
    const auto first = node(0, {"--nproc-per-node", "1", worker_, "signals", "polite"});
    const auto second = node(1, {"--nproc-per-node", "1", worker_, "signals", "polite"});
    ASSERT_TRUE(wait_for_workers(2));
    first->signal(SIGKILL); // it held the store
    EXPECT_EQ(second->wait(), 1) << second->err();
    EXPECT_NE(second->err().find("gone"), std::string::npos) << second->err();
    EXPECT_TRUE(gone(pid(1)));
    EXPECT_TRUE(harness::eventually([&] { return gone(pid(0)); })) << "its warden has ended it";
}

TEST_F(CliNodes, the_death_of_a_launcher_ends_the_other_host) {
    const auto first = node(0, {"--nproc-per-node", "1", worker_, "signals", "polite"});
    const auto second = node(1, {"--nproc-per-node", "1", worker_, "signals", "polite"});
    ASSERT_TRUE(wait_for_workers(2));
    second->signal(SIGKILL);
    EXPECT_EQ(first->wait(), 1) << first->err();
    EXPECT_NE(first->err().find("host 1 is gone"), std::string::npos) << first->err();
    EXPECT_TRUE(gone(pid(0)));
}

TEST_F(CliNodes, all_hosts_start_again_after_a_failure_of_one) {
    const auto first = node(0, {"--max-restarts", "1", "--nproc-per-node", "1", worker_, "fail_once", "1"});
    const auto second = node(1, {"--max-restarts", "1", "--nproc-per-node", "1", worker_, "fail_once", "1"});
    EXPECT_EQ(first->wait(), 0) << first->err();
    EXPECT_EQ(second->wait(), 0) << second->err();
    for (int rank = 0; rank < 2; rank++) EXPECT_TRUE(has(environment(rank), "TORCHELASTIC_RESTART_COUNT=1"));
}

TEST_F(CliNodes, hosts_are_numbered_as_they_come_and_strangers_are_refused) {
    const Args args = {
        "--nnodes",         "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:" + std::to_string(port_),
        "--nproc-per-node", "2", worker_,          "env"};
    const auto first = run(args, {{"UJOIN_SECRET", "hush"}});
    ASSERT_TRUE(harness::eventually([&] { return somebody_listens(port_); }));
    const auto stranger = run(args, {{"UJOIN_SECRET", "guessed"}});
    EXPECT_EQ(stranger->wait(), 2) << stranger->err();
    const auto second = run(args, {{"UJOIN_SECRET", "hush"}});
    EXPECT_EQ(first->wait(), 0) << first->err();
    EXPECT_EQ(second->wait(), 0) << second->err();
    EXPECT_EQ(ranks("env"), (std::set<int>{0, 1, 2, 3}));
    EXPECT_TRUE(has(environment(3), "GROUP_RANK=1"));
}
