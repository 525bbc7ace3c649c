/* SPDX-License-Identifier: Apache-2.0 */
/* The text: read, turned into character numbers, cut into shards and a part that nobody trains on (train_text.md, 1 and 2). */
#ifndef TRAIN_TEXT_TEXT_H
#define TRAIN_TEXT_TEXT_H

#include "random.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LICENCES "/usr/share/common-licenses"
enum { BLOCK = 2000, HELD_OUT_EVERY = 10, SHORTEST_TEXT = BLOCK * HELD_OUT_EVERY };
#define LONGEST_TEXT ((size_t)1 << 30)

typedef struct text {
    unsigned char *characters; /* numbers in the table, not bytes */
    size_t length;
    unsigned char table[256]; /* the bytes that occur, ascending: character number -> byte */
    int table_size;
} text;

/* The whole program ends in one way when something is wrong: one line that says what, and status 1 (2: wrong usage). */
static void fail(int status, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
static void fail(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fputs("train_text: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(status);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail(1, "no memory for %zu elements of %zu bytes", count, size);
    return memory;
}

static void text_append(text *t, const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat facts;
    if (!file || fstat(fileno(file), &facts) != 0) fail(1, "cannot read the text %s: %s", path, strerror(errno));
    if (!S_ISREG(facts.st_mode)) fail(1, "the text %s is not a regular file", path);
    if ((size_t)facts.st_size > LONGEST_TEXT - t->length) fail(1, "the text %s is too long: at most 1 GiB", path);
    t->characters = realloc(t->characters, t->length + (size_t)facts.st_size + 1);
    if (!t->characters) fail(1, "no memory for the text %s (%lld bytes)", path, (long long)facts.st_size);
    if (fread(t->characters + t->length, 1, (size_t)facts.st_size, file) != (size_t)facts.st_size)
        fail(1, "cannot read the text %s: %s", path, ferror(file) ? strerror(errno) : "it became shorter meanwhile");
    t->length += (size_t)facts.st_size;
    fclose(file);
}

static int text_by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Regular files only, symbolic links are skipped (they repeat a licence), in the order of their names' bytes. */
static void text_append_licences(text *t) {
    char *paths[256];
    size_t count = 0;
    DIR *directory = opendir(LICENCES);
    if (!directory) fail(1, "cannot read the default text %s: %s; give a text with --text FILE", LICENCES, strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && count < 256;) {
        struct stat facts;
        char *path = allocate(sizeof LICENCES + strlen(entry->d_name) + 1, 1);
        sprintf(path, "%s/%s", LICENCES, entry->d_name);
        if (lstat(path, &facts) == 0 && S_ISREG(facts.st_mode))
            paths[count++] = path;
        else
            free(path);
    }
    closedir(directory);
    qsort(paths, count, sizeof *paths, text_by_name);
    for (size_t i = 0; i < count; i++) {
        text_append(t, paths[i]);
        free(paths[i]);
    }
}

/* path NULL: the default text. */
static text text_load(const char *path) {
    text t = {0};
    if (path)
        text_append(&t, path);
    else
        text_append_licences(&t);
    if (t.length < SHORTEST_TEXT)
        fail(1, "the text %s has %zu characters, at least %d are needed", path ? path : LICENCES, t.length, SHORTEST_TEXT);
    int number[256], occurs[256] = {0};
    for (size_t i = 0; i < t.length; i++) occurs[t.characters[i]] = 1;
    for (int byte = 0; byte < 256; byte++)
        if (occurs[byte]) {
            number[byte] = t.table_size;
            t.table[t.table_size++] = (unsigned char)byte;
        }
    for (size_t i = 0; i < t.length; i++) t.characters[i] = (unsigned char)number[t.characters[i]];
    return t;
}

/* Bits per character of the best guess that knows only the character before: what a model must beat to have learned. */
static double text_order1_entropy(const text *t) {
    size_t n = (size_t)t->table_size;
    double *pairs = allocate(n * n, sizeof *pairs), bits = 0;
    for (size_t i = 1; i < t->length; i++) pairs[t->characters[i - 1] * n + t->characters[i]] += 1;
    for (size_t first = 0; first < n; first++) {
        double total = 0;
        for (size_t second = 0; second < n; second++) total += pairs[first * n + second];
        for (size_t second = 0; second < n; second++)
            if (pairs[first * n + second] > 0) bits -= pairs[first * n + second] * log2(pairs[first * n + second] / total);
    }
    free(pairs);
    return bits / (double)(t->length - 1);
}

/* The training text (held_out 0) or the part held out (1): every tenth block of 2,000 characters. */
static text text_part(const text *whole, int held_out) {
    text part = *whole;
    part.characters = allocate(whole->length, 1);
    part.length = 0;
    for (size_t i = 0; i < whole->length; i++)
        if ((i / BLOCK % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == held_out)
            part.characters[part.length++] = whole->characters[i];
    return part;
}

/* -------------------------------------------------------------------------------------------------------- shards -- */

enum { CONTEXT = 16 }; /* characters that the model sees before the one that it predicts */

typedef struct batch {
    const uint32_t *position; /* of the characters to predict */
    size_t samples;
} batch;

/* The part of the training text that one rank has. Its first CONTEXT characters are seen, never predicted. */
typedef struct shard {
    uint32_t *position; /* of every character to predict, in the order of this epoch */
    size_t begin, end, samples, batches, batch_size;
} shard;

/* Where the shard of a rank begins; where that of rank + 1 does, it ends. Shares are in proportion to 2 size + rank. */
static size_t shard_begin(size_t length, size_t rank, size_t size) {
    size_t before = 2 * size * rank + rank * (rank - 1) / 2, all = size * (5 * size - 1) / 2;
    return length * before / all;
}

static shard shard_make(size_t length, size_t rank, size_t size, size_t batch_size) {
    shard s = {
        .begin = shard_begin(length, rank, size), .end = shard_begin(length, rank + 1, size), .batch_size = batch_size};
    s.samples = s.end - s.begin > CONTEXT ? s.end - s.begin - CONTEXT : 0;
    s.batches = (s.samples + batch_size - 1) / batch_size;
    s.position = allocate(s.samples, sizeof *s.position);
    return s;
}

/* A new order for each epoch, different on every rank, the same in every run with this seed. */
static void shard_shuffle(shard *s, uint64_t seed, size_t epoch, size_t rank) {
    uint64_t state = random_stream(seed, 1 + epoch * 65536 + rank);
    for (size_t i = 0; i < s->samples; i++) s->position[i] = (uint32_t)(s->begin + CONTEXT + i);
    random_shuffle(s->position, s->samples, &state);
}

/* The last batch has what is left. */
static batch shard_batch(const shard *s, size_t index) {
    size_t first = index * s->batch_size, left = s->samples - first;
    return (batch){.position = s->position + first, .samples = left < s->batch_size ? left : s->batch_size};
}

#endif
