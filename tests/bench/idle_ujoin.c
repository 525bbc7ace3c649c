/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for 256 silent workers whose streams are teed: 1 + how often the library's threads wake up in 10 s, and how many there
 * are. */
#include "bench.h"
#include <dirent.h>
#include <ujoin.h>
#include <unistd.h>

enum { workers = 256 };

static void check(ujoin_status status, ujoin_status wanted) {
    if (status == wanted) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

/* Of all threads but this one. */
static long look(int *threads) {
    long switches = 0;
    DIR *tasks = opendir("/proc/self/task");
    *threads = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[256];
        FILE *file;
        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid()) continue;
        ++*threads;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        if (!(file = fopen(path, "r"))) continue;
        while (fgets(line, sizeof line, file))
            if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0) switches += atol(line + 24);
        fclose(file);
    }
    closedir(tasks);
    return switches;
}

int main(void) {
    static const char *const args[] = {"1000"};
    ujoin_pctx_spec spec = {.size = sizeof spec,
                            .program = "sleep",
                            .args = args,
                            .arg_count = 1,
                            .nprocs = workers,
                            .log_dir = "/dev/null",
                            .tee = UJOIN_STD_ALL};
    ujoin_pctx *pctx;
    long before;
    int threads;
    check(pctx_create(&spec, &pctx), UJOIN_OK);
    check(pctx_start(pctx), UJOIN_OK);
    check(pctx_wait(pctx, 1000), UJOIN_PENDING);
    before = look(&threads);
    check(pctx_wait(pctx, 10000), UJOIN_PENDING);
    printf("0 %ld\n1 %d\n", 1 + look(&threads) - before, threads);
    check(pctx_close(pctx, 9, 0), UJOIN_OK);
    pctx_destroy(pctx);
    return 0;
}
