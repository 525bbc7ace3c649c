/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient reducer: what is hidden behind a backward pass, and what a join context costs. Milliseconds, medians over
 * iterations, as "key value" lines:
 *   0  all of 20 gradients of 4M elements reduced, nothing computed
 *   1  of that, what is left to wait for when gradients come at intervals at which this processor has nothing to do (as from
 *      a device), a quarter longer than the reduction of one takes
 *   2  gradients computed on the processor, all of them, then reduced      3  reduced while later ones are computed
 *   4  an iteration of 20 gradients of 4K elements without a join context  5  the same in one, without its beginning and end
 * Usage: ddp_ujoin RANK SIZE RENDEZVOUS */
#include "bench.h"
#include <ujoin.h>

enum { gradients = 20, elements = 4 << 20, small_elements = 4 << 10, iterations = 7, passes = 41, rounds = 200 };

static ujoin_group *group;
static float *grads[gradients];

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void sleep_us(double us) {
    const struct timespec t = {(time_t)(us / 1e6), (long)(us * 1e3) % 1000000000L};
    nanosleep(&t, NULL);
}

static ujoin_ddp *make_reducer(size_t count) {
    static float *values;
    ujoin_param params[gradients];
    ujoin_ddp_options options = {.size = sizeof options, .no_initial_broadcast = 1};
    ujoin_ddp *ddp;
    if (!values) values = calloc(elements, sizeof *values);
    memset(params, 0, sizeof params);
    for (int i = 0; i < gradients; i++)
        params[i] = (ujoin_param){.data = values, .grad = grads[i], .count = count, .dtype = UJOIN_F32};
    check(ujoin_ddp_create(group, params, gradients, &options, &ddp));
    return ddp;
}

/* A few operations on each element, as a layer's backward pass has. */
static void compute(float *grad, size_t count, float value) {
    for (int pass = 0; pass < 3; pass++)
        for (size_t k = 0; k < count; k++) grad[k] = grad[k] * 0.5F + value;
    __asm__ volatile("" : : "r"(grad) : "memory");
}

/* How a backward pass goes. */
enum kind { at_once, at_intervals, computed_before, computed };

/* One iteration from forward to the end of finish, in microseconds. */
static double iteration(ujoin_ddp *ddp, size_t count, enum kind kind, double interval_us) {
    double begin, due;
    check(ujoin_barrier(group, NULL));
    due = begin = bench_now_us();
    check(ujoin_ddp_forward(ddp, 1));
    for (int i = gradients; i-- > 0 && kind == computed_before;) compute(grads[i], count, (float)i);
    for (int i = gradients; i-- > 0;) {
        if (kind == computed) compute(grads[i], count, (float)i);
        due += interval_us;
        while (kind == at_intervals && bench_now_us() < due) sleep_us(due - bench_now_us() > 0 ? due - bench_now_us() : 0);
        check(ujoin_ddp_ready(ddp, (size_t)i));
    }
    check(ujoin_ddp_finish(ddp));
    return bench_now_us() - begin;
}

/* The ranks agree on the larger of their values, in place. */
static void largest(double *value) {
    const ujoin_buffer buffer = {value, 1, UJOIN_F64, UJOIN_DEVICE_HOST, 0, 0};
    check(ujoin_all_reduce(group, NULL, &buffer, UJOIN_MAX, NULL, NULL));
}

static void backward(void) {
    ujoin_ddp *ddp = make_reducer(elements);
    double alone[iterations], late[iterations], before[iterations], during[iterations], reduce, interval;
    for (int i = 0; i < 3; i++) iteration(ddp, elements, at_once, 0);
    for (int i = 0; i < iterations; i++) alone[i] = iteration(ddp, elements, at_once, 0);
    reduce = bench_median(alone, iterations);
    largest(&reduce);
    interval = 1.25 * reduce / gradients;
    for (int i = 0; i < iterations; i++) {
        late[i] = iteration(ddp, elements, at_intervals, interval) - interval * gradients;
        before[i] = iteration(ddp, elements, computed_before, 0);
        during[i] = iteration(ddp, elements, computed, 0);
    }
    printf("0 %.6f\n1 %.6f\n", reduce / 1e3, bench_median(late, iterations) / 1e3);
    printf("2 %.6f\n3 %.6f\n", bench_median(before, iterations) / 1e3, bench_median(during, iterations) / 1e3);
    ujoin_ddp_destroy(ddp);
}

static double small_pass(ujoin_ddp *ddp, ujoin_ctx *ctx) {
    double begin, end;
    if (ctx) check(ujoin_ctx_start(ctx));
    check(ujoin_barrier(group, NULL));
    begin = bench_now_us();
    for (int r = 0; r < rounds; r++) {
        check(ujoin_ddp_forward(ddp, 1));
        for (int i = gradients; i-- > 0;) check(ujoin_ddp_ready(ddp, (size_t)i));
        check(ujoin_ddp_finish(ddp));
    }
    end = bench_now_us();
    if (ctx) check(ujoin_ctx_finish(ctx));
    return (end - begin) / rounds;
}

static void joining(void) {
    ujoin_ddp *ddp = make_reducer(small_elements);
    ujoin_joinable *joinable = ujoin_ddp_joinable(ddp);
    ujoin_ctx *ctx;
    double without[passes], with[passes];
    check(ujoin_ctx_create(&joinable, 1, NULL, &ctx));
    small_pass(ddp, NULL);
    for (int p = 0; p < passes; p++) {
        without[p] = small_pass(ddp, NULL);
        with[p] = small_pass(ddp, ctx);
    }
    printf("4 %.6f\n5 %.6f\n", bench_median(without, passes) / 1e3, bench_median(with, passes) / 1e3);
    ujoin_ctx_destroy(ctx);
    ujoin_ddp_destroy(ddp);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = argv[3], .backend = "shm"};
    options.rank = atoi(argv[1]);
    options.world_size = atoi(argv[2]);
    check(ujoin_group_create(&options, &group));
    for (int i = 0; i < gradients; i++) {
        grads[i] = malloc(elements * sizeof **grads);
        if (!grads[i]) return 1;
        bench_rewrite(grads[i], elements, 1);
    }
    backward();
    joining();
    ujoin_group_destroy(group);
    return 0;
}
