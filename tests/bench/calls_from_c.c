/* SPDX-License-Identifier: Apache-2.0 */
/* What a call costs from C: name<TAB>nanoseconds for each, the median of batches that are short beside the time
 * for which a busy machine lets a thread run. The bindings time the same calls. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ujoin.h>

enum { BATCHES = 1001, TENSORS = 3, ELEMENTS = 16 };

static ujoin_group *group;
static ujoin_ddp *ddp;
static ujoin_zero *zero;
static float tensors[TENSORS][ELEMENTS], grads[TENSORS][ELEMENTS];
static volatile int32_t rank_seen;
static uint64_t called;

static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", ujoin_last_error());
    exit(1);
}

static void no_op(void) { rank_seen = ujoin_group_rank(group); }

static void reduce_three(void) {
    for (int i = 0; i < TENSORS; i++)
        check(ujoin_all_reduce(group, NULL, &(ujoin_buffer){.data = tensors[i], .count = ELEMENTS, .dtype = UJOIN_F32},
                               UJOIN_SUM, NULL, NULL));
}

static void iteration(void) {
    check(ujoin_ddp_forward(ddp, 1));
    for (size_t i = 0; i < TENSORS; i++) check(ujoin_ddp_ready(ddp, i));
    check(ujoin_ddp_finish(ddp));
}

static void step(void) { check(zero_step(zero, NULL)); }

static ujoin_status count(void *data) {
    ++*(uint64_t *)data;
    return UJOIN_OK;
}

static void step_with_callback(void) {
    const ujoin_step_options options = {.size = sizeof options, .closure = count, .closure_data = &called};
    check(zero_step(zero, &options));
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_call(const char *name, int calls, void (*call)(void)) {
    double times[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < calls; i++) call();
        clock_gettime(CLOCK_MONOTONIC, &end);
        times[b] = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / calls;
    }
    qsort(times, BATCHES, sizeof *times, compare);
    printf("%s\t%.1f\n", name, times[BATCHES / 2]);
}

int main(void) {
    const ujoin_group_options alone = {.size = sizeof alone, .backend = "self", .world_size = 1};
    ujoin_param params[TENSORS];
    check(ujoin_group_create(&alone, &group));
    for (int i = 0; i < TENSORS; i++)
        params[i] = (ujoin_param){.data = tensors[i], .grad = grads[i], .count = ELEMENTS, .dtype = UJOIN_F32};
    check(ujoin_ddp_create(group, params, TENSORS, NULL, &ddp));
    check(zero_create(group, UJOIN_OPTIMIZER_SGD, params, TENSORS, NULL, &zero));
    time_call("no-op", 1000, no_op);
    time_call("reduce 3 tensors", 200, reduce_three);
    time_call("ddp iteration", 200, iteration);
    time_call("step", 200, step);
    time_call("step with callback", 200, step_with_callback);
    zero_destroy(zero);
    ujoin_ddp_destroy(ddp);
    ujoin_group_destroy(group);
    return 0;
}
