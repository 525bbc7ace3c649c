/* SPDX-License-Identifier: Apache-2.0 */
/* What the all-reduce programs share, so that every library is timed in exactly the same way. Valid C99 and C++.
 *
 * Each operation works in place on ordinary memory, all of which this rank has written just before: a loop over untouched
 * buffers would measure the cache. Up to 4 KiB a clock around each operation would weigh too much: there a batch of
 * "rewrite, operate" is timed as a whole, and the time of the same rewriting alone is taken off. Above, each operation is
 * timed by itself. The result is the median, in microseconds. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_SMALL 4096
#define BENCH_BATCHES 41
#define BENCH_MAX_SINGLE 20000

static const size_t bench_sizes[] = {4, 1024, 65536, 1048576, 26214400};
enum { bench_size_count = sizeof bench_sizes / sizeof bench_sizes[0] };

/** Sums `count` floats over the ranks, in place. */
typedef void (*bench_op)(float *data, size_t count);

static double bench_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/** Makes this process as large as an argument says, in GiB: starting others must not cost more for it. */
static void bench_fill_memory(const char *gib) {
    const size_t bytes = (size_t)(gib ? atoi(gib) : 0) << 30;
    size_t at;
    char *memory = (char *)(bytes ? malloc(bytes) : NULL);
    if (bytes && !memory) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (at = 0; at < bytes; at += 4096) ((volatile char *)memory)[at] = 1;
}

static void bench_rewrite(float *data, size_t count, float value) {
    size_t i;
    for (i = 0; i < count; i++) data[i] = value;
    __asm__ volatile("" : : "r"(data) : "memory");
}

static int bench_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, bench_compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/** Operations that take about a quarter of a second; all ranks agree by the operation itself. */
static size_t bench_operations(bench_op op, float *data, size_t count) {
    double begin, each;
    float shared;
    int i;
    for (i = 0; i < 5; i++) op(data, count);
    begin = bench_now_us();
    for (i = 0; i < 10; i++) bench_rewrite(data, count, 1), op(data, count);
    each = (bench_now_us() - begin) / 10;
    data[0] = (float)each;
    op(data, 1);
    shared = data[0];
    if (shared < 0.1F) shared = 0.1F;
    each = 250e3 / ((double)shared / 2);
    return each < 9 ? 9 : each > 400e3 ? (size_t)400e3 : (size_t)each;
}

static double bench_small(bench_op op, float *data, size_t count, size_t operations) {
    double values[BENCH_BATCHES];
    const size_t each = operations / BENCH_BATCHES + 1;
    size_t b, i;
    for (b = 0; b < BENCH_BATCHES; b++) {
        double begin = bench_now_us(), rewriting;
        for (i = 0; i < each; i++) bench_rewrite(data, count, (float)i);
        rewriting = bench_now_us() - begin;
        op(data, 1); /* begin together */
        begin = bench_now_us();
        for (i = 0; i < each; i++) {
            bench_rewrite(data, count, (float)i);
            op(data, count);
        }
        values[b] = (bench_now_us() - begin - rewriting) / (double)each;
    }
    return bench_median(values, BENCH_BATCHES);
}

static double bench_large(bench_op op, float *data, size_t count, size_t operations) {
    static double values[BENCH_MAX_SINGLE];
    const size_t n = operations < BENCH_MAX_SINGLE ? operations : BENCH_MAX_SINGLE;
    size_t i;
    for (i = 0; i < n; i++) {
        double begin;
        bench_rewrite(data, count, (float)i);
        begin = bench_now_us();
        op(data, count);
        values[i] = bench_now_us() - begin;
    }
    return bench_median(values, n);
}

/** Prints "bytes microseconds" for one size; each rank prints its own. */
static void bench_all_reduce(bench_op op, size_t bytes) {
    const size_t count = bytes / sizeof(float);
    float *data = (float *)malloc(bytes);
    size_t operations;
    double us;
    if (!data) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    bench_rewrite(data, count, 1);
    op(data, count);
    if (data[0] != 2 || data[count - 1] != 2) {
        fprintf(stderr, "wrong sum: %g, %g\n", (double)data[0], (double)data[count - 1]);
        exit(1);
    }
    operations = bench_operations(op, data, count);
    us = bytes <= BENCH_SMALL ? bench_small(op, data, count, operations) : bench_large(op, data, count, operations);
    printf("%zu %.6f\n", bytes, us);
    fflush(stdout);
    free(data);
}

#endif
