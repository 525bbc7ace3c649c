// SPDX-License-Identifier: Apache-2.0
#include "run/options.hpp"
#include "run/devices.hpp"
#include "ujoin.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

/// The end of the option's variable: its first long name in capitals.
std::string variable(const std::string &names) {
    const size_t begin = names.find("--") + 2;
    std::string name = names.substr(begin, std::min(names.find(',', begin), names.size()) - begin);
    for (char &c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
}

/// The variable that gives an option's default: UJOIN_X, else PET_X.
std::string chosen_variable(const std::string &names) {
    const std::string own = "UJOIN_" + variable(names);
    const char *given = std::getenv(own.c_str());
    return given && *given ? own : "PET_" + variable(names);
}

template <class Value>
CLI::Option *value_option(CLI::App &app, const std::string &names, Value &value, const std::string &text) {
    return app.add_option(spellings(names), value, text)->envname(chosen_variable(names))->capture_default_str();
}

/// A flag; its variable is a number (not 0 = set), or true or false.
void flag_option(CLI::App &app, const std::string &names, bool &value, const std::string &text) {
    app.add_flag(spellings(names), value, text);
    const std::string name = chosen_variable(names);
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
are run by $PYTHON_EXEC (default python3). The default of --some-option can be given as UJOIN_SOME_OPTION or
PET_SOME_OPTION. Launchers of several hosts that share UJOIN_SECRET refuse everybody else.

Exit status: 0; that of the worker that failed first, or 128 plus its signal; 128 plus the signal that ended this
program; 2 wrong usage; 126 and 127 a program that cannot be executed or is not there.)";

class Help : public CLI::Formatter {
  public:
    Help() { column_width(34); }
    std::string make_usage(const CLI::App *, std::string) const override {
        return "Usage: ujoin-run [options] program [its arguments]\n";
    }
};

size_t distance(const std::string &a, const std::string &b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); j++) row[j] = j;
    for (size_t i = 1; i <= a.size(); i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); j++) {
            const size_t above = row[j];
            row[j] = std::min({above + 1, row[j - 1] + 1, corner + (a[i - 1] == b[j - 1] ? 0 : 1)});
            corner = above;
        }
    }
    return row[b.size()];
}

std::vector<std::string> long_names(const CLI::App &app) {
    std::vector<std::string> names;
    for (const CLI::Option *option : app.get_options())
        for (const std::string &name : option->get_lnames())
            if (name.find('_') == std::string::npos) names.push_back("--" + name);
    return names;
}

int32_t processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int32_t whole_number(const std::string &text, int32_t least, const std::string &option, const char *expected) {
    int32_t number = 0;
    const char *end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, number);
    if (code != std::errc{} || stop != end || number < least)
        throw Exit(exit_usage, option + " has \"" + text + "\"; expected " + expected);
    return number;
}

int32_t worker_count(const std::string &text) {
    const int32_t found = accelerators();
    if (text == "cpu") return processors();
    if (text == "auto") return found > 0 ? found : processors();
    if (text == "gpu" || text == "xpu") {
        if (found > 0) return found;
        throw Exit(exit_usage, "--nproc-per-node is \"" + text + "\", but there are no accelerators on this machine");
    }
    return whole_number(text, 1, "--nproc-per-node", "a number from 1 on, \"cpu\", \"gpu\" or \"auto\"");
}

/// N, or MIN:MAX.
void read_nodes(Options &options) {
    const std::vector<std::string> parts = split(options.nnodes, ':');
    const char *expected = "N or MIN:MAX, hosts from 1 on";
    if (parts.empty() || parts.size() > 2)
        throw Exit(exit_usage, "--nnodes is \"" + options.nnodes + "\"; expected " + expected);
    options.min_nodes = whole_number(parts[0], 1, "--nnodes", expected);
    options.max_nodes = parts.size() == 2 ? whole_number(parts[1], 1, "--nnodes", expected) : options.min_nodes;
    if (options.max_nodes < options.min_nodes)
        throw Exit(exit_usage, "--nnodes is \"" + options.nnodes + "\"; the first number is the larger one");
    if (options.node_rank < 0 || (options.node_rank_given && options.node_rank >= options.max_nodes))
        throw Exit(exit_usage, "--node-rank is " + std::to_string(options.node_rank) + "; expected 0 to " +
                                   std::to_string(options.max_nodes - 1));
}

/// A signal by its name, with or without SIG; 0 if there is none that can be handled.
int signal_of(const std::string &name) {
    for (int number = 1; number < NSIG; number++) {
        const char *known = sigabbrev_np(number);
        if (!known || number == SIGKILL || number == SIGSTOP) continue;
        if (name == known || name == std::string("SIG") + known) return number;
    }
    return 0;
}

/// Names that are no signal's are said and left out.
void read_signals(Options &options) {
    if (!options.stop_signal.empty() && (options.stop_on = signal_of(options.stop_signal)) == 0)
        throw Exit(exit_usage, "--stop-signal is \"" + options.stop_signal + "\", which is no signal that can be handled");
    for (const std::string &name : split(options.signals, ',')) {
        const int found = signal_of(name);
        if (found == 0) {
            std::fprintf(stderr,
                         "ujoin-run: warning: --signals-to-handle has \"%s\", which is no signal that can be handled\n",
                         name.c_str());
        } else {
            options.handled.push_back(found);
        }
    }
}

template <size_t N> void one_of(const std::string &value, const char *option, const char *const (&known)[N]) {
    if (std::find(std::begin(known), std::end(known), value) != std::end(known)) return;
    std::string list;
    for (const char *word : known) list += std::string(list.empty() ? "" : ", ") + word;
    throw Exit(exit_usage, std::string(option) + " is \"" + value + "\"; expected one of: " + list);
}

void check_words(const Options &options) {
    one_of(options.rdzv_backend, "--rdzv-backend", {"static", "c10d"});
    one_of(options.start_method, "--start-method", {"spawn", "fork", "forkserver"});
    one_of(options.console, "--console", {"block", "drop", "spill"});
    one_of(options.status_line, "--status-line", {"auto", "off"});
    one_of(options.containment, "--containment", {"warden", "cgroup", "best"});
    one_of(options.numa_binding.empty() ? "none" : options.numa_binding, "--numa-binding",
           {"none", "spread", "compact", "node", "socket", "exclusive", "core-complex"});
    one_of(options.logs_specs.empty() ? "default" : options.logs_specs, "--logs-specs", {"default"});
    one_of(options.event_log_handler, "--event-log-handler", {"null", "console"});
}

void check(Options &options, std::vector<std::string> rest, const std::vector<std::string> &known) {
    if (options.info) return;
    const bool marked = !rest.empty() && rest.front() == "--";
    if (marked) rest.erase(rest.begin());
    if (!marked && !rest.empty() && rest.front().size() > 1 && rest.front().front() == '-') {
        std::string name = rest.front().substr(0, rest.front().find('='));
        std::replace(name.begin() + 2, name.end(), '_', '-');
        const std::string near = nearest(name, known);
        throw Exit(exit_usage, "option " + rest.front() + " is unknown; " +
                                   (near.empty() ? "see ujoin-run --help" : "did you mean " + near + "?"));
    }
    if (options.function.empty() && (rest.empty() || rest.front().empty()))
        throw Exit(exit_usage, "no program given. Usage: ujoin-run [options] program [its arguments]");
    read_nodes(options);
    options.workers = worker_count(options.nproc_per_node);
    if (options.module && options.no_python && !options.run_path)
        throw Exit(exit_usage, "--module and --no-python exclude each other");
    if (options.master_port < 0 || options.master_port > 65535)
        throw Exit(exit_usage, "--master-port is " + std::to_string(options.master_port) + "; expected 0 to 65535");
    constexpr double longest = 1e9;
    if (!(options.grace >= 0 && options.grace <= longest))
        throw Exit(exit_usage, "--shutdown-timeout is not a number of seconds from 0 on");
    if (!(options.monitor_interval >= 0)) throw Exit(exit_usage, "--monitor-interval is not a number of seconds from 0 on");
    if (options.max_restarts < 0)
        throw Exit(exit_usage, "--max-restarts is " + std::to_string(options.max_restarts) + "; expected 0 or more");
    check_words(options);
    for (const std::string &rank : split(options.local_ranks_filter, ','))
        options.console_ranks.push_back(
            whole_number(rank, 0, "--local-ranks-filter", "local ranks with commas between them"));
    read_signals(options);
    if (options.function.empty()) {
        options.program = rest.front();
        rest.erase(rest.begin());
    } else {
        options.program = options.function;
    }
    options.args = std::move(rest);
}

std::string completion(const std::string &shell, const std::vector<std::string> &names) {
    std::string words;
    for (const std::string &name : names) words += (words.empty() ? "" : " ") + name;
    if (shell == "bash")
        return "_ujoin_run() {\n    local word=${COMP_WORDS[COMP_CWORD]}\n    if [[ $word == -* ]]; then\n"
               "        COMPREPLY=($(compgen -W '" +
               words +
               "' -- \"$word\"))\n    else\n        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
               "complete -o filenames -F _ujoin_run ujoin-run\n";
    if (shell == "zsh") return "#compdef ujoin-run\n_arguments " + words + " '*:file:_files'\n";
    if (shell == "fish") {
        std::string text;
        for (const std::string &name : names) text += "complete -c ujoin-run -l " + name.substr(2) + "\n";
        return text;
    }
    throw Exit(exit_usage, "--completion is \"" + shell + "\"; expected bash, zsh or fish");
}

} // namespace

std::vector<std::string> split(const std::string &text, char at) {
    std::vector<std::string> parts;
    for (size_t begin = 0; !text.empty() && begin <= text.size();) {
        const size_t end = std::min(text.find(at, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

std::string nearest(const std::string &word, const std::vector<std::string> &known) {
    std::string best;
    size_t best_distance = std::max<size_t>(2, word.size() / 3);
    for (const std::string &candidate : known) {
        const size_t found = distance(word, candidate);
        if (found < best_distance || (found == best_distance && best.empty())) {
            best = candidate;
            best_distance = found;
        }
    }
    return best;
}

bool shows_status(const Options &options) {
    const char *terminal = std::getenv("TERM");
    return options.status_line == "auto" && terminal && std::strcmp(terminal, "dumb") != 0;
}

namespace {

void add_options(CLI::App &app, Options &options) {
    value_option(app, "--nproc-per-node", options.nproc_per_node,
                 "workers: a number, cpu, gpu, or auto (one per accelerator, else per processor)");
    value_option(app, "--nnodes", options.nnodes, "hosts: N, or MIN:MAX");
    value_option(app, "--node-rank", options.node_rank, "this host's number, from 0 on")
        ->each([&options](const std::string &) { options.node_rank_given = true; });
    value_option(app, "--rdzv-backend", options.rdzv_backend,
                 "static (hosts are numbered by --node-rank) or c10d (as they come); both meet at the endpoint");
    value_option(app, "--rdzv-endpoint", options.rdzv_endpoint,
                 "host:port where launchers of several hosts meet (default: MASTER_ADDR and the port after MASTER_PORT)");
    value_option(app, "--rdzv-id,--run-id", options.run_id, "the job's name (default: a random one)");
    value_option(app, "--rdzv-conf", options.rdzv_conf, "name=value,...: join_timeout and last_call_timeout, in seconds");
    flag_option(app, "--standalone", options.standalone, "one host, a free port for MASTER_PORT and a name of its own");
    value_option(app, "--max-restarts", options.max_restarts, "how often all workers are started again after a failure");
    value_option(app, "--monitor-interval", options.monitor_interval, "accepted; the end of a worker is noticed at once");
    value_option(app, "--start-method", options.start_method, "of --function: spawn, fork or forkserver");
    value_option(app, "--role", options.role, "ROLE_NAME, and the workers' name in prefixes and reports");
    flag_option(app, "-m,--module", options.module, "the program is the name of a Python module");
    flag_option(app, "--no-python", options.no_python, "execute the program itself, whatever its name");
    flag_option(app, "--run-path", options.run_path, "the program is a Python script, whatever its name");
    value_option(app, "--function", options.function, "workers run this function: library.so:symbol, an ujoin_worker_fn");
    value_option(app, "--log-dir", options.log_dir, "where log files go (default with -r or -t: a temporary directory)");
    value_option(app, "-r,--redirects", options.redirects,
                 "to files only: 0 nothing, 1 stdout, 2 stderr, 3 both, or rank:value,...");
    value_option(app, "-t,--tee", options.tee, "to files and, with a prefix, to the console; values as for -r");
    value_option(app, "--local-ranks-filter", options.local_ranks_filter, "only these local ranks on the console: 0,1,...");
    value_option(app, "--duplicate-stdout-filters", options.stdout_filters,
                 "lines that --tee shows and that have one of these words also go to filtered_stdout.log");
    value_option(app, "--duplicate-stderr-filters", options.stderr_filters, "the same for stderr");
    value_option(app, "--logs-specs", options.logs_specs, "default: there is no other");
    value_option(app, "--event-log-handler", options.event_log_handler, "null, or console: ends of workers on stderr");
    value_option(app, "--console", options.console,
                 "a console that is too slow: block the workers, drop lines, or spill them");
    value_option(
        app, "--containment", options.containment,
        "what holds workers and their descendants: warden, cgroup (version 2, where this user may make one), or best "
        "(cgroup if possible)");
    value_option(app, "--rotate-bytes", options.rotate_bytes, "begin a new log file at this size");
    value_option(app, "--status-line", options.status_line,
                 "auto (the terminal's last line, where output goes through -r or -t) or off");
    flag_option(app, "--timestamps", options.timestamps, "the time before each line with a prefix");
    value_option(app, "--master-addr", options.master_addr, "MASTER_ADDR of the workers");
    value_option(app, "--master-port", options.master_port, "MASTER_PORT of the workers");
    value_option(app, "--local-addr", options.local_addr, "this host's address for the others");
    value_option(
        app, "--signals-to-handle", options.signals,
        "signals that end the job; USR1 and USR2, if named, are only passed on; QUIT first prints what the workers do, "
        "and ends the job only if it is named here")
        ->each([&options](const std::string &) { options.signals_given = true; });
    value_option(app, "--stop-signal", options.stop_signal,
                 "the first of this signal asks the workers for an agreed stop, and ends nobody");
    value_option(app, "--shutdown-timeout,--grace", options.grace, "seconds between the polite signal and SIGKILL");
    value_option(app, "--numa-binding", options.numa_binding, "processors of the workers: none, spread or compact (node)");
    flag_option(app, "--virtual-local-rank", options.virtual_local_rank,
                "LOCAL_RANK=0, and one visible accelerator, for every worker");
    value_option(app, "--json", options.json, "write the result to this file, - for stdout");
    app.add_flag("--dry-run,--dry_run", options.dry_run, "say what would be started, and start nothing");
    app.add_option("--completion", options.completion, "print completions for bash, zsh or fish");
    app.add_flag("--info", options.info, "print the version and what this build and machine can do");
    app.set_version_flag("--version", std::string("ujoin-run ") + ujoin_version());
}

void choose_prefix(Options &options) {
    const char *given = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    if (given && *given) options.prefix = given;
    if (!options.timestamps) return;
    options.prefix = "${time} " + (options.prefix.empty() ? std::string("[${role_name}${rank}]: ") : options.prefix);
}

} // namespace

Options parse(int argc, char **argv) {
    Options options;
    CLI::App app{"Starts one job: several workers of a program on this host or on several, and ends them together.",
                 "ujoin-run"};
    app.formatter(std::make_shared<Help>());
    app.prefix_command(); // from the program's name on, everything is the program's
    app.footer(footer);
    add_options(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        throw Exit(0, app.help());
    } catch (const CLI::CallForVersion &) {
        throw Exit(0, std::string("ujoin-run ") + ujoin_version() + "\n");
    } catch (const CLI::ParseError &error) {
        throw Exit(exit_usage, error.what());
    }
    if (!options.completion.empty()) throw Exit(0, completion(options.completion, long_names(app)));
    if (std::getenv("PET_NODE_RANK") || std::getenv("UJOIN_NODE_RANK")) options.node_rank_given = true;
    if (std::getenv("PET_SIGNALS_TO_HANDLE") || std::getenv("UJOIN_SIGNALS_TO_HANDLE")) options.signals_given = true;
    check(options, app.remaining(), long_names(app));
    choose_prefix(options);
    return options;
}

} // namespace ujoin_run
