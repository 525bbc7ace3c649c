/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher for the tests of process contexts: pctx_launcher group|warden|cgroup NPROCS PROGRAM ARGS...
 * Starts the workers, writes "started" and waits for their end. */
#include "ujoin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    ujoin_pctx_spec spec = {0};
    ujoin_pctx *pctx = NULL;
    ujoin_status status;
    char rank[16];
    int32_t r;
    if (argc < 4) return 2;
    spec.size = sizeof spec;
    spec.containment = strcmp(argv[1], "warden") == 0   ? UJOIN_CONTAINMENT_WARDEN
                       : strcmp(argv[1], "cgroup") == 0 ? UJOIN_CONTAINMENT_CGROUP
                                                        : UJOIN_CONTAINMENT_GROUP;
    spec.nprocs = atoi(argv[2]);
    spec.program = argv[3];
    spec.args = (const char *const *)(argv + 4);
    spec.arg_count = (size_t)(argc - 4);
    status = pctx_create(&spec, &pctx);
    for (r = 0; status == UJOIN_OK && r < spec.nprocs; r++) {
        snprintf(rank, sizeof rank, "%d", (int)r);
        status = pctx_set_env(pctx, r, "RANK", rank);
    }
    if (status == UJOIN_OK) status = pctx_start(pctx);
    if (status == UJOIN_OK) {
        puts("started");
        fflush(stdout);
        status = pctx_wait(pctx, -1);
    }
    if (status != UJOIN_OK) fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    pctx_destroy(pctx);
    return status == UJOIN_OK ? 0 : 1;
}
