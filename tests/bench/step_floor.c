/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of a step: two processes with a bare loop each, which moves the same bytes. A rank updates its ten layers piece by
 * piece, copies each piece into memory that both see, and takes the other's piece from there. Nothing is checked, nobody
 * could fail, and a wait spins. */
#include "step.h"
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { piece = 65536, own_layers = layers / 2 };

typedef struct shared {
    int done[2][16]; /* pieces put there, a cache line each */
    float slots[2][2][piece];
} shared;

static shared *both;
static float *values[layers], *gradients[layers], *average[own_layers], *square[own_layers];

static void update(float *restrict p, const float *restrict g, float *restrict a, float *restrict b, size_t n, float rate,
                   float root) {
    size_t i;
    for (i = 0; i < n; i++) {
        a[i] = 0.9F * a[i] + 0.1F * g[i];
        b[i] = 0.999F * b[i] + 0.001F * g[i] * g[i];
        p[i] = 0.99999F * p[i] - rate * a[i] / (sqrtf(b[i]) * root + 1e-8F);
    }
}

/* Spins, and lets others have the processor if it takes long: there may be only one. */
static void wait_for(int rank, int count) {
    int looks = 0;
    while (__atomic_load_n(&both->done[rank][0], __ATOMIC_ACQUIRE) < count)
        if (++looks % 1000 == 0) sched_yield();
}

static int pieces; /* put there by this rank */

static void step(int rank, int number) {
    const float rate = 1e-3F / (1 - powf(0.9F, (float)number)), root = 1 / sqrtf(1 - powf(0.999F, (float)number));
    int layer;
    for (layer = 0; layer < own_layers; layer++) {
        float *mine = values[2 * layer + rank], *other = values[2 * layer + 1 - rank];
        size_t at;
        for (at = 0; at < layer_elements; at += piece) {
            const size_t n = layer_elements - at < piece ? layer_elements - at : piece;
            const int slot = pieces % 2;
            update(mine + at, gradients[2 * layer + rank] + at, average[layer] + at, square[layer] + at, n, rate, root);
            memcpy(both->slots[rank][slot], mine + at, n * sizeof *mine);
            __atomic_store_n(&both->done[rank][0], ++pieces, __ATOMIC_RELEASE);
            wait_for(1 - rank, pieces);
            memcpy(other + at, both->slots[1 - rank][slot], n * sizeof *mine);
        }
    }
}

static void run(int rank) {
    double times[large_steps];
    int i;
    for (i = 0; i < layers; i++) {
        values[i] = step_memory(layer_elements, 1);
        gradients[i] = step_memory(layer_elements, 1e-3F);
    }
    for (i = 0; i < own_layers; i++) {
        average[i] = step_memory(layer_elements, 0);
        square[i] = step_memory(layer_elements, 0);
    }
    step(rank, 1);
    for (i = 0; i < large_steps; i++) {
        double begin;
        /* Both have put and taken all pieces of the last step: one more says so. */
        __atomic_store_n(&both->done[rank][0], ++pieces, __ATOMIC_RELEASE);
        wait_for(1 - rank, pieces);
        begin = bench_now_us();
        step(rank, i + 2);
        times[i] = (bench_now_us() - begin) / 1e3;
    }
    printf("0 %.6f\n", bench_median(times, large_steps));
    fflush(stdout);
}

int main(void) {
    pid_t child;
    int status;
    both = mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) return 1;
    child = fork();
    if (child < 0) return 1;
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); /* it would wait for ever */
    run(child == 0);
    if (child == 0) _exit(0);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
