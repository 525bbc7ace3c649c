/* SPDX-License-Identifier: Apache-2.0 */
/* One notify per iteration of a join context in which nobody joins before the end; microseconds per iteration, the median
 * over passes: 0 as such, 1 in throw mode, where each notify waits for the others'. Usage: heartbeat_ujoin RANK SIZE RENDEZVOUS */
#include "bench.h"
#include <ujoin.h>

enum { passes = 21, rounds = 20000 };

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void measure(ujoin_group *group, ujoin_joinable *joinable, int32_t throws) {
    double values[passes];
    ujoin_ctx *ctx;
    ujoin_ctx_options options = {.size = sizeof options, .throw_on_exhausted = throws};
    check(ujoin_ctx_create(&joinable, 1, &options, &ctx));
    for (int p = 0; p < passes; p++) {
        check(ujoin_barrier(group, NULL));
        double begin = bench_now_us();
        check(ujoin_ctx_start(ctx));
        for (int i = 0; i < rounds; i++) check(ujoin_joinable_notify(joinable, NULL));
        check(ujoin_ctx_finish(ctx)); /* all have had as many: nobody throws */
        values[p] = (bench_now_us() - begin) / rounds;
    }
    printf("%d %.6f\n", (int)throws, bench_median(values, passes));
    ujoin_ctx_destroy(ctx);
}

int main(int argc, char **argv) {
    ujoin_group *group;
    ujoin_joinable *joinable;
    if (argc != 4) return 2;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = argv[3], .backend = "shm"};
    options.rank = atoi(argv[1]);
    options.world_size = atoi(argv[2]);
    ujoin_hooks hooks = {.size = sizeof hooks};
    check(ujoin_group_create(&options, &group));
    check(ujoin_joinable_create(group, &hooks, &joinable));
    measure(group, joinable, 0);
    measure(group, joinable, 1);
    ujoin_joinable_destroy(joinable);
    ujoin_group_destroy(group);
    return 0;
}
