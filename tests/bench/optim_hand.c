/* SPDX-License-Identifier: Apache-2.0 */
/* What a program would write by hand: for each rule a loop over f32 with factors computed before, products with their
 * inverses instead of divisions, and the rule's other divisions and roots, none merged and none approximated. The compiler
 * may contract (-O3 -march=native -fno-math-errno -fno-trapping-math). Half of the elements in each of two threads. The
 * defaults of the rules: no decay but AdamW's and LAMB's, SGD with momentum. */
#include "optim.h"
#include <math.h>

typedef struct hand {
    float *p, *g, *a, *b; /* parameter, gradient, states */
    size_t n;
    int step;
    float momentum; /* NAdam's product */
    double *shared; /* LAMB: sums of all threads */
    optim_job *job;
} hand;

#define ARRAYS(h)                                                                                                          \
    float *restrict p = (h)->p, *restrict a = (h)->a;                                                                      \
    const float *restrict g = (h)->g;                                                                                      \
    const size_t n = (h)->n;                                                                                               \
    size_t i
#define TWO_STATES(h)                                                                                                      \
    ARRAYS(h);                                                                                                             \
    float *restrict b = (h)->b

static const float b1 = 0.9F, b2 = 0.999F;

static void sgd(hand *h) {
    ARRAYS(h);
    for (i = 0; i < n; i++) {
        a[i] = 0.9F * a[i] + g[i];
        p[i] -= 1e-3F * a[i];
    }
}

static void adam(hand *h, float keep, float eps) {
    const float rate = 1e-3F / (1 - powf(b1, (float)h->step)), root = 1 / sqrtf(1 - powf(b2, (float)h->step));
    TWO_STATES(h);
    for (i = 0; i < n; i++) {
        a[i] = b1 * a[i] + (1 - b1) * g[i];
        b[i] = b2 * b[i] + (1 - b2) * g[i] * g[i];
        p[i] = keep * p[i] - rate * a[i] / (sqrtf(b[i]) * root + eps);
    }
}

static void adagrad(hand *h) {
    ARRAYS(h);
    for (i = 0; i < n; i++) {
        a[i] += g[i] * g[i];
        p[i] -= 1e-2F * g[i] / (sqrtf(a[i]) + 1e-10F);
    }
}

static void rmsprop(hand *h) {
    ARRAYS(h);
    for (i = 0; i < n; i++) {
        a[i] = 0.99F * a[i] + 0.01F * g[i] * g[i];
        p[i] -= 1e-2F * g[i] / (sqrtf(a[i]) + 1e-8F);
    }
}

static void adadelta(hand *h) {
    TWO_STATES(h);
    for (i = 0; i < n; i++) {
        float delta;
        a[i] = 0.9F * a[i] + 0.1F * g[i] * g[i];
        delta = sqrtf(b[i] + 1e-6F) / sqrtf(a[i] + 1e-6F) * g[i];
        b[i] = 0.9F * b[i] + 0.1F * delta * delta;
        p[i] -= delta;
    }
}

static void adamax(hand *h) {
    const float rate = 2e-3F / (1 - powf(b1, (float)h->step));
    TWO_STATES(h);
    for (i = 0; i < n; i++) {
        const float old = b2 * b[i], now = fabsf(g[i]) + 1e-8F;
        a[i] = b1 * a[i] + (1 - b1) * g[i];
        b[i] = old > now ? old : now;
        p[i] -= rate * a[i] / b[i];
    }
}

static void nadam(hand *h) {
    const float mu = b1 * (1 - 0.5F * powf(0.96F, 0.004F * (float)h->step));
    const float next = b1 * (1 - 0.5F * powf(0.96F, 0.004F * (float)(h->step + 1)));
    const float root = 1 / sqrtf(1 - powf(b2, (float)h->step));
    float by_grad, by_average;
    TWO_STATES(h);
    h->momentum *= mu;
    by_grad = 2e-3F * (1 - mu) / (1 - h->momentum);
    by_average = 2e-3F * next / (1 - h->momentum * next);
    for (i = 0; i < n; i++) {
        float below;
        a[i] = b1 * a[i] + (1 - b1) * g[i];
        b[i] = b2 * b[i] + (1 - b2) * g[i] * g[i];
        below = sqrtf(b[i]) * root + 1e-8F;
        p[i] = p[i] - by_grad * g[i] / below - by_average * a[i] / below;
    }
}

static void radam(hand *h) {
    const double power = pow(0.999, h->step), longest = 2 / (1 - 0.999) - 1;
    const double length = longest - 2 * h->step * power / (1 - power);
    float rate = 1e-3F / (1 - powf(b1, (float)h->step));
    TWO_STATES(h);
    if (length > 5) {
        rate *= (float)(sqrt(1 - power) *
                        sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)));
        for (i = 0; i < n; i++) {
            a[i] = b1 * a[i] + (1 - b1) * g[i];
            b[i] = b2 * b[i] + (1 - b2) * g[i] * g[i];
            p[i] -= rate * a[i] / (sqrtf(b[i]) + 1e-8F);
        }
    } else {
        for (i = 0; i < n; i++) {
            a[i] = b1 * a[i] + (1 - b1) * g[i];
            b[i] = b2 * b[i] + (1 - b2) * g[i] * g[i];
            p[i] -= rate * a[i];
        }
    }
}

static void rprop(hand *h) {
    TWO_STATES(h);
    for (i = 0; i < n; i++) {
        const float same = g[i] * a[i];
        float size = b[i] * (same > 0 ? 1.2F : same < 0 ? 0.5F : 1.0F);
        const float now = same < 0 ? 0.0F : g[i];
        size = size < 1e-6F ? 1e-6F : size > 50.0F ? 50.0F : size;
        b[i] = size;
        p[i] -= now > 0 ? size : now < 0 ? -size : 0.0F;
        a[i] = now;
    }
}

enum { lamb_lanes = 16 };

/* At most lamb_lanes elements, and their squares. */
static inline void lamb_moments(hand *h, size_t at, size_t count, float fix1, float fix2, double *squares, double *moves) {
    float *restrict a = h->a + at, *restrict b = h->b + at;
    const float *restrict p = h->p + at, *restrict g = h->g + at;
    size_t i;
    for (i = 0; i < count; i++) {
        float r;
        a[i] = b1 * a[i] + (1 - b1) * g[i];
        b[i] = b2 * b[i] + (1 - b2) * g[i] * g[i];
        r = a[i] * fix1 / (sqrtf(b[i] * fix2) + 1e-6F) + 0.01F * p[i];
        squares[i] += (double)p[i] * (double)p[i];
        moves[i] += (double)r * (double)r;
    }
}

static void lamb(hand *h) {
    const float fix1 = 1 / (1 - powf(b1, (float)h->step)), fix2 = 1 / (1 - powf(b2, (float)h->step));
    double lanes[2][lamb_lanes] = {{0}}, squares = 0, moves = 0;
    float move;
    TWO_STATES(h);
    for (i = 0; i + lamb_lanes <= n; i += lamb_lanes) lamb_moments(h, i, lamb_lanes, fix1, fix2, lanes[0], lanes[1]);
    lamb_moments(h, i, n - i, fix1, fix2, lanes[0], lanes[1]);
    for (i = 0; i < lamb_lanes; i++) {
        squares += lanes[0][i];
        moves += lanes[1][i];
    }
    h->shared[2 * h->job->thread] = squares;
    h->shared[2 * h->job->thread + 1] = moves;
    pthread_barrier_wait(h->job->barrier);
    squares = h->shared[0] + h->shared[2];
    moves = h->shared[1] + h->shared[3];
    move = squares == 0 || moves == 0 ? 1e-3F : (float)(1e-3 * sqrt(squares / moves));
    for (i = 0; i < n; i++) p[i] -= move * (a[i] * fix1 / (sqrtf(b[i] * fix2) + 1e-6F) + 0.01F * p[i]);
}

static void lion(hand *h) {
    ARRAYS(h);
    for (i = 0; i < n; i++) {
        const float mix = 0.9F * a[i] + 0.1F * g[i];
        p[i] -= mix > 0 ? 1e-4F : mix < 0 ? -1e-4F : 0.0F;
        a[i] = 0.99F * a[i] + 0.01F * g[i];
    }
}

static void step(void *data) {
    hand *h = data;
    h->step++;
    switch (h->job->rule->id) {
    case 2:
        sgd(h);
        break;
    case 3:
        adam(h, 1, 1e-8F);
        break;
    case 4:
        adam(h, 1 - 1e-3F * 0.01F, 1e-8F);
        break;
    case 5:
        adagrad(h);
        break;
    case 6:
        rmsprop(h);
        break;
    case 7:
        adadelta(h);
        break;
    case 8:
        adamax(h);
        break;
    case 9:
        nadam(h);
        break;
    case 10:
        radam(h);
        break;
    case 11:
        rprop(h);
        break;
    case 12:
        lamb(h);
        break;
    default:
        lion(h);
        break;
    }
}

static void *optim_run(void *data) {
    static double sums[16];
    optim_job *job = data;
    hand h = {optim_memory(job->count, 1),
              optim_memory(job->count, 1e-3F),
              optim_memory(job->count, 0),
              NULL,
              job->count,
              0,
              1,
              sums,
              job};
    h.b = optim_memory(job->rule->states > 1 ? job->count : 1, job->rule->id == 11 ? 1e-2F : 0);
    optim_timed(job, step, &h);
    free(h.p);
    free(h.g);
    free(h.a);
    free(h.b);
    return NULL;
}
