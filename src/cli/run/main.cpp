// SPDX-License-Identifier: Apache-2.0
// ujoin-run: starts the workers of a job and ends them together.
#include "run/attempts.hpp"
#include "run/init.hpp"
#include "run/nodes.hpp"
#include "run/options.hpp"
#include "run/say.hpp"
#include "run/signals.hpp"
#include <cstdio>

namespace {

void show_warning(void *, ujoin_log_level level, const char *text) {
    ujoin_run::say(std::string("ujoin-run: ") + (level <= UJOIN_LOG_WARNING ? "warning: " : "") + text + "\n");
}

int run(int argc, char **argv) {
    using namespace ujoin_run;
    try {
        const Options options = parse(argc, argv);
        if (options.info) {
            std::printf("ujoin %s\n%s", ujoin_version(), ujoin_backends());
            return 0;
        }
        if (options.dry_run) {
            Options alone = options;
            alone.min_nodes = alone.max_nodes = 1;
            std::fputs(describe(options, Nodes(alone).meet(0)).c_str(), stdout);
            return 0;
        }
        if (shows_status(options)) expect_status_line();
        become_init_if_needed();
        ujoin_set_log_sink(options.event_log_handler == "console" ? UJOIN_LOG_INFO : UJOIN_LOG_WARNING, show_warning,
                           nullptr, nullptr);
        SignalForwarder signals(options.handled, options.stop_on, options.signals_given, options.workers);
        Nodes nodes(options);
        return run_attempts(options, nodes, signals);
    } catch (const Exit &end) {
        if (end.code() == 0) {
            std::fputs(end.what(), stdout);
        } else {
            std::fprintf(stderr, "ujoin-run: %s\n", end.what());
        }
        return end.code();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "ujoin-run: %s\n", error.what());
        return exit_usage;
    }
}

} // namespace

int main(int argc, char **argv) {
    int32_t code = 0;
    if (pctx_worker_main(&code)) return code; // --function: this program is its workers
    return run(argc, argv);
}
