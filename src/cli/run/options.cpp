// SPDX-License-Identifier: Apache-2.0
#include "run/options.hpp"
#include "ujoin.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sched.h>

namespace ujoin_run {
namespace {

/// "--log-dir" as "--log-dir,--log_dir"; further names follow after commas.
std::string spellings(const std::string &names) {
    std::string all = names;
    for (size_t begin = 0; begin < names.size();) {
        const size_t end = std::min(names.find(',', begin), names.size());
        std::string name = names.substr(begin, end - begin);
        if (name.compare(0, 2, "--") == 0 && name.find('-', 2) != std::string::npos) {
            std::replace(name.begin() + 2, name.end(), '-', '_');
            all += "," + name;
        }
        begin = end + 1;
    }
    return all;
}

/// The option's variable: PET_ and its first long name in capitals.
std::string variable(const std::string &names) {
    const size_t begin = names.find("--") + 2;
    std::string name = names.substr(begin, std::min(names.find(',', begin), names.size()) - begin);
    for (char &c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return "PET_" + name;
}

template <class Value>
CLI::Option *value_option(CLI::App &app, const std::string &names, Value &value, const std::string &text) {
    return app.add_option(spellings(names), value, text)->envname(variable(names))->capture_default_str();
}

/// A flag; its variable is a number (not 0 = set), or true or false.
void flag_option(CLI::App &app, const std::string &names, bool &value, const std::string &text) {
    app.add_flag(spellings(names), value, text);
    const std::string name = variable(names);
    const char *given = std::getenv(name.c_str());
    if (!given || !*given) return;
    std::string lower = given;
    for (char &c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    int number = 0;
    const char *end = lower.data() + lower.size();
    const auto [stop, code] = std::from_chars(lower.data(), end, number);
    if (code == std::errc{} && stop == end) {
        value = number != 0;
    } else if (lower == "true" || lower == "false") {
        value = lower == "true";
    } else {
        throw Exit(exit_usage, name + " is \"" + given + "\"; expected 1 or 0");
    }
}

constexpr const char *footer =
    R"(Workers find RANK, WORLD_SIZE, MASTER_ADDR and the like in their environment, and OMP_NUM_THREADS=1 if there are
several and it is not set. ${local_rank} in an argument is replaced. A program that ends in .py and a module (-m)
are run by $PYTHON_EXEC (default python3). The default of --some-option can be given as PET_SOME_OPTION.

Exit status: 0; that of the worker that failed first, or 128 plus its signal; 128 plus the signal that ended this
program; 2 wrong usage; 126 and 127 a program that cannot be executed or is not there.)";

class Help : public CLI::Formatter {
  public:
    Help() { column_width(34); }
    std::string make_usage(const CLI::App *, std::string) const override {
        return "Usage: ujoin-run [options] program [its arguments]\n";
    }
};

/// Options of torchrun that mean something else than one job on one host, started once.
bool known_elsewhere(const std::string &option) {
    static const char *const names[] = {
        "--rdzv-backend",     "--rdzv-endpoint",     "--rdzv-conf",    "--max-restarts",       "--node-rank",
        "--monitor-interval", "--start-method",      "--run-path",     "--local-addr",         "--local-ranks-filter",
        "--logs-specs",       "--signals-to-handle", "--numa-binding", "--virtual-local-rank", "--event-log-handler"};
    std::string name = option.substr(0, option.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

int32_t processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int32_t worker_count(const std::string &text) {
    if (text == "cpu" || text == "auto") return processors();
    if (text == "gpu" || text == "xpu")
        throw Exit(exit_usage, "--nproc-per-node is \"" + text + "\", but this version knows no accelerators");
    int32_t count = 0;
    const char *end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, count);
    if (code != std::errc{} || stop != end || count < 1)
        throw Exit(exit_usage, "--nproc-per-node is \"" + text + "\"; expected a number from 1 on, \"cpu\" or \"auto\"");
    return count;
}

/// One host is all that this version does. MIN:MAX that includes one host means one.
void check_nodes(const std::string &text) {
    if (text == "1" || text == "1:1") return;
    throw Exit(exit_usage, "--nnodes is \"" + text + "\"; this version runs jobs on one host: --nnodes 1");
}

void check(Options &options, std::vector<std::string> rest) {
    if (options.info) return;
    const bool marked = !rest.empty() && rest.front() == "--";
    if (marked) rest.erase(rest.begin());
    if (!marked && !rest.empty() && rest.front().size() > 1 && rest.front().front() == '-')
        throw Exit(exit_usage,
                   "option " + rest.front() +
                       (known_elsewhere(rest.front()) ? " is not in this version" : " is unknown; see ujoin-run --help"));
    if (rest.empty() || rest.front().empty())
        throw Exit(exit_usage, "no program given. Usage: ujoin-run [options] program [its arguments]");
    check_nodes(options.nnodes);
    options.workers = worker_count(options.nproc_per_node);
    if (options.module && options.no_python) throw Exit(exit_usage, "--module and --no-python exclude each other");
    if (options.master_port < 0 || options.master_port > 65535)
        throw Exit(exit_usage, "--master-port is " + std::to_string(options.master_port) + "; expected 0 to 65535");
    constexpr double longest = 1e9;
    if (!(options.grace >= 0 && options.grace <= longest))
        throw Exit(exit_usage, "--shutdown-timeout is not a number of seconds from 0 on");
    options.program = rest.front();
    options.args.assign(rest.begin() + 1, rest.end());
}

} // namespace

Options parse(int argc, char **argv) {
    Options options;
    CLI::App app{"Starts one job: several workers of a program on this host, and ends them together.", "ujoin-run"};
    app.formatter(std::make_shared<Help>());
    app.prefix_command(); // from the program's name on, everything is the program's
    app.footer(footer);
    value_option(app, "--nproc-per-node", options.nproc_per_node, "workers: a number, cpu or auto (one per processor)");
    value_option(app, "--nnodes", options.nnodes, "hosts: 1");
    flag_option(app, "--standalone", options.standalone, "a free port for MASTER_PORT and a name of its own");
    value_option(app, "--log-dir", options.log_dir, "where log files go (default with -r or -t: a temporary directory)");
    value_option(app, "-r,--redirects", options.redirects,
                 "to files only: 0 nothing, 1 stdout, 2 stderr, 3 both, or rank:value,...");
    value_option(app, "-t,--tee", options.tee, "to files and, with a prefix, to the console; values as for -r");
    flag_option(app, "--no-python", options.no_python, "execute the program itself, whatever its name");
    flag_option(app, "-m,--module", options.module, "the program is the name of a Python module");
    value_option(app, "--role", options.role, "ROLE_NAME, and the workers' name in prefixes and reports");
    value_option(app, "--rdzv-id,--run-id", options.run_id, "the job's name (default: a random one)");
    value_option(app, "--master-addr", options.master_addr, "MASTER_ADDR of the workers");
    value_option(app, "--master-port", options.master_port, "MASTER_PORT of the workers");
    value_option(app, "--shutdown-timeout,--grace", options.grace, "seconds between the polite signal and SIGKILL");
    app.add_flag("--info", options.info, "print the version and what this build and machine can do");
    app.set_version_flag("--version", std::string("ujoin-run ") + ujoin_version());
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        throw Exit(0, app.help());
    } catch (const CLI::CallForVersion &) {
        throw Exit(0, std::string("ujoin-run ") + ujoin_version() + "\n");
    } catch (const CLI::ParseError &error) {
        throw Exit(exit_usage, error.what());
    }
    check(options, app.remaining());
    return options;
}

} // namespace ujoin_run
