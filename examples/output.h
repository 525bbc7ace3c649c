/* SPDX-License-Identifier: Apache-2.0 */
/* What the job leaves behind: fingerprints of parameters (SHA-256), files that are whole or not there, the loss curve. */
#ifndef TRAIN_TEXT_OUTPUT_H
#define TRAIN_TEXT_OUTPUT_H

#include "text.h"
#include <fcntl.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------- SHA-256 -- */

static uint32_t sha256_rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha256_block(uint32_t state[8], const unsigned char *block) {
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (sha256_rotate(w[i - 15], 7) ^ sha256_rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (sha256_rotate(w[i - 2], 17) ^ sha256_rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t first = v[7] + (sha256_rotate(v[4], 6) ^ sha256_rotate(v[4], 11) ^ sha256_rotate(v[4], 25)) +
                         ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[i] + w[i];
        uint32_t second = (sha256_rotate(v[0], 2) ^ sha256_rotate(v[0], 13) ^ sha256_rotate(v[0], 22)) +
                          ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

/* The fingerprint of memory as 64 hexadecimal digits. */
static void sha256_text(const void *memory, size_t size, char out[65]) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const unsigned char *bytes = memory;
    unsigned char last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole, padded = rest < 56 ? 64 : 128;
    for (size_t i = 0; i < whole; i += 64) sha256_block(state, bytes + i);
    memcpy(last, bytes + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++) last[padded - 1 - (size_t)i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    for (size_t i = 0; i < padded; i += 64) sha256_block(state, last + i);
    for (int i = 0; i < 8; i++) sprintf(out + 8 * i, "%08x", (unsigned)state[i]);
}

/* --------------------------------------------------------------------------------------------------------- files -- */

static char *path_join(const char *directory, const char *name) {
    char *path = allocate(strlen(directory) + strlen(name) + 2, 1);
    sprintf(path, "%s/%s", directory, name);
    return path;
}

/* Makes the directory if it is not there, and shows now, not after an hour of training, that files can be made in it. */
static void output_prepare(const char *directory) {
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        fail(1, "cannot make the directory %s (--out): %s", directory, strerror(errno));
    char *probe = path_join(directory, ".probe"), *own = allocate(strlen(probe) + 32, 1);
    sprintf(own, "%s.%ld", probe, (long)getpid());
    int file = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) { /* a file system without files that have no name */
        file = open(own, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (file >= 0) unlink(own);
    }
    if (file < 0) fail(1, "cannot write into the directory %s (--out): %s", directory, strerror(errno));
    close(file);
    free(probe);
    free(own);
}

/* The file is the old one or the whole new one, whenever this process is killed: written without a name, then renamed. */
static void output_write(const char *directory, const char *name, const char *content) {
    char *path = path_join(directory, name), *temporary = allocate(strlen(path) + 32, 1), source[64];
    size_t size = strlen(content), done = 0;
    sprintf(temporary, "%s.%ld.tmp", path, (long)getpid());
    int file = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666), named = file < 0;
    if (named) /* a file system without files that have no name */
        file = open(temporary, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    for (ssize_t n = 0; file >= 0 && done < size && (n >= 0 || errno == EINTR); done += n > 0 ? (size_t)n : 0)
        n = write(file, content + done, size - done);
    sprintf(source, "/proc/self/fd/%d", file);
    if (file < 0 || done < size || fsync(file) != 0 ||
        (!named && linkat(AT_FDCWD, source, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) != 0) || rename(temporary, path) != 0) {
        int error = errno;
        unlink(temporary);
        fail(1, "cannot write %s: %s", path, strerror(error));
    }
    close(file);
    free(path);
    free(temporary);
}

/* ---------------------------------------------------------------------------------------------------- loss curve -- */

typedef struct curve {
    float *bits; /* of each round, in order */
    size_t count, capacity, per_epoch;
} curve;

static void curve_add(curve *c, double bits) {
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 1024;
        c->bits = realloc(c->bits, c->capacity * sizeof *c->bits);
        if (!c->bits) fail(1, "no memory for the loss curve (%zu rounds)", c->capacity);
    }
    c->bits[c->count++] = (float)bits;
}

enum { WIDE = 720, HIGH = 400, LEFT = 60, RIGHT = 20, ABOVE = 40, BELOW = 50, POINTS = 240, SVG_SIZE = 32768 };

static double curve_x(double round, double rounds) { return LEFT + round / rounds * (WIDE - LEFT - RIGHT); }
static double curve_y(double bits, double most) { return HIGH - BELOW - fmin(bits / most, 1) * (HIGH - ABOVE - BELOW); }

/* A picture of at most POINTS points, each the mean of neighbouring rounds; `order1` and `after` are drawn as lines. */
static void curve_write(const curve *c, const char *directory, double order1, double after) {
    char *svg = allocate(SVG_SIZE, 1), *end = svg;
    double most = ceil(order1), rounds = c->count ? (double)c->count : 1;
    size_t points = c->count < POINTS ? c->count : POINTS;
    for (size_t i = 0; i < c->count; i++) most = c->bits[i] > most ? fmin(ceil((double)c->bits[i]), 16) : most;
    end += sprintf(end,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                   "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                   "<text x=\"%d\" y=\"22\">bits per character, by round (grey lines: epochs)</text>\n",
                   WIDE, HIGH, LEFT);
    for (int bits = 0; bits <= (int)most; bits++)
        end += sprintf(end, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", LEFT - 8, curve_y(bits, most) + 4,
                       bits);
    for (size_t epoch = 1; c->per_epoch && epoch * c->per_epoch <= c->count && epoch < 50; epoch++)
        end += sprintf(end, "<path d=\"M%.1f %dV%d\" stroke=\"#ccc\"/>\n", curve_x((double)(epoch * c->per_epoch), rounds),
                       ABOVE, HIGH - BELOW);
    end += sprintf(end, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"black\"/>\n", LEFT, ABOVE, HIGH - BELOW,
                   WIDE - RIGHT);
    end +=
        sprintf(end, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%zu rounds</text>\n", WIDE - RIGHT, HIGH - 18, c->count);
    const double level[2] = {order1, after};
    const char *label[2] = {"order-1 entropy of the text", "held-out text after training"}, *colour[2] = {"#c60", "#080"};
    for (int i = 0; i < 2; i++)
        end += sprintf(end,
                       "<path d=\"M%d %.1fH%d\" stroke=\"%s\" stroke-dasharray=\"6 4\"/>\n"
                       "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"%s\">%s: %.3f</text>\n",
                       LEFT, curve_y(level[i], most), WIDE - RIGHT, colour[i], WIDE - RIGHT, 16 + 16 * i, colour[i],
                       label[i], level[i]);
    end += sprintf(end, "<polyline fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\" points=\"");
    for (size_t p = 0; p < points; p++) {
        size_t from = p * c->count / points, to = (p + 1) * c->count / points;
        double sum = 0;
        for (size_t i = from; i < to; i++) sum += (double)c->bits[i];
        end +=
            sprintf(end, "%.1f,%.1f ", curve_x((double)(from + to) / 2, rounds), curve_y(sum / (double)(to - from), most));
    }
    sprintf(end, "\"/>\n</svg>\n");
    output_write(directory, "loss.svg", svg);
    free(svg);
}

#endif
