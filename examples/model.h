/* SPDX-License-Identifier: Apache-2.0 */
/* The model: the last CONTEXT characters -> their embeddings side by side -> hidden layers (squared ReLU) -> softmax over the
 * next character. Forward and backward pass by hand; train_text.md, sections 4 and 5, has the formulas. */
#ifndef TRAIN_TEXT_MODEL_H
#define TRAIN_TEXT_MODEL_H

#include "random.h"
#include "text.h"
#include <math.h>

enum { EMBED = 32, LAYERS = 2, HIDDEN = 400 };
enum { PARAMS = 1 + 2 * LAYERS }; /* the embedding, then weight and bias of each layer */

typedef struct model {
    size_t width[LAYERS + 1]; /* width[l] = inputs of layer l; the last is the number of characters */
    size_t batch;             /* rows that fit */
    size_t count[PARAMS], total;
    int64_t shape[PARAMS][2];            /* biases have one dimension */
    float *value[PARAMS], *grad[PARAMS]; /* into two flat arrays of `total` elements */
    float *activation[LAYERS + 1];       /* batch x width: inputs of each layer; the last are the logits */
    float *error[LAYERS + 1];            /* gradients of the same */
    float *slope[LAYERS + 1];            /* derivative of the activation function there */
    float *transposed, *packed;
} model;

static const char *const model_names[PARAMS] = {"embedding", "weight1", "bias1", "weight2", "bias2"};

/* ------------------------------------------------------------------------------------------------ matrix product -- */

enum { TILE_ROWS = 4, TILE_COLS = 8 }; /* what the 16 registers of SSE2 hold; compilers turn the loops into vectors */

static void tile_product(float *restrict out, const float *restrict a, const float *restrict b, size_t depth) {
    float sum[TILE_ROWS][TILE_COLS] = {{0}};
    for (size_t k = 0; k < depth; k++, a += TILE_ROWS, b += TILE_COLS)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int c = 0; c < TILE_COLS; c++) sum[r][c] += a[r] * b[c];
    memcpy(out, sum, sizeof sum);
}

/* to[k][i] = from[k * step + i * next], zeros where i >= count: what the tiles read lies in one piece. */
static void tile_pack(float *restrict to, const float *restrict from, size_t step, size_t next, size_t count, size_t depth,
                      size_t width) {
    for (size_t k = 0; k < depth; k++)
        for (size_t i = 0; i < width; i++) to[k * width + i] = i < count ? from[k * step + i * next] : 0.0f;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* out[m][n] += sum over k of a[m * row + k * column] * b[k][n], k ascending: an element's rounding does not depend on the
 * number of rows. `packed` holds (rows + TILE_ROWS + TILE_COLS) * depth floats. */
static void multiply_add(float *out, const float *a, size_t row, size_t column, const float *b, size_t rows, size_t depth,
                         size_t columns, float *packed) {
    float sum[TILE_ROWS * TILE_COLS], *panel = packed + (rows + TILE_ROWS) * depth;
    for (size_t m = 0; m < rows; m += TILE_ROWS)
        tile_pack(packed + m * depth, a + m * row, column, row, least(rows - m, TILE_ROWS), depth, TILE_ROWS);
    for (size_t n = 0; n < columns; n += TILE_COLS) {
        size_t wide = least(columns - n, TILE_COLS);
        tile_pack(panel, b + n, columns, 1, wide, depth, TILE_COLS);
        for (size_t m = 0; m < rows; m += TILE_ROWS) {
            size_t high = least(rows - m, TILE_ROWS);
            tile_product(sum, packed + m * depth, panel, depth);
            for (size_t r = 0; r < high; r++)
                for (size_t c = 0; c < wide; c++) out[(m + r) * columns + n + c] += sum[r * TILE_COLS + c];
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- model -- */

static model model_build(int characters, size_t rows, uint64_t seed) {
    model m = {.batch = rows};
    size_t widest = 0;
    for (int l = 0; l <= LAYERS; l++) {
        m.width[l] = l == 0 ? (size_t)CONTEXT * EMBED : l < LAYERS ? HIDDEN : (size_t)characters;
        m.activation[l] = allocate(rows * m.width[l], sizeof(float));
        m.error[l] = allocate(rows * m.width[l], sizeof(float));
        m.slope[l] = allocate(rows * m.width[l], sizeof(float));
        widest = m.width[l] > widest ? m.width[l] : widest;
    }
    for (int p = 0; p < PARAMS; p++) {
        size_t in = p == 0 ? (size_t)characters : p % 2 ? m.width[p / 2] : 1, out = p == 0 ? EMBED : m.width[(p + 1) / 2];
        m.shape[p][0] = (int64_t)(p > 0 && p % 2 == 0 ? out : in);
        m.shape[p][1] = (int64_t)out;
        m.count[p] = in * out;
        m.total += m.count[p];
    }
    m.value[0] = allocate(m.total, sizeof(float));
    m.grad[0] = allocate(m.total, sizeof(float));
    for (int p = 1; p < PARAMS; p++) {
        m.value[p] = m.value[p - 1] + m.count[p - 1];
        m.grad[p] = m.grad[p - 1] + m.count[p - 1];
    }
    size_t deepest = widest > rows ? widest : rows;
    m.transposed = allocate(widest * widest, sizeof(float));
    m.packed = allocate((widest + rows + TILE_ROWS + TILE_COLS) * deepest, sizeof(float));

    /* Weights are uniform in [-bound, bound), biases 0; the bounds are powers of two, so that no language rounds. */
    uint64_t state = random_stream(seed, 0);
    for (int p = 0; p < PARAMS; p += p == 0 ? 1 : 2) {
        float bound = p == 0 ? 0.5f : p == 1 ? 0.125f : 0.0625f;
        for (size_t i = 0; i < m.count[p]; i++) m.value[p][i] = (2.0f * random_unit(&state) - 1.0f) * bound;
    }
    return m;
}

static void model_destroy(model *m) {
    for (int l = 0; l <= LAYERS; l++) {
        free(m->activation[l]);
        free(m->error[l]);
        free(m->slope[l]);
    }
    free(m->value[0]);
    free(m->grad[0]);
    free(m->transposed);
    free(m->packed);
}

/* The logits of a batch of contexts, in activation[LAYERS]. */
static void model_logits(model *m, const unsigned char *characters, const batch *b) {
    for (size_t s = 0; s < b->samples; s++)
        for (int k = 0; k < CONTEXT; k++)
            memcpy(m->activation[0] + s * m->width[0] + k * EMBED,
                   m->value[0] + characters[b->position[s] - CONTEXT + k] * EMBED, EMBED * sizeof(float));
    for (int l = 0; l < LAYERS; l++) {
        float *out = m->activation[l + 1];
        size_t wide = m->width[l + 1];
        for (size_t s = 0; s < b->samples; s++) memcpy(out + s * wide, m->value[2 + 2 * l], wide * sizeof(float));
        multiply_add(out, m->activation[l], m->width[l], 1, m->value[1 + 2 * l], b->samples, m->width[l], wide, m->packed);
        for (size_t i = 0; l + 1 < LAYERS && i < b->samples * wide; i++) {
            float positive = out[i] > 0.0f ? out[i] : 0.0f;
            out[i] = positive * positive;
            m->slope[l + 1][i] = 2.0f * positive;
        }
    }
}

/* Turns logits into probabilities; returns the logarithm of that of `target`. */
static double softmax(float *logits, size_t count, size_t target) {
    float largest = logits[0], sum = 0.0f;
    for (size_t c = 1; c < count; c++) largest = logits[c] > largest ? logits[c] : largest;
    double logarithm = (double)(logits[target] - largest);
    for (size_t c = 0; c < count; c++) sum += logits[c] = expf(logits[c] - largest);
    for (size_t c = 0; c < count; c++) logits[c] /= sum;
    return logarithm - log((double)sum);
}

/* The sum of -ln p(right character) over a batch; activation[LAYERS] holds the probabilities afterwards. */
static double model_forward(model *m, const unsigned char *characters, const batch *b) {
    double loss = 0;
    size_t wide = m->width[LAYERS];
    model_logits(m, characters, b);
    for (size_t s = 0; s < b->samples; s++)
        loss -= softmax(m->activation[LAYERS] + s * wide, wide, characters[b->position[s]]);
    return loss;
}

/* Gradients of the mean loss over the batch, after model_forward; calls ready(user, parameter) as each is complete. */
typedef void (*ready_function)(void *user, size_t parameter);
static void model_backward(model *m, const unsigned char *characters, const batch *b, ready_function ready, void *user) {
    size_t wide = m->width[LAYERS];
    for (size_t s = 0; s < b->samples; s++)
        for (size_t c = 0; c < wide; c++)
            m->error[LAYERS][s * wide + c] =
                (m->activation[LAYERS][s * wide + c] - (c == characters[b->position[s]] ? 1.0f : 0.0f)) / (float)b->samples;
    memset(m->grad[0], 0, m->total * sizeof(float));
    for (int l = LAYERS - 1; l >= 0; l--) {
        size_t in = m->width[l], out = m->width[l + 1];
        const float *error = m->error[l + 1], *weight = m->value[1 + 2 * l];
        for (size_t s = 0; s < b->samples; s++)
            for (size_t n = 0; n < out; n++) m->grad[2 + 2 * l][n] += error[s * out + n];
        if (ready) ready(user, (size_t)(2 + 2 * l));
        multiply_add(m->grad[1 + 2 * l], m->activation[l], 1, in, error, in, b->samples, out, m->packed);
        if (ready) ready(user, (size_t)(1 + 2 * l));
        for (size_t k = 0; k < in; k++)
            for (size_t n = 0; n < out; n++) m->transposed[n * in + k] = weight[k * out + n];
        memset(m->error[l], 0, b->samples * in * sizeof(float));
        multiply_add(m->error[l], error, out, 1, m->transposed, b->samples, out, in, m->packed);
        for (size_t i = 0; l > 0 && i < b->samples * in; i++) m->error[l][i] *= m->slope[l][i];
    }
    for (size_t s = 0; s < b->samples; s++)
        for (int k = 0; k < CONTEXT; k++)
            for (int e = 0; e < EMBED; e++)
                m->grad[0][characters[b->position[s] - CONTEXT + k] * EMBED + e] +=
                    m->error[0][s * m->width[0] + k * EMBED + e];
    if (ready) ready(user, 0);
}
#endif
