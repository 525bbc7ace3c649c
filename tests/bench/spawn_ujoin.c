/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and reaps 256 workers that end at once, as one job; milliseconds, the median of some jobs. spawn_ujoin [GiB]: with so
 * much memory in use. */
#include "bench.h"
#include <ujoin.h>

enum { workers = 256, jobs = 5 };

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    double values[jobs];
    bench_fill_memory(argc > 1 ? argv[1] : NULL);
    for (int j = 0; j < jobs; j++) {
        ujoin_pctx_spec spec = {.size = sizeof spec, .program = "/bin/true", .nprocs = workers, .log_dir = "/dev/null"};
        ujoin_pctx *pctx;
        double begin = bench_now_us();
        check(pctx_create(&spec, &pctx));
        check(pctx_start(pctx));
        check(pctx_wait(pctx, -1));
        pctx_destroy(pctx);
        values[j] = (bench_now_us() - begin) / 1e3;
    }
    printf("0 %.6f\n", bench_median(values, jobs));
    return 0;
}
