/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizer programs share: which rules, how much memory they move, and how it is timed.
 *
 * usage: <program> ELEMENTS THREADS [RULE]. Each thread has its own part of the elements, unless the program shares them out
 * itself (OPTIM_SHARES). A line for each rule: its number and the nanoseconds per element of a step, the median over some
 * steps. Memory is written before, so that every page is there. */
#ifndef OPTIM_H
#define OPTIM_H

#include "bench.h"
#include <pthread.h>

/** Number in ujoin_optimizer_value, number of state tensors of f32, all of them read and written in a step. */
typedef struct optim_rule {
    int id, states;
} optim_rule;
static const optim_rule optim_rules[] = {{2, 1}, {3, 2}, {4, 2},  {5, 1},  {6, 1},  {7, 2},
                                         {8, 2}, {9, 2}, {10, 2}, {11, 2}, {12, 2}, {13, 1}};
enum { optim_rule_count = sizeof optim_rules / sizeof optim_rules[0], optim_max_steps = 200 };

typedef struct optim_job {
    const optim_rule *rule;
    size_t count;
    int steps, thread, threads; /* threads: those that it is to use itself */
    pthread_barrier_t *barrier;
    double *times; /* of thread 0 */
} optim_job;

/** One thread's work: prepares, calls optim_timed, cleans up. */
static void *optim_run(void *job);

static float *optim_memory(size_t count, float value) {
    float *data;
    if (posix_memalign((void **)&data, 4096, (count + 1) * sizeof *data) != 0) abort();
    bench_rewrite(data, count, value);
    return data;
}

static void optim_timed(optim_job *job, void (*step)(void *), void *data) {
    int i;
    for (i = 0; i < job->steps + 2; i++) { /* two to warm up */
        double begin;
        pthread_barrier_wait(job->barrier);
        begin = bench_now_us();
        step(data);
        pthread_barrier_wait(job->barrier);
        if (job->thread == 0 && i >= 2) job->times[i - 2] = bench_now_us() - begin;
    }
}

int main(int argc, char **argv) {
    const size_t count = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
    const int wanted = argc > 2 ? atoi(argv[2]) : 0;
#ifdef OPTIM_SHARES
    const int threads = wanted < 1 ? 0 : 1;
#else
    const int threads = wanted;
#endif
    const int only = argc > 3 ? atoi(argv[3]) : 0;
    int r, t;
    if (count == 0 || wanted < 1 || wanted > 8) {
        fprintf(stderr, "usage: %s ELEMENTS THREADS [RULE]\n", argv[0]);
        return 2;
    }
    for (r = 0; r < optim_rule_count; r++) {
        double times[optim_max_steps];
        pthread_t ids[8];
        optim_job jobs[8];
        pthread_barrier_t barrier;
        if (only != 0 && only != optim_rules[r].id) continue;
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        for (t = 0; t < threads; t++) {
            optim_job *job = &jobs[t];
            job->rule = &optim_rules[r];
            job->threads = wanted;
            job->count = count / (size_t)threads;
            job->steps = (int)(100000000 / count) + 3;
            if (job->steps > 50) job->steps = 50;
            job->thread = t;
            job->barrier = &barrier;
            job->times = times;
            pthread_create(&ids[t], NULL, optim_run, job);
        }
        for (t = 0; t < threads; t++) pthread_join(ids[t], NULL);
        pthread_barrier_destroy(&barrier);
        printf("%d %.5f\n", optim_rules[r].id, bench_median(times, (size_t)jobs[0].steps) * 1e3 / (double)count);
        fflush(stdout);
    }
    return 0;
}

#endif
