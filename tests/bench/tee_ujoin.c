/* SPDX-License-Identifier: Apache-2.0 */
/* tee_lines beside this program, as one worker (or argv[1]) whose output goes to a file and, through cat, to /dev/null; milliseconds. */
#include "bench.h"
#include <string.h>
#include <ujoin.h>
#include <unistd.h>

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    char program[4096];
    char logs[] = "/tmp/ujoin-bench-XXXXXX";
    char command[4200];
    const char *slash = strrchr(argv[0], '/');
    const int saved = dup(1);
    FILE *cat = popen("cat >/dev/null", "w");
    if (!mkdtemp(logs) || !cat || !slash) return 1;
    snprintf(program, sizeof program, "%.*s/tee_lines", (int)(slash - argv[0]), argv[0]);
    dup2(fileno(cat), 1);
    ujoin_pctx_spec spec = {.size = sizeof spec,
                            .program = program,
                            .nprocs = argc > 1 ? atoi(argv[1]) : 1,
                            .log_dir = logs,
                            .tee = UJOIN_STD_OUT};
    ujoin_pctx *pctx;
    double begin = bench_now_us();
    check(pctx_create(&spec, &pctx));
    check(pctx_start(pctx));
    check(pctx_wait(pctx, -1));
    double end = bench_now_us();
    pctx_destroy(pctx);
    dup2(saved, 1);
    pclose(cat);
    snprintf(command, sizeof command, "rm -rf %s", logs);
    if (system(command) != 0) return 1;
    printf("0 %.6f\n", (end - begin) / 1e3);
    return 0;
}
