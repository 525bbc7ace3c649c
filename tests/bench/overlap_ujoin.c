/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer within the iterations of its reducer: 20 layers of 1000 x 1000, Adam. Milliseconds, medians over iterations
 * that take turns, as "key value" lines; gradients come all at once, or at intervals at which this processor has nothing to do
 * (as from a device), together a quarter longer than an iteration of the first kind:
 *   0  at once: finish, then zero_step    1  stepped in finish    2  stepped from ready on
 *   3  at intervals: the same             4  the same             5  the same
 * Usage: overlap_ujoin RANK SIZE RENDEZVOUS */
#include "bench.h"
#include <ujoin.h>

enum { layers = 20, elements = 1000 * 1000, iterations = 9, ways = 3 };
enum way { apart, in_finish, from_ready };

static ujoin_group *group;
static float *values[layers], *grads[layers];

static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

typedef struct trainer {
    enum way way;
    ujoin_ddp *ddp;
    ujoin_zero *zero;
} trainer;

static trainer make_trainer(enum way way) {
    trainer made = {.way = way};
    ujoin_param params[layers];
    ujoin_ddp_options options = {.size = sizeof options, .bucket_bytes = 4 * elements};
    ujoin_zero_options with = {.size = sizeof with};
    memset(params, 0, sizeof params);
    for (int i = 0; i < layers; i++)
        params[i] = (ujoin_param){.data = values[i], .grad = grads[i], .count = elements, .dtype = UJOIN_F32};
    options.params_released_on_ready = way == from_ready;
    check(ujoin_ddp_create(group, params, layers, &options, &made.ddp));
    with.ddp = way == apart ? NULL : made.ddp;
    check(zero_create(group, UJOIN_OPTIMIZER_ADAM, params, layers, &with, &made.zero));
    return made;
}

static void wait_until(double due_us) {
    for (double left; (left = due_us - bench_now_us()) > 0;) {
        const struct timespec t = {(time_t)(left / 1e6), (long)(left * 1e3) % 1000000000L};
        nanosleep(&t, NULL);
    }
}

/* From forward to updated parameters, in microseconds. */
static double iteration(const trainer *of, double interval_us) {
    double begin, due;
    for (int i = 0; i < layers; i++) bench_rewrite(grads[i], elements, 1e-3F);
    check(ujoin_barrier(group, NULL));
    due = begin = bench_now_us();
    check(ujoin_ddp_forward(of->ddp, 1));
    for (int i = layers; i-- > 0;) {
        due += interval_us;
        if (interval_us > 0) wait_until(due);
        check(ujoin_ddp_ready(of->ddp, (size_t)i));
    }
    check(ujoin_ddp_finish(of->ddp));
    if (of->way == apart) check(zero_step(of->zero, NULL));
    return bench_now_us() - begin;
}

static void run(trainer *trainers, double interval_us, double *medians) {
    double times[ways][iterations];
    for (int i = -2; i < iterations; i++) /* two to warm up */
        for (int way = 0; way < ways; way++) {
            const double us = iteration(&trainers[way], interval_us);
            if (i >= 0) times[way][i] = us;
        }
    for (int way = 0; way < ways; way++) medians[way] = bench_median(times[way], iterations);
}

int main(int argc, char **argv) {
    trainer trainers[ways];
    double at_once[ways], spread[ways], longest;
    if (argc != 4) return 2;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = argv[3], .backend = "shm"};
    options.rank = atoi(argv[1]);
    options.world_size = atoi(argv[2]);
    check(ujoin_group_create(&options, &group));
    for (int i = 0; i < layers; i++) {
        values[i] = malloc(elements * sizeof(float));
        grads[i] = malloc(elements * sizeof(float));
        if (!values[i] || !grads[i]) return 1;
        bench_rewrite(values[i], elements, 1);
        bench_rewrite(grads[i], elements, 1);
    }
    for (int way = 0; way < ways; way++) trainers[way] = make_trainer((enum way)way);
    run(trainers, 0, at_once);
    longest = at_once[apart];
    const ujoin_buffer buffer = {&longest, 1, UJOIN_F64, UJOIN_DEVICE_HOST, 0, 0};
    check(ujoin_all_reduce(group, NULL, &buffer, UJOIN_MAX, NULL, NULL));
    run(trainers, 1.25 * longest / layers, spread);
    for (int way = 0; way < ways; way++)
        printf("%d %.6f\n%d %.6f\n", way, at_once[way] / 1e3, way + ways, spread[way] / 1e3);
    for (int way = 0; way < ways; way++) {
        zero_destroy(trainers[way].zero);
        ujoin_ddp_destroy(trainers[way].ddp);
    }
    ujoin_group_destroy(group);
    return 0;
}
