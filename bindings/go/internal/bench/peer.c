/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"
#include <pthread.h>
#include <time.h>

static ujoin_status closure(void *handle) { return peerClosure((uintptr_t)handle); }

ujoin_status peer_step(ujoin_zero *zero, uintptr_t handle) {
    ujoin_step_options options = {.size = sizeof options, .closure = closure, .closure_data = (void *)handle};
    return zero_step(zero, &options);
}

ujoin_status peer_create(float **data, float **grad, size_t params, size_t count, ujoin_group **group, ujoin_ddp **ddp,
                         ujoin_zero **zero) {
    ujoin_group_options alone = {.size = sizeof alone, .backend = "self", .world_size = 1};
    ujoin_param list[8] = {{0}};
    for (size_t i = 0; i < params && i < 8; i++)
        list[i] = (ujoin_param){.data = data[i], .grad = grad[i], .count = count, .dtype = UJOIN_F32};
    ujoin_status status = ujoin_group_create(&alone, group);
    if (status == UJOIN_OK) status = ujoin_ddp_create(*group, list, params, NULL, ddp);
    if (status == UJOIN_OK) status = zero_create(*group, UJOIN_OPTIMIZER_SGD, list, params, NULL, zero);
    return status;
}

struct lines {
    int ours;
    uintptr_t handle;
    int64_t calls;
    double nanoseconds;
};

static void *lines_run(void *argument) {
    struct lines *l = argument;
    struct timespec begin, end;
    static char text[] = "a line of the log";
    void (*const line)(uintptr_t, int32_t, char *) = l->ours ? ujoinGoLog : peerLine;
    line(l->handle, UJOIN_LOG_WARNING, text); /* the first one attaches the thread */
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int64_t i = 0; i < l->calls; i++) line(l->handle, UJOIN_LOG_WARNING, text);
    clock_gettime(CLOCK_MONOTONIC, &end);
    l->nanoseconds = 1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
    return NULL;
}

double lines_from_a_thread(int ours, uintptr_t handle, int64_t calls) {
    struct lines l = {.ours = ours, .handle = handle, .calls = calls};
    pthread_t thread;
    if (pthread_create(&thread, NULL, lines_run, &l) != 0) return -1;
    pthread_join(thread, NULL);
    return l.nanoseconds / (double)calls;
}
