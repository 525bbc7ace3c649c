/* SPDX-License-Identifier: Apache-2.0 */
/* What the training loop and its check share: settings, the optimizer's values, the model as ujoin sees it. */
#ifndef TRAIN_TEXT_TRAINER_H
#define TRAIN_TEXT_TRAINER_H

#include "model.h"
#include <ujoin.h>

typedef struct settings {
    const char *text, *out;
    uint64_t seed;
    size_t epochs, batch, rounds;
    int check, break_shadow, live;
} settings;

/* EPSILON is larger than PyTorch's default: see train_text.md, section 6. */
#define BETA1 0.9
#define BETA2 0.999
#define EPSILON 1e-6
#define WEIGHT_DECAY 0.01
#define LEARNING_RATE 0.004

/* Constant within an epoch, falling from epoch to epoch: ranks that have joined need not follow it. */
static double learning_rate(size_t epoch, size_t epochs) {
    return LEARNING_RATE * (double)(epochs - epoch) / (double)epochs;
}

static void check(ujoin_status status) {
    if (status < 0) fail(1, "%s", ujoin_last_error());
}

/* The rank with the longest shard never joins before the others, so it is the one that tells how things go. */
static int is_reporter(const ujoin_group *group) { return ujoin_group_rank(group) == ujoin_group_size(group) - 1; }

static void model_params(const model *m, ujoin_param params[PARAMS]) {
    for (int p = 0; p < PARAMS; p++)
        params[p] = (ujoin_param){.name = model_names[p],
                                  .data = m->value[p],
                                  .grad = m->grad[p],
                                  .count = m->count[p],
                                  .dtype = UJOIN_F32,
                                  .shape = m->shape[p],
                                  .ndim = p > 0 && p % 2 == 0 ? 1 : 2};
}

static ujoin_zero *optimizer_make(ujoin_group *group, const ujoin_param params[PARAMS]) {
    const ujoin_hyper hyper[] = {
        {"lr", LEARNING_RATE}, {"beta1", BETA1}, {"beta2", BETA2}, {"eps", EPSILON}, {"weight_decay", WEIGHT_DECAY}};
    ujoin_zero_options options = {.size = sizeof options, .hyper = hyper, .hyper_count = sizeof hyper / sizeof *hyper};
    ujoin_zero *zero;
    check(zero_create(group, UJOIN_OPTIMIZER_ADAMW, params, PARAMS, &options, &zero));
    return zero;
}

#endif
