/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that trains until it is asked to stop: join_stopper STEP [FILE [launcher]]. At that step rank 0 sends SIGTERM to
 * itself, or, where a file is named, makes that file, so that somebody else sends it. With `launcher` SIGTERM would kill it. Prints "RANK left after N steps, asked in step M" (M counts on rank 0 alone). */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ujoin.h>
#include <unistd.h>

enum { most = 1000000 };
static ujoin_ctx *ctx;

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void ask(int signal_number) {
    (void)signal_number;
    ujoin_ctx_stop(ctx);
}

static void request(const char *path) {
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!path) kill(getpid(), SIGTERM);
    if (path && (!file || fclose(file) != 0)) exit(99);
}

int main(int argc, char **argv) {
    ujoin_group *group;
    ujoin_joinable *joinable;
    ujoin_hooks hooks;
    struct sigaction action;
    int steps = 0, at, stopped = 0;
    if (argc < 2 || argc > 4) return 2;
    at = atoi(argv[1]);
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    check(ujoin_group_create(NULL, &group));
    check(ujoin_joinable_create(group, &hooks, &joinable));
    check(ujoin_ctx_create(&joinable, 1, NULL, &ctx));
    memset(&action, 0, sizeof action);
    action.sa_handler = argc == 4 ? SIG_DFL : ask;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, NULL);
    check(ujoin_barrier(group, NULL)); /* every rank has its handler */
    check(ujoin_ctx_start(ctx));
    while (steps < most && !stopped) {
        double one = 1;
        ujoin_buffer buffer;
        memset(&buffer, 0, sizeof buffer);
        buffer.data = &one;
        buffer.count = 1;
        buffer.dtype = UJOIN_F64;
        if (ujoin_group_rank(group) == 0 && steps == at) request(argc > 2 ? argv[2] : NULL);
        check(ujoin_joinable_notify(joinable, NULL));
        check(ujoin_all_reduce(group, NULL, &buffer, UJOIN_SUM, NULL, NULL));
        steps++;
        stopped = ujoin_ctx_stopped(ctx);
        if (stopped < 0) check(UJOIN_E_STATE);
    }
    check(ujoin_ctx_finish(ctx));
    signal(SIGTERM, SIG_IGN); /* it may come to this rank only now, and its handler knows no other context */
    printf("%d left after %d steps, asked in step %d\n", (int)ujoin_group_rank(group), steps, at);
    ujoin_ctx_destroy(ctx);
    ujoin_joinable_destroy(joinable);
    check(ujoin_group_close(group, UJOIN_NEVER));
    ujoin_group_destroy(group);
    return 0;
}
