/* SPDX-License-Identifier: Apache-2.0 */
/* The floor: a bare loop that moves the bytes of a rule (the parameter and its states back and forth, the gradient in) and
 * does next to nothing with them. LAMB has to look at a parameter twice, which no loop over it once can show. */
#include "optim.h"

typedef struct loop {
    float *param, *grad, *a, *b;
    size_t count;
    int states;
} loop;

static void step(void *data) {
    const loop *l = data;
    float *restrict p = l->param, *restrict a = l->a, *restrict b = l->b;
    const float *restrict g = l->grad;
    size_t i;
    if (l->states == 1) {
        for (i = 0; i < l->count; i++) {
            a[i] = a[i] * 0.9F + g[i];
            p[i] = p[i] - 0.001F * a[i];
        }
    } else {
        for (i = 0; i < l->count; i++) {
            a[i] = a[i] * 0.9F + g[i];
            b[i] = b[i] * 0.99F + g[i];
            p[i] = p[i] - 0.001F * (a[i] + b[i]);
        }
    }
}

static void *optim_run(void *data) {
    optim_job *job = data;
    loop l = {optim_memory(job->count, 1),
              optim_memory(job->count, 1e-3F),
              optim_memory(job->count, 0),
              NULL,
              job->count,
              job->rule->states};
    l.b = optim_memory(l.states > 1 ? job->count : 1, 0);
    optim_timed(job, step, &l);
    free(l.param);
    free(l.grad);
    free(l.a);
    free(l.b);
    return NULL;
}
