// SPDX-License-Identifier: Apache-2.0
// Process contexts under strain: consoles that are slow by every policy, disks that are full, workers that cannot be killed,
// and many runs of workers that do whatever they like.
#include "harness/descriptors.hpp"
#include "harness/launch.hpp"
#include "harness/pctx_kit.hpp"
#include "io/console.hpp"
#include "pctx/log_file.hpp"
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <pty.h>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>

using namespace pctx_kit;

namespace {

std::atomic<int32_t> g_unkillable{0};

} // namespace

extern "C" bool ujoin_test_cannot_be_killed(int32_t pid) { return pid == g_unkillable; }

namespace {

/// Descriptor 1 is a pipe that nobody reads, until read_all().
class StuckConsole {
  public:
    StuckConsole() {
        EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
        std::fflush(nullptr);
        saved_ = fcntl(1, F_DUPFD_CLOEXEC, 3);
        dup2(ends_[1], 1);
        close(ends_[1]);
    }
    ~StuckConsole() {
        dup2(saved_, 1);
        close(saved_);
        close(ends_[0]);
    }
    StuckConsole(const StuckConsole &) = delete;
    StuckConsole &operator=(const StuckConsole &) = delete;

    void read_exactly(size_t bytes) {
        for (std::string buffer(bytes, '\0'); bytes > 0;) {
            const ssize_t got = read(ends_[0], buffer.data(), bytes);
            ASSERT_GT(got, 0);
            bytes -= static_cast<size_t>(got);
        }
    }
    /// What comes while `wait` runs, and is there after it.
    std::string read_all(const std::function<void()> &wait) {
        std::string text;
        std::thread reader([&] {
            char buffer[65536];
            for (ssize_t got = 0; (got = read(ends_[0], buffer, sizeof buffer)) > 0;)
                text.append(buffer, static_cast<size_t>(got));
        });
        wait();
        dup2(saved_, 1); // the last end of the pipe
        reader.join();
        return text;
    }

  private:
    int ends_[2] = {-1, -1};
    int saved_ = -1;
};

TEST(PctxStrain, console_that_is_too_slow_goes_without_lines_by_policy) {
    for (const ujoin_console_policy policy : {UJOIN_CONSOLE_DROP, UJOIN_CONSOLE_SPILL}) {
        constexpr uint64_t count = 300'000;
        Folder folder;
        const std::string logs = folder.file("logs");
        const std::string done = folder.file("done");
        StuckConsole console;
        Job job(1, {"burst=" + std::to_string(count), "touch=" + done, "await=" + folder.file("go"), "out=last\\n"});
        job.spec.log_dir = policy == UJOIN_CONSOLE_SPILL ? logs.c_str() : "/dev/null";
        job.spec.tee = UJOIN_STD_OUT;
        job.spec.console = policy;
        ASSERT_PCTX_OK(job.create_and_start());
        ASSERT_TRUE(eventually([&] { return std::filesystem::exists(done); }, 10'000)) << "the worker did not have to wait";
        const std::string text = console.read_all([&] {
            std::ofstream(folder.file("go")) << "";
            EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        });
        const ujoin_worker_result result = job.result(0);
        EXPECT_GT(result.dropped_lines, 0U);
        uint64_t shown = 0;
        int notes = 0;
        for (const std::string &line : split_lines(text)) {
            ASSERT_EQ(line.rfind("[worker0]: ", 0), 0U) << line;
            if (line.find("left out, the console was too slow") != std::string::npos)
                notes++;
            else
                shown++;
        }
        EXPECT_EQ(shown + result.dropped_lines, count + 1) << "every line was shown or counted";
        EXPECT_GE(notes, 1);
        if (policy == UJOIN_CONSOLE_SPILL) {
            EXPECT_NE(text.find("they are in " + std::string(result.stdout_path)), std::string::npos);
            EXPECT_EQ(split_lines(read_file(result.stdout_path)).size(), count + 1) << "the file has them all";
        }
    }
}

TEST(PctxStrain, console_says_that_it_has_room_again_whoever_pushes_meanwhile) {
    StuckConsole stuck;
    std::atomic<int> eased{0};
    constexpr size_t bytes = 600'000;
    ujoin::io::Console console([&] { eased++; });
    EXPECT_TRUE(console.push(1, std::string(bytes, 'a')));
    EXPECT_FALSE(console.push(1, std::string(bytes, 'b'))) << "more than a MiB: who pushed this waits now";
    stuck.read_exactly(bytes + 1); // the first is written, and the second begun: no room for more by half
    EXPECT_FALSE(console.push(1, "another worker's last line\n")) << "it is full until it has said otherwise";
    EXPECT_TRUE(console.full());
    EXPECT_EQ(eased, 0);
    stuck.read_all(
        [&] { EXPECT_TRUE(eventually([&] { return eased == 1; }, 10'000)) << "the first pusher waits for ever"; });
    EXPECT_FALSE(console.full());
}

TEST(PctxStrain, full_disk_ends_the_file_and_not_the_worker) {
    ujoin::LogFile full(ujoin::os::Fd(open("/dev/full", O_WRONLY | O_CLOEXEC)), "/dev/full", 0, 1);
    EXPECT_FALSE(full.write("a line\n"));
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_FALSE(full);
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {65536, 65536}; // a file that takes no more
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string seen;
    Job job(1, {"lines=20000"});
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_OUT;
    job.spec.output = [](void *data, int32_t, ujoin_std, const char *text, size_t size) {
        static_cast<std::string *>(data)->append(text, size);
        return ujoin_status{UJOIN_OK};
    };
    job.spec.user_data = &seen;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << "it was not stopped";
    console.end();
    EXPECT_EQ(split_lines(seen).size(), 20'000U);
    const std::string file = read_file(job.result(0).stdout_path);
    EXPECT_EQ(file.size(), 65536U);
    EXPECT_EQ(file, seen.substr(0, file.size())) << "an unbroken beginning";
    EXPECT_NE(console.err().find("takes no more output: File too large"), std::string::npos) << console.err();
}

TEST(PctxStrain, prefixes_are_coloured_by_rank_on_a_terminal) {
    unsetenv("NO_COLOR");
    for (const int32_t no_colour : {0, 1}) {
        int master = -1;
        int slave = -1;
        ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
        std::fflush(nullptr);
        const int saved = fcntl(1, F_DUPFD_CLOEXEC, 3);
        dup2(slave, 1);
        {
            Job job(2, {"out=hello\\n"});
            job.spec.log_dir = "/dev/null";
            job.spec.tee = UJOIN_STD_OUT;
            job.spec.no_colour = no_colour;
            EXPECT_EQ(job.create_and_start(), UJOIN_OK) << ujoin_last_error();
            EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        }
        dup2(saved, 1);
        close(slave); // what was written is still there, and then comes an error
        std::string text;
        char buffer[1024];
        for (ssize_t got = 0; (got = read(master, buffer, sizeof buffer)) > 0;)
            text.append(buffer, static_cast<size_t>(got));
        for (const int fd : {master, saved}) close(fd);
        EXPECT_EQ(text.find("\x1b[31m[worker0]: \x1b[0mhello") != std::string::npos, no_colour == 0) << text;
        EXPECT_EQ(text.find("\x1b[32m[worker1]: \x1b[0mhello") != std::string::npos, no_colour == 0) << text;
    }
}

TEST(PctxStrain, LAUNCHER_05_a_worker_that_cannot_be_killed_is_given_up) {
    for (const ujoin_containment containment : {UJOIN_CONTAINMENT_GROUP, UJOIN_CONTAINMENT_WARDEN}) {
        Job job(2, {"forever"});
        job.spec.containment = containment;
        ASSERT_PCTX_OK(job.create_and_start());
        g_unkillable = job.result(1).pid;
        const auto start = Clock::now();
        EXPECT_EQ(pctx_close(job.handle, 0, 100), UJOIN_E_TIMEOUT);
        EXPECT_LT(ms_since(start), at_most(100 + 1000 + 1000));
        EXPECT_NE(std::strstr(ujoin_last_error(), "rank 1"), nullptr) << ujoin_last_error();
        EXPECT_EQ(job.result(1).state, UJOIN_WORKER_UNKILLABLE);
        EXPECT_EQ(job.result(0).signal, SIGTERM);
        pctx_destroy(job.handle);
        job.handle = nullptr;
        g_unkillable = 0;
        while (waitpid(-1, nullptr, WNOHANG) > 0) { // it was given up, though it has ended
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- torture

using Commands = std::vector<std::string>;

/// What one worker of a torture run does; it ends by itself unless it says "forever".
Commands whatever(std::mt19937 &random, const Folder &folder) {
    const std::string pids = folder.file("pids");
    const std::vector<Commands> deeds = {
        {"lines=200"},
        {"errlines=100", "lines=100"},
        {"out=no end"},
        {"longline=100000"},
        {"closeout", "sleep=5"},
        {"lines=20", "closeout", "forever"},
        {"child=plain," + pids},
        {"child=setsid," + pids},
        {"child=daemon," + pids, "lines=10"},
        {"child=plain," + pids, "child=setsid," + pids, "child=daemon," + pids, "child=group," + pids, "forever"},
        {"ignoreterm", "lines=50", "forever"},
        {"forever"},
        {"sleep=10", "exit=3"},
        {"die=9"},
        {"errlines=300", "die=11"},
        {"lines=300", "die=6"},
        {"stopself"},
        {"burst=20000"},
        {"burst=100000", "errlines=100", "forever"}, // a flood
        {"record=the reason", "exit=1"},
    };
    return deeds[random() % deeds.size()];
}

/// All that a worker with these commands can write to a stream, before it ends.
std::string written_by(const Commands &commands, int rank, int stream) {
    std::string text;
    for (const std::string &command : commands) {
        const std::string name = command.substr(0, command.find('='));
        const std::string value = command.substr(std::min(command.size(), command.find('=') + 1));
        if (name == (stream == 1 ? "lines" : "errlines") || (stream == 1 && name == "burst"))
            for (int i = 0; i < std::stoi(value); i++) text += std::to_string(rank) + " line " + std::to_string(i) + "\n";
        if (stream == 1 && name == "out") text += value;
        if (stream == 1 && name == "longline") text += std::string(std::stoul(value), 'x') + "\n";
    }
    return text;
}

/// The lines of a file, as the console cuts them.
std::vector<std::string> console_form(const std::string &text) {
    std::vector<std::string> lines;
    for (const std::string &line : split_lines(text))
        for (size_t at = 0; at == 0 || at < line.size(); at += 65536) lines.push_back(line.substr(at, 65536));
    return lines;
}

/// What a console shows of each worker.
std::map<std::string, std::vector<std::string>> by_worker(const std::string &console) {
    std::map<std::string, std::vector<std::string>> shown;
    for (const std::string &line : split_lines(console))
        shown[line.substr(0, line.find(':'))].push_back(line.substr(std::min(line.size(), line.find(':') + 2)));
    return shown;
}

/// Runs and the seed of the first; each run has the next one.
struct Torture {
    unsigned runs = std::getenv("UJOIN_TEST_LONG") ? 1000 : 25;
    unsigned seed = std::random_device()();

    Torture() {
        if (const char *given = std::getenv("UJOIN_TEST_RUNS")) runs = static_cast<unsigned>(std::stoul(given));
        if (const char *given = std::getenv("UJOIN_TEST_SEED")) seed = static_cast<unsigned>(std::stoul(given));
        std::printf("UJOIN_TEST_SEED=%u UJOIN_TEST_RUNS=%u\n", seed, runs);
    }
};

/// However the job ends: nobody is left, and the console has each line of each file once.
void torture_one(std::mt19937 &random) {
    Folder folder;
    const std::string logs = folder.file("logs");
    const harness::Descriptors before = harness::open_descriptors();
    Capture console(folder);
    const int workers = 1 + static_cast<int>(random() % 6);
    Job job(workers);
    job.spec.containment = random() % 2 ? UJOIN_CONTAINMENT_BEST : UJOIN_CONTAINMENT_GROUP;
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_OUT;
    job.spec.redirects = UJOIN_STD_ERR;
    job.spec.grace_ms = 50;
    job.spec.drain_ms = 500;
    ASSERT_PCTX_OK(job.create());
    std::vector<Commands> deeds;
    for (int r = 0; r < workers; r++) {
        deeds.push_back(whatever(random, folder));
        job.set_commands(r, deeds.back());
    }
    ASSERT_PCTX_OK(pctx_start(job.handle));
    if (pctx_wait(job.handle, static_cast<int64_t>(random() % 100)) == UJOIN_PENDING) {
        const ujoin_status status = pctx_close(job.handle, 0, 50);
        ASSERT_EQ(status, UJOIN_OK) << ujoin_last_error();
    }
    console.end();
    auto shown = by_worker(console.out());
    for (int r = 0; r < workers; r++) {
        const ujoin_worker_result result = job.result(r);
        EXPECT_FALSE(runs(result.pid));
        const std::string out = read_file(result.stdout_path);
        ASSERT_EQ(shown["[worker" + std::to_string(r) + "]"], console_form(out)) << "rank " << r;
        const std::string all[] = {written_by(deeds[static_cast<size_t>(r)], r, 1),
                                   written_by(deeds[static_cast<size_t>(r)], r, 2)};
        const bool whole = !result.stopped && result.state == UJOIN_WORKER_EXITED;
        EXPECT_EQ(out, whole ? all[0] : all[0].substr(0, out.size())) << "rank " << r;
        const std::string err = read_file(result.stderr_path);
        EXPECT_EQ(err, whole ? all[1] : all[1].substr(0, err.size())) << "rank " << r;
    }
    for (const pid_t pid : noted_pids(folder.file("pids"))) {
        const bool left_session = job.spec.containment == UJOIN_CONTAINMENT_GROUP; // only a warden holds those
        EXPECT_TRUE(left_session || !runs(pid)) << pid;
        kill(pid, SIGKILL);
    }
    pctx_destroy(job.handle);
    job.handle = nullptr;
    EXPECT_EQ(harness::leaked_descriptors(before), "");
}

TEST(PctxStrain, torture) {
    const Torture plan;
    for (unsigned i = 0; i < plan.runs && !HasFailure(); i++) {
        SCOPED_TRACE("UJOIN_TEST_SEED=" + std::to_string(plan.seed + i) + " UJOIN_TEST_RUNS=1");
        std::mt19937 random(plan.seed + i); // NOLINT(cert-msc32-c,cert-msc51-cpp): the seed is told
        torture_one(random);
    }
}

/// Processes that have this variable, alive.
std::vector<pid_t> processes_with(const std::string &variable) {
    std::vector<pid_t> found;
    for (const auto &entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos || !runs(std::stoi(name))) continue;
        const std::string environment = '\0' + read_file(entry.path().string() + "/environ");
        if (environment.find('\0' + variable + '\0') != std::string::npos) found.push_back(std::stoi(name));
    }
    return found;
}

/// A launcher that is left alone, told to end, or killed in the middle of whatever its workers do.
class TorturedLauncher {
  public:
    explicit TorturedLauncher(std::mt19937 &random)
        : random_(random), workers_(1 + static_cast<int>(random() % 4)),
          fate_(std::array{left_alone, told, told, killed, killed, killed}[random() % 6]) {}

    void run() {
        start();
        std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 300)); // any moment will do
        if (fate_ == told) launcher_->signal(random_() % 2 ? SIGTERM : SIGINT);
        if (fate_ == killed) launcher_->signal(SIGKILL);
        const int status = launcher_->wait();
        ASSERT_NE(status, -1) << "the launcher has not ended";
        check_processes();
        for (int r = 0; r < workers_; r++) check_files(r);
        if (status != 1000 + SIGKILL) check_console(); // it may have ended before
        check_folder();
    }

  private:
    enum Fate { left_alone, told, killed };

    static bool endless(const Commands &commands) { return commands.back() == "forever" || commands.back() == "stopself"; }
    std::string mark() const { return "UJOIN_TORTURE=" + folder_.path.filename().string(); }
    std::string log(int rank, const char *file) const {
        return folder_.file("logs/run/attempt_0/" + std::to_string(rank) + "/" + file);
    }

    void start() {
        const char *grades[] = {"warden", "best"};
        std::vector<std::string> argv = {harness::built("bin/ujoin-run"),
                                         "--nproc-per-node=" + std::to_string(workers_),
                                         "--log-dir=" + folder_.file("logs"),
                                         "--run-id=run",
                                         "--role=worker",
                                         "--tee=1",
                                         "--redirects=2",
                                         "--shutdown-timeout=0.05",
                                         std::string("--containment=") + grades[random_() % 2],
                                         helper()};
        for (int r = 0; r < workers_; r++) {
            do {
                deeds_.resize(static_cast<size_t>(r));
                deeds_.push_back(whatever(random_, folder_));
            } while (fate_ == left_alone && endless(deeds_.back()));
            const std::string rank = std::to_string(r);
            for (const std::string &command : deeds_.back()) argv.push_back(rank + ":" + command);
            argv.push_back(rank + ":touch=" + folder_.file("done." + rank)); // it has written all
        }
        launcher_.emplace(argv, harness::Launch::Variables{{"UJOIN_TORTURE", folder_.path.filename().string()},
                                                           {"TMPDIR", folder_.path.string()},
                                                           {"NO_COLOR", "1"}});
    }

    /// The warden ends all within a second.
    void check_processes() const {
        std::vector<pid_t> left;
        EXPECT_TRUE(eventually([&] { return (left = processes_with(mark())).empty(); }, 1000))
            << left.size() << " are left";
        for (const pid_t pid : left) kill(pid, SIGKILL);
    }

    /// What is there is an unbroken beginning, and the file that the worker itself wrote is complete.
    void check_files(int rank) const {
        const Commands &deeds = deeds_[static_cast<size_t>(rank)];
        const std::string all[] = {written_by(deeds, rank, 1), written_by(deeds, rank, 2)};
        const std::string out = read_file(log(rank, "stdout.log"));
        const std::string err = read_file(log(rank, "stderr.log"));
        EXPECT_EQ(out, all[0].substr(0, out.size())) << "rank " << rank;
        EXPECT_EQ(err, all[1].substr(0, err.size())) << "rank " << rank;
        if (std::filesystem::exists(folder_.file("done." + std::to_string(rank)))) {
            EXPECT_EQ(err, all[1]) << "rank " << rank;
        }
    }

    void check_console() const {
        auto shown = by_worker(launcher_->out());
        for (int r = 0; r < workers_; r++)
            EXPECT_EQ(shown["[worker" + std::to_string(r) + "]"], console_form(read_file(log(r, "stdout.log"))))
                << "rank " << r;
    }

    /// No temporary file beside those that were asked for.
    void check_folder() const {
        for (const auto &entry : std::filesystem::directory_iterator(folder_.path)) {
            const std::string name = entry.path().filename().string();
            EXPECT_TRUE(name == "logs" || name == "pids" || name.rfind("done.", 0) == 0) << name;
        }
    }

    std::mt19937 &random_;
    const int workers_;
    const Fate fate_;
    Folder folder_;
    std::vector<Commands> deeds_;
    std::optional<harness::Launch> launcher_;
};

TEST(PctxStrain, torture_of_launchers) {
    const Torture plan;
    for (unsigned i = 0; i < plan.runs && !HasFailure(); i++) {
        SCOPED_TRACE("UJOIN_TEST_SEED=" + std::to_string(plan.seed + i) + " UJOIN_TEST_RUNS=1");
        std::mt19937 random(plan.seed + i); // NOLINT(cert-msc32-c,cert-msc51-cpp): the seed is told
        TorturedLauncher(random).run();
    }
}

} // namespace
