/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher of functions: pctx_functions METHOD COUNT FILE starts COUNT workers that note their numbers in FILE and sleep;
 * the first TERM, INT, HUP or QUIT that it gets is the one that it closes them with. */
#define _GNU_SOURCE
#include "../harness/worker_functions.h"

int main(int argc, char **argv) {
    const int list[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    ujoin_pctx_spec spec = {0};
    ujoin_pctx *pctx;
    sigset_t wanted;
    int32_t code = 0;
    int got = 0;
    register_test_functions();
    if (pctx_worker_main(&code)) return code;
    if (argc != 4) return 2;
    sigemptyset(&wanted);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) sigaddset(&wanted, list[i]);
    spec.size = sizeof spec;
    spec.function = "sleep_on";
    spec.args = (const char *const *)argv + 3;
    spec.arg_count = 1;
    spec.start_method = atoi(argv[1]);
    spec.nprocs = atoi(argv[2]);
    if (pctx_create(&spec, &pctx) != UJOIN_OK || pctx_start(pctx) != UJOIN_OK) {
        fprintf(stderr, "%s\n", ujoin_last_error());
        return 3;
    }
    sigprocmask(SIG_BLOCK, &wanted, NULL); /* not before: workers begin with this mask */
    sigwait(&wanted, &got);
    if (pctx_close(pctx, got, 5000) != UJOIN_OK) return 4;
    pctx_destroy(pctx);
    return 0;
}
