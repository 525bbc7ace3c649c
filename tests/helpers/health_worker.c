/* SPDX-License-Identifier: Apache-2.0 */
/* A worker whose launcher asks what it does: health_worker COMMAND. What it waits for comes only when it is killed, so the
 * launcher's look is at rest. RANK and WORLD_SIZE are set. Where the launcher must know when to look, a file of the directory
 * $HEALTH_DIR named <what>.<rank> is made. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ujoin.h>
#include <unistd.h>

static int rank;

static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void mark(const char *what) {
    char path[4096];
    int file;
    snprintf(path, sizeof path, "%s/%s.%d", getenv("HEALTH_DIR"), what, rank);
    file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || close(file) != 0) exit(99);
}

static void wait_for_ever(const char *what) {
    mark(what);
    for (;;) pause();
}

static ujoin_group *make_group(const char *name) {
    ujoin_group_options options;
    ujoin_group *group;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.name = name;
    check(ujoin_group_create(&options, &group));
    return group;
}

static void sum(ujoin_group *group, size_t count) {
    static float values[64];
    ujoin_buffer buffer;
    memset(&buffer, 0, sizeof buffer);
    buffer.data = values;
    buffer.count = count;
    buffer.dtype = UJOIN_F32;
    check(ujoin_all_reduce(group, NULL, &buffer, UJOIN_SUM, NULL, NULL));
}

/* Three sums, then all but the last rank enter a fourth. */
static void hang(const char *name) {
    ujoin_group *group = make_group(name);
    int i;
    for (i = 0; i < 3; i++) sum(group, 7);
    if (rank == atoi(getenv("WORLD_SIZE")) - 1) wait_for_ever("idle");
    mark("enters");
    sum(group, 7);
}

/* Rank 1 has 2 rounds, rank 0 has 3 and does not join. */
static void join(void) {
    ujoin_group *group = make_group(NULL);
    ujoin_joinable *joinable;
    ujoin_ctx *ctx;
    ujoin_hooks hooks;
    int i;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    check(ujoin_joinable_create(group, &hooks, &joinable));
    check(ujoin_ctx_create(&joinable, 1, NULL, &ctx));
    check(ujoin_ctx_start(ctx));
    for (i = 0; i < (rank == 0 ? 3 : 2); i++) check(ujoin_joinable_notify(joinable, NULL));
    if (rank == 0) wait_for_ever("idle");
    check(ujoin_ctx_finish(ctx));
}

/* Five groups: the first four have a line each, of which one waits. */
static void many(void) {
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth"};
    ujoin_group *groups[5];
    int i;
    for (i = 0; i < 5; i++) groups[i] = make_group(names[i]);
    for (i = 0; i < 5; i++) check(ujoin_barrier(groups[i], NULL));
    if (rank == 1) wait_for_ever("idle");
    mark("enters");
    check(ujoin_barrier(groups[2], NULL));
}

/* The group is closed and gone. */
static void leave(void) {
    ujoin_group *group = make_group(NULL);
    check(ujoin_barrier(group, NULL));
    check(ujoin_group_close(group, UJOIN_NEVER));
    ujoin_group_destroy(group);
    wait_for_ever("left");
}

/* Writes nonsense over what the launcher reads, again and again. */
static void lie(void) {
    unsigned long pid, fd;
    char path[64];
    struct stat facts;
    unsigned char *memory;
    uint64_t state = 88172645463325252u + (uint64_t)rank;
    int file, first = 1;
    size_t i;
    if (sscanf(getenv("UJOIN_JOB"), "%lu:%lu:", &pid, &fd) != 2) exit(98);
    snprintf(path, sizeof path, "/proc/%lu/fd/%lu", pid, fd);
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &facts) != 0) exit(97);
    if (ftruncate(file, 0) == 0) exit(96);
    memory = mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) exit(95);
    memset(memory, 0xff, (size_t)facts.st_size);
    for (;;) {
        for (i = 0; i < (size_t)facts.st_size; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            memory[i] = (unsigned char)state;
        }
        if (first) mark("lies");
        first = 0;
    }
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    rank = atoi(getenv("RANK"));
    if (strcmp(command, "hang") == 0) {
        hang(argc > 2 ? argv[2] : NULL);
    } else if (strcmp(command, "join") == 0) {
        join();
    } else if (strcmp(command, "many") == 0) {
        many();
    } else if (strcmp(command, "leave") == 0) {
        leave();
    } else if (strcmp(command, "lie") == 0) {
        lie();
    } else if (strcmp(command, "none") == 0) {
        wait_for_ever("idle");
    } else {
        return 2;
    }
    return 0;
}
