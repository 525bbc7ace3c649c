/* SPDX-License-Identifier: Apache-2.0 */
/* The same by a bare loop: poll on the pidfds of two children, one dies, the other is ended and both are reaped. */
#define _GNU_SOURCE
#include "bench.h"
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { jobs = 15 };

int main(void) {
    static char program[] = "sleep";
    static char time[] = "1000";
    char *argv[] = {program, time, NULL};
    double values[jobs];
    for (int j = 0; j < jobs; j++) {
        pid_t pids[2];
        struct pollfd items[2];
        for (int i = 0; i < 2; i++) {
            if (posix_spawnp(&pids[i], program, NULL, NULL, argv, environ) != 0) return 1;
            items[i] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, pids[i], 0), .events = POLLIN};
            if (items[i].fd < 0) return 1;
        }
        double begin = bench_now_us();
        kill(pids[0], SIGKILL);
        poll(items, 2, -1);
        kill(pids[1], SIGTERM);
        poll(items + 1, 1, -1);
        for (int i = 0; i < 2; i++) {
            waitpid(pids[i], NULL, 0);
            close(items[i].fd);
        }
        values[j] = (bench_now_us() - begin) / 1e3;
    }
    printf("0 %.6f\n", bench_median(values, jobs));
    return 0;
}
