/* SPDX-License-Identifier: Apache-2.0 */
/* splitmix64, the one source of chance: the same numbers in every language (train_text.md, section 3). */
#ifndef TRAIN_TEXT_RANDOM_H
#define TRAIN_TEXT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* A stream of its own for each purpose, so that no rank's numbers depend on what another one drew. */
static uint64_t random_stream(uint64_t seed, uint64_t purpose) {
    uint64_t state = seed;
    return random_next(&state) ^ purpose;
}

/* In [0, 1), a multiple of 2^-24: exact in a float. */
static float random_unit(uint64_t *state) { return (float)(random_next(state) >> 40) * (1.0f / 16777216.0f); }

static void random_shuffle(uint32_t *items, size_t count, uint64_t *state) {
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)(random_next(state) % i);
        uint32_t kept = items[i - 1];
        items[i - 1] = items[j];
        items[j] = kept;
    }
}

#endif
