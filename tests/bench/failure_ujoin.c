/* SPDX-License-Identifier: Apache-2.0 */
/* From the death of a worker to the return of pctx_wait, with the other one ended; milliseconds, the median of some jobs. */
#include "bench.h"
#include <signal.h>
#include <ujoin.h>

enum { jobs = 15 };

static void check(ujoin_status status, ujoin_status wanted) {
    if (status == wanted) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

int main(void) {
    static const char *const args[] = {"1000"};
    double values[jobs];
    for (int j = 0; j < jobs; j++) {
        ujoin_pctx_spec spec = {
            .size = sizeof spec, .program = "sleep", .args = args, .arg_count = 1, .nprocs = 2, .log_dir = "/dev/null"};
        ujoin_worker_result worker = {.size = sizeof worker};
        ujoin_pctx *pctx;
        check(pctx_create(&spec, &pctx), UJOIN_OK);
        check(pctx_start(pctx), UJOIN_OK);
        check(pctx_get_result(pctx, 0, &worker), UJOIN_OK);
        double begin = bench_now_us();
        kill(worker.pid, SIGKILL);
        check(pctx_wait(pctx, -1), UJOIN_E_CHILD_FAILED);
        values[j] = (bench_now_us() - begin) / 1e3;
        pctx_destroy(pctx);
    }
    printf("0 %.6f\n", bench_median(values, jobs));
    return 0;
}
