/* SPDX-License-Identifier: Apache-2.0 */
/* --check: what N ranks computed together is computed again in one process, in two ways (train_text.md, section 7). */
#ifndef TRAIN_TEXT_CHECK_H
#define TRAIN_TEXT_CHECK_H

#include "trainer.h"

#define CHECK_LIMIT 1e-5

/* The N ranks' rounds, one after the other. */
typedef struct replay {
    const settings *options;
    const text *train;
    size_t size; /* ranks that are replayed */
    shard *shards;
    size_t rounds;   /* of one epoch: the batches of the rank that has most */
    size_t shadowed; /* rounds in which a rank had joined, all epochs */
    size_t left_out; /* rounds that --break shadow left out */
} replay;

static replay replay_make(const settings *o, const text *train, size_t size) {
    replay r = {.options = o, .train = train, .size = size, .shards = allocate(size, sizeof(shard))};
    for (size_t rank = 0; rank < size; rank++) {
        r.shards[rank] = shard_make(train->length, rank, size, o->batch);
        if (r.shards[rank].batches > r.rounds) r.rounds = r.shards[rank].batches;
    }
    return r;
}

static void replay_destroy(replay *r) {
    for (size_t rank = 0; rank < r->size; rank++) free(r->shards[rank].position);
    free(r->shards);
}

/* Whether a rank has joined by this round; --break shadow skips the first such round. */
static int replay_leaves_out(replay *r, size_t round) {
    int joined = 0;
    for (size_t rank = 0; rank < r->size; rank++) joined |= round >= r->shards[rank].batches;
    r->shadowed += (size_t)joined;
    if (!joined || !r->options->break_shadow || r->left_out) return 0;
    r->left_out++;
    return 1;
}

/* (a) The gradients of the ranks that have a batch, times their samples, summed in rank order by plain loops. */
static void replay_sum_gradients(const replay *r, size_t round, model *m, float *sum) {
    double samples = 0;
    for (size_t rank = 0; rank < r->size; rank++) {
        if (round >= r->shards[rank].batches) continue;
        batch b = shard_batch(&r->shards[rank], round);
        float weight = (float)b.samples;
        model_forward(m, r->train->characters, &b);
        model_backward(m, r->train->characters, &b, NULL, NULL);
        for (size_t i = 0; i < m->total; i++)
            sum[i] = samples > 0 ? sum[i] + weight * m->grad[0][i] : weight * m->grad[0][i];
        samples += (double)b.samples;
    }
    for (size_t i = 0; i < m->total; i++) m->grad[0][i] = sum[i] / (float)samples;
}

static void replay_as_ranks(replay *r, model *m) {
    ujoin_group_options alone = {.size = sizeof alone, .backend = "self", .name = "replay", .world_size = 1};
    ujoin_group *group;
    check(ujoin_group_create(&alone, &group));
    ujoin_param params[PARAMS];
    model_params(m, params);
    ujoin_zero *opt = optimizer_make(group, params);
    float *sum = allocate(m->total, sizeof *sum);
    for (size_t epoch = 0; epoch < r->options->epochs; epoch++) {
        for (size_t rank = 0; rank < r->size; rank++) shard_shuffle(&r->shards[rank], r->options->seed, epoch, rank);
        check(zero_set_hyper(opt, -1, "lr", learning_rate(epoch, r->options->epochs)));
        for (size_t round = 0; round < r->rounds; round++) {
            if (replay_leaves_out(r, round)) continue;
            replay_sum_gradients(r, round, m, sum);
            check(zero_step(opt, NULL));
        }
    }
    free(sum);
    zero_destroy(opt);
    ujoin_group_destroy(group);
}

/* (b) AdamW as PyTorch's documentation has it, on flat arrays, in double precision. */
static void plain_adamw(model *m, double *first, double *second, double rate, size_t step) {
    double correction1 = 1 - pow(BETA1, (double)step), correction2 = 1 - pow(BETA2, (double)step);
    for (size_t i = 0; i < m->total; i++) {
        double gradient = (double)m->grad[0][i], value = (double)m->value[0][i];
        first[i] = BETA1 * first[i] + (1 - BETA1) * gradient;
        second[i] = BETA2 * second[i] + (1 - BETA2) * gradient * gradient;
        value -= rate * WEIGHT_DECAY * value;
        m->value[0][i] = (float)(value - rate * (first[i] / correction1) / (sqrt(second[i] / correction2) + EPSILON));
    }
}

static void replay_as_union(replay *r, model *m) {
    double *first = allocate(m->total, sizeof *first), *second = allocate(m->total, sizeof *second);
    uint32_t *position = allocate(m->batch, sizeof *position);
    size_t step = 0;
    for (size_t epoch = 0; epoch < r->options->epochs; epoch++) {
        for (size_t rank = 0; rank < r->size; rank++) shard_shuffle(&r->shards[rank], r->options->seed, epoch, rank);
        for (size_t round = 0; round < r->rounds; round++) {
            if (replay_leaves_out(r, round)) continue;
            batch all = {.position = position};
            for (size_t rank = 0; rank < r->size; rank++)
                if (round < r->shards[rank].batches) {
                    batch b = shard_batch(&r->shards[rank], round);
                    memcpy(position + all.samples, b.position, b.samples * sizeof *position);
                    all.samples += b.samples;
                }
            model_forward(m, r->train->characters, &all);
            model_backward(m, r->train->characters, &all, NULL, NULL);
            plain_adamw(m, first, second, learning_rate(epoch, r->options->epochs), ++step);
        }
    }
    free(first);
    free(second);
    free(position);
}

/* Bit by bit; says for each rank whether its parameters are those of the replay, and where they first differ. */
static int check_identical(const model *m, const float *ranks, size_t size) {
    int good = 1;
    for (size_t rank = 0; rank < size; rank++) {
        const float *theirs = ranks + rank * m->total;
        size_t at = 0, p = 0;
        while (at < m->total && memcmp(&theirs[at], &m->value[0][at], sizeof(float)) == 0) at++;
        if (at == m->total) {
            printf("check (a): the parameters of rank %zu are bit-identical to the replay's\n", rank);
            continue;
        }
        while (p + 1 < PARAMS && m->value[0] + at >= m->value[p + 1]) p++;
        printf(
            "check (a): the parameters of rank %zu DIFFER from the replay's, first in element %zu of %s: %.9g, not %.9g\n",
            rank, (size_t)(m->value[0] + at - m->value[p]), model_names[p], (double)theirs[at], (double)m->value[0][at]);
        good = 0;
    }
    return good;
}

static int check_close(const model *m, const float *rank0) {
    double difference = 0, length = 0;
    for (size_t i = 0; i < m->total; i++) {
        double b = (double)m->value[0][i], d = (double)rank0[i] - b;
        difference += d * d;
        length += b * b;
    }
    double ratio = sqrt(difference / length);
    int good = ratio <= CHECK_LIMIT;
    printf("check (b): against AdamW over the union of the batches: |a - b| / |b| = %.2e, %s %.0e\n", ratio,
           good ? "at most" : "MORE THAN", CHECK_LIMIT);
    return good;
}

/* Rounds are as many as asked for: the text is cut so that the rank with the longest shard has them, over all epochs, and its
 * last batch is about half full. */
static void check_cut_text(const settings *o, text *train, size_t size) {
    size_t each = o->rounds / o->epochs > 0 ? o->rounds / o->epochs : 1;
    size_t longest = CONTEXT + each * o->batch - o->batch / 2, all = size * (5 * size - 1) / 2;
    size_t length = (longest * all + 3 * size - 2) / (3 * size - 1);
    if (length < train->length) train->length = length;
}

/* Every rank brings its parameters; the last one, whose output is shown, computes all again. Returns the exit status. */
static int check_run(const settings *o, ujoin_group *group, const text *train, const model *trained) {
    size_t size = (size_t)ujoin_group_size(group);
    float *ranks = allocate(size * trained->total, sizeof *ranks);
    check(ujoin_all_gather(group,
                           &(ujoin_const_buffer){.data = trained->value[0], .count = trained->total, .dtype = UJOIN_F32},
                           &(ujoin_buffer){.data = ranks, .count = size * trained->total, .dtype = UJOIN_F32}, NULL, NULL));
    int good = 1;
    if (is_reporter(group)) {
        replay r = replay_make(o, train, size);
        model m = model_build(train->table_size, o->batch, o->seed),
              all = model_build(train->table_size, size * o->batch, o->seed);
        replay_as_ranks(&r, &m);
        printf(
            "check: %zu rounds of %zu ranks, %zu of them shadowed by a rank that had joined; left out in the replay: %zu\n",
            r.rounds * o->epochs, size, r.shadowed, r.left_out);
        good &= check_identical(&m, ranks, size);
        r.left_out = 0;
        replay_as_union(&r, &all);
        good &= check_close(&all, ranks);
        puts(good ? "check passed" : "check FAILED");
        model_destroy(&m);
        model_destroy(&all);
        replay_destroy(&r);
    }
    free(ranks);
    return good ? 0 : 1;
}

#endif
