/* SPDX-License-Identifier: Apache-2.0 */
#define OPTIM_SHARES
#include "optim.h"
#include <ujoin.h>

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s\n", ujoin_last_error());
    exit(1);
}

static void step(void *zero) { check(zero_step(zero, NULL)); }

static void *optim_run(void *data) {
    optim_job *job = data;
    const ujoin_hyper momentum = {"momentum", 0.9};
    ujoin_group_options alone = {
        .size = sizeof alone, .rendezvous = "local://bench", .backend = "self", .world_size = 1, .threads = job->threads};
    ujoin_zero_options options = {
        .size = sizeof options, .hyper = &momentum, .hyper_count = job->rule->id == UJOIN_OPTIMIZER_SGD};
    ujoin_param param = {.count = job->count, .dtype = UJOIN_F32};
    ujoin_group *group;
    ujoin_zero *zero;
    param.data = optim_memory(job->count, 1);
    param.grad = optim_memory(job->count, 1e-3F);
    check(ujoin_group_create(&alone, &group));
    check(zero_create(group, job->rule->id, &param, 1, &options, &zero));
    optim_timed(job, step, zero);
    zero_destroy(zero);
    ujoin_group_destroy(group);
    free(param.data);
    free(param.grad);
    return NULL;
}
