/* SPDX-License-Identifier: Apache-2.0 */
/* The step of a sharded AdamW by itself (update, then every rank gets every parameter), of f32, on two ranks: what the
 * programs share. As "key value" lines:
 *   0  milliseconds of a step of 20 layers of 2000 x 2000      1  MiB at the peak beyond parameters and gradients
 *   2  milliseconds of a step of 200 tensors of 1000 elements
 *   3  MiB that the whole state costs the rank that it is brought together on, at the peak      4  and the other rank
 * Medians over steps, each of which begins on all ranks together. */
#ifndef STEP_H
#define STEP_H

#include "bench.h"

enum { layers = 20, layer_elements = 4000000, large_steps = 7, tensors = 200, tensor_elements = 1000, small_steps = 300 };

static double step_mib(const char *key) {
    char line[256];
    long kib = -1;
    const size_t length = strlen(key);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0) kib = atol(line + length);
    if (file) fclose(file);
    if (kib < 0) abort();
    return (double)kib / 1024;
}

/** From here on the peak counts anew; what there is now. */
static double step_reset_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file || fputs("5", file) < 0) abort();
    fclose(file);
    return step_mib("VmRSS:");
}
static double step_peak(void) { return step_mib("VmHWM:"); }

static float *step_memory(size_t count, float value) {
    float *data;
    if (posix_memalign((void **)&data, 4096, count * sizeof *data) != 0) abort();
    bench_rewrite(data, count, value);
    return data;
}

#endif
