/* SPDX-License-Identifier: Apache-2.0 */
/* The same by a bare loop of posix_spawn and waitpid. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
enum { workers = 256, jobs = 5 };

int main(int argc, char **arguments) {
    static char program[] = "/bin/true";
    char *argv[] = {program, NULL};
    double values[jobs];
    bench_fill_memory(argc > 1 ? arguments[1] : NULL);
    for (int j = 0; j < jobs; j++) {
        pid_t pids[workers];
        double begin = bench_now_us();
        for (int i = 0; i < workers; i++)
            if (posix_spawn(&pids[i], program, NULL, NULL, argv, environ) != 0) return 1;
        for (int i = 0; i < workers; i++) waitpid(pids[i], NULL, 0);
        values[j] = (bench_now_us() - begin) / 1e3;
    }
    printf("0 %.6f\n", bench_median(values, jobs));
    return 0;
}
