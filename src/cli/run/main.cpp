// SPDX-License-Identifier: Apache-2.0
// ujoin-run: starts the workers of a job and ends them together.
#include "run/job.hpp"
#include "run/options.hpp"
#include "run/signals.hpp"
#include <cstdio>

int main(int argc, char **argv) {
    using namespace ujoin_run;
    try {
        const Options options = parse(argc, argv);
        if (options.info) {
            std::printf("ujoin %s\n%s", ujoin_version(), ujoin_backends());
            return 0;
        }
        SignalForwarder signals;
        const Job job = make_job(options);
        return run_job(options, job.get(), signals);
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
