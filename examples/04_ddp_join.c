/* SPDX-License-Identifier: Apache-2.0 */
/* Lesson 4: batches of uneven size, and fewer of them on some ranks; still the same training as in one process that has all
 * the data.
 *
 *     ujoin-run --standalone --nproc-per-node 2 04_ddp_join
 *
 * A rank computes the mean gradient of its own batch. The mean of these means would give a sample of a small batch more say
 * than one of a large batch, and a rank that has joined would still be counted. UJOIN_DIVISION_SAMPLES weighs each mean by
 * its samples and divides by the samples of all ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ujoin.h>

#define RATE 0.2

static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

/* The data: every rank can make every rank's, so that it can check the result alone. */
static int batches_of(int rank) { return 20 + 7 * rank; }
static int samples_of(int rank, int batch) { return 1 + (3 * rank + batch) % 4; }
static double x_of(int rank, int batch, int sample) { return sin(rank + 2.0 * batch + 3.0 * sample); }
static double y_of(double x) { return 3 * x + 1; }

/* The model: y = value[0] x + value[1], with the squared error as loss. */
typedef struct model {
    double value[2], grad[2];
} model;

/* Adds the gradient of one batch, as a sum over its samples; returns the samples. */
static int add_gradients(model *m, int rank, int batch) {
    int samples = samples_of(rank, batch);
    for (int s = 0; s < samples; s++) {
        double x = x_of(rank, batch, s), error = m->value[0] * x + m->value[1] - y_of(x);
        m->grad[0] += 2 * error * x;
        m->grad[1] += 2 * error;
    }
    return samples;
}

static void take_step(model *m) {
    for (int i = 0; i < 2; i++) m->value[i] -= RATE * m->grad[i];
}

/* All ranks together. */
static void train(ujoin_group *group, model *m, int rank) {
    ujoin_param params[] = {
        {.name = "slope", .data = &m->value[0], .grad = &m->grad[0], .count = 1, .dtype = UJOIN_F64},
        {.name = "offset", .data = &m->value[1], .grad = &m->grad[1], .count = 1, .dtype = UJOIN_F64},
    };
    ujoin_ddp_options options = {.size = sizeof options, .division = UJOIN_DIVISION_SAMPLES};
    ujoin_ddp *ddp;
    check(ujoin_ddp_create(group, params, 2, &options, &ddp));
    ujoin_joinable *joinable = ujoin_ddp_joinable(ddp);
    ujoin_ctx *join;
    check(ujoin_ctx_create(&joinable, 1, NULL, &join));

    check(ujoin_ctx_start(join));
    for (int batch = 0; batch < batches_of(rank); batch++) {
        check(ujoin_ddp_forward(ddp, samples_of(rank, batch)));
        m->grad[0] = m->grad[1] = 0;
        int samples = add_gradients(m, rank, batch);
        for (size_t i = 0; i < 2; i++) {
            m->grad[i] /= samples;
            check(ujoin_ddp_ready(ddp, i));
        }
        check(ujoin_ddp_finish(ddp)); /* now the mean over the samples of all ranks */
        take_step(m);
    }
    check(ujoin_ctx_finish(join)); /* ends with the last joiner's parameters on every rank */

    ujoin_ctx_destroy(join);
    ujoin_ddp_destroy(ddp);
}

/* One process: in each round a single batch, the union of those of the ranks that still have one. */
static model train_alone(int size) {
    model m = {{0, 0}, {0, 0}};
    for (int batch = 0; batch < batches_of(size - 1); batch++) {
        int samples = 0;
        m.grad[0] = m.grad[1] = 0;
        for (int rank = 0; rank < size; rank++)
            if (batch < batches_of(rank)) samples += add_gradients(&m, rank, batch);
        for (int i = 0; i < 2; i++) m.grad[i] /= samples;
        take_step(&m);
    }
    return m;
}

/* Whether all ranks hold the very same number. */
static int is_same_everywhere(ujoin_group *group, double number) {
    double least = number, most = number;
    check(ujoin_all_reduce(group, NULL, &(ujoin_buffer){.data = &least, .count = 1, .dtype = UJOIN_F64}, UJOIN_MIN, NULL,
                           NULL));
    check(ujoin_all_reduce(group, NULL, &(ujoin_buffer){.data = &most, .count = 1, .dtype = UJOIN_F64}, UJOIN_MAX, NULL,
                           NULL));
    return least == most;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    ujoin_group *group;
    check(ujoin_group_create(NULL, &group));
    int rank = ujoin_group_rank(group), size = ujoin_group_size(group);

    model m = {{0, 0}, {0, 0}};
    train(group, &m, rank);
    model alone = train_alone(size);
    double difference = fmax(fabs(m.value[0] - alone.value[0]), fabs(m.value[1] - alone.value[1]));

    printf("rank %d: together y = %.9f x + %.9f\n", rank, m.value[0], m.value[1]);
    printf("rank %d: alone    y = %.9f x + %.9f, a difference of %.1e\n", rank, alone.value[0], alone.value[1], difference);
    expect(difference < 1e-12, "the training is that of one process");
    expect(is_same_everywhere(group, m.value[0]) && is_same_everywhere(group, m.value[1]), "all ranks have the same bits");

    ujoin_group_destroy(group);
    printf("rank %d: all well\n", rank);
    return 0;
}
