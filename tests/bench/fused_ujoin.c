/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce, step and distribute: 20 layers of 2000 x 2000 f32 under AdamW. Milliseconds, medians, as "key value" lines:
 *   0  a reducer for all and a step after it    1  a fused step    2  a fused step over shared memory
 *   3  a bare loop over shared memory that moves the same bytes: sum of the gradients, AdamW, every replica
 * Gradients are written anew before each. Usage: fused_ujoin RANK SIZE RENDEZVOUS */
#include "bench.h"
#include <math.h>
#include <ujoin.h>

enum { layers = 20, layer = 2000 * 2000, steps = 5, warm_up = 2, ways = 4 };
static const size_t elements = (size_t)layers * layer;

static ujoin_group *group;
static int rank;

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static float *memory(int shared, ujoin_memory **owner) {
    float *data;
    *owner = NULL;
    if (!shared) return calloc(elements, sizeof *data);
    check(ujoin_memory_create(group, elements * sizeof *data, NULL, owner));
    return ujoin_memory_data(*owner);
}

/* The time of a step from its beginning on all ranks to its end on this one. */
typedef void (*step_fn)(void *of);
static double timed(step_fn step, void *of, float *grad) {
    double times[steps];
    for (int i = 0; i < steps + warm_up; i++) {
        double begin;
        bench_rewrite(grad, elements, (float)(i + rank));
        check(ujoin_barrier(group, NULL));
        begin = bench_now_us();
        step(of);
        if (i >= warm_up) times[i - warm_up] = bench_now_us() - begin;
    }
    return bench_median(times, steps) / 1e3;
}

typedef struct training {
    ujoin_ddp *ddp;
    ujoin_zero *zero;
} training;

static void train(void *of) {
    const training *t = of;
    check(ujoin_ddp_forward(t->ddp, 1));
    for (size_t i = layers; i-- > 0;) check(ujoin_ddp_ready(t->ddp, i));
    check(ujoin_ddp_finish(t->ddp));
    check(zero_step(t->zero, NULL));
}

static double of_library(int fused, int shared) {
    static const char *names[layers] = {"0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",
                                        "10", "11", "12", "13", "14", "15", "16", "17", "18", "19"};
    ujoin_memory *owners[2];
    float *value = memory(shared, &owners[0]), *grad = memory(shared, &owners[1]);
    ujoin_param params[layers];
    ujoin_ddp_options how = {.size = sizeof how, .gradient_sync = fused ? UJOIN_GRADIENT_SYNC_TO_OWNER : 0};
    ujoin_zero_options options = {.size = sizeof options};
    training t;
    double ms;
    memset(params, 0, sizeof params);
    for (int i = 0; i < layers; i++)
        params[i] = (ujoin_param){.name = names[i],
                                  .data = value + (size_t)i * layer,
                                  .grad = grad + (size_t)i * layer,
                                  .count = layer,
                                  .dtype = UJOIN_F32};
    check(ujoin_ddp_create(group, params, layers, &how, &t.ddp));
    options.ddp = fused ? t.ddp : NULL;
    check(zero_create(group, UJOIN_OPTIMIZER_ADAMW, params, layers, &options, &t.zero));
    ms = timed(train, &t, grad);
    zero_destroy(t.zero);
    ujoin_ddp_destroy(t.ddp);
    for (int i = 0; i < 2; i++) ujoin_memory_destroy(owners[i]);
    if (!shared) free(value), free(grad);
    return ms;
}

/* Rank 0's and rank 1's memory as one that both see: values of each rank, then gradients of each. */
typedef struct bare {
    float *value[2], *grad[2], *average, *square;
} bare;

static void loop(void *of) {
    const bare *b = of;
    const size_t half = elements / 2, begin = (size_t)rank * half;
    const float *g0 = b->grad[0] + begin, *g1 = b->grad[1] + begin;
    float *restrict p0 = b->value[0] + begin, *restrict p1 = b->value[1] + begin;
    float *restrict m = b->average, *restrict v = b->square;
    check(ujoin_barrier(group, NULL));
    for (size_t i = 0; i < half; i++) {
        const float g = (g0[i] + g1[i]) / 2;
        const float average = m[i] = m[i] * 0.9F + g * 0.1F;
        const float square = v[i] = v[i] * 0.999F + g * g * 0.001F;
        const float p = (rank ? p1 : p0)[i] * 0.99999F - 1e-3F * average / (sqrtf(square) + 1e-8F);
        p0[i] = p;
        p1[i] = p;
    }
    check(ujoin_barrier(group, NULL));
}

static double of_loop(void) {
    const ujoin_memory_options one = {.size = sizeof one, .one_per_host = 1};
    ujoin_memory *owner;
    bare b;
    double ms;
    check(ujoin_memory_create(group, 4 * elements * sizeof(float), &one, &owner));
    for (int k = 0; k < 2; k++) {
        b.value[k] = (float *)ujoin_memory_data(owner) + (size_t)k * elements;
        b.grad[k] = (float *)ujoin_memory_data(owner) + (size_t)(2 + k) * elements;
    }
    b.average = calloc(elements / 2, sizeof(float));
    b.square = calloc(elements / 2, sizeof(float));
    ms = timed(loop, &b, b.grad[rank]);
    free(b.average);
    free(b.square);
    ujoin_memory_destroy(owner);
    return ms;
}

int main(int argc, char **argv) {
    ujoin_group_options options = {.size = sizeof options};
    if (argc != 4 || atoi(argv[2]) != 2) {
        fprintf(stderr, "usage: %s RANK 2 RENDEZVOUS\n", argv[0]);
        return 2;
    }
    options.rank = rank = atoi(argv[1]);
    options.world_size = 2;
    options.rendezvous = argv[3];
    check(ujoin_group_create(&options, &group));
    for (int way = 0; way < ways; way++) {
        const double ms = way == 3 ? of_loop() : of_library(way != 0, way == 2);
        if (rank == 0) printf("%d %.3f\n", way, ms), fflush(stdout);
    }
    check(ujoin_group_close(group, -1));
    ujoin_group_destroy(group);
    return 0;
}
