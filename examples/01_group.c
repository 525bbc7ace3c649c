/* SPDX-License-Identifier: Apache-2.0 */
/* Lesson 1: a group of processes that compute together, and what happens when something goes wrong.
 *
 *     ujoin-run --standalone --nproc-per-node 2 01_group
 *
 * Every process runs this same program. The group tells each who it is: its rank, 0 to size - 1. A collective is a call
 * that all ranks make, in the same order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ujoin.h>

/* A status below 0 is an error, and ujoin_last_error() has the whole story: rank, operation, cause. */
static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

/* The example checks itself: what it prints must be right. */
static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

/* The sum of a number over all ranks, the same on each. NULL instead of memory to send: the number is replaced. */
static double sum_over_ranks(ujoin_group *group, double number) {
    ujoin_buffer buffer = {.data = &number, .count = 1, .dtype = UJOIN_F64};
    check(ujoin_all_reduce(group, NULL, &buffer, UJOIN_SUM, NULL, NULL));
    return number;
}

/* The same in flight: the call returns at once with a work handle, and the memory is lent until the wait says it is done. */
static double average_in_flight(ujoin_group *group, const float *send, size_t count) {
    float received[4];
    ujoin_const_buffer from = {.data = send, .count = count, .dtype = UJOIN_F32};
    ujoin_buffer to = {.data = received, .count = count, .dtype = UJOIN_F32};
    ujoin_work *work;
    check(ujoin_all_reduce(group, &from, &to, UJOIN_AVG, NULL, &work));
    double own = 0;
    for (size_t i = 0; i < count; i++) own += send[i]; /* something useful meanwhile; reading what is sent is fine */
    check(ujoin_work_wait(work, -1));                  /* -1: as long as it takes */
    ujoin_work_destroy(work);
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += received[i];
    printf("my four numbers add up to %g, their averages over the ranks to %g\n", own, sum);
    return sum;
}

/* Errors are returned on every rank that is concerned, so nobody waits for ever. */
static void go_wrong(ujoin_group *group, int rank, int size) {
    /* A wrong argument is refused before anything is sent: the group is as good as before. */
    double numbers[2] = {1, 2};
    ujoin_buffer buffer = {.data = numbers, .count = 1, .dtype = UJOIN_F64};
    ujoin_status status = ujoin_broadcast(group, &buffer, size, NULL, NULL);
    expect(status == UJOIN_E_INVALID, "a broadcast from a rank that does not exist is refused");
    printf("refused: %s\n", ujoin_last_error());
    expect(sum_over_ranks(group, 1) == size, "the group still works");
    if (size == 1) return; /* one rank alone cannot disagree */

    /* Ranks that call different things: the last one brings two numbers. All are told, with both descriptions. */
    buffer.count = rank == size - 1 ? 2 : 1;
    status = ujoin_all_reduce(group, NULL, &buffer, UJOIN_SUM, NULL, NULL);
    expect(status == UJOIN_E_MISMATCH, "ranks that differ are told so");
    printf("told: %s\n", ujoin_last_error());

    /* That broke the group. Each later call tells the first cause. */
    expect(ujoin_barrier(group, NULL) == UJOIN_E_MISMATCH, "a broken group stays broken");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* whole lines, also where several ranks share one terminal */

    ujoin_group *group; /* NULL: who and where we are is in the environment, as ujoin-run sets it */
    check(ujoin_group_create(NULL, &group));
    int rank = ujoin_group_rank(group), size = ujoin_group_size(group);

    double sum = sum_over_ranks(group, rank + 1);
    printf("rank %d of %d: the ranks counted from 1 add up to %g\n", rank, size, sum);
    expect(sum == size * (size + 1) / 2, "the sum over the ranks");

    float mine[4];
    for (int i = 0; i < 4; i++) mine[i] = (float)(rank + i);
    double averages = average_in_flight(group, mine, 4);
    expect(fabs(averages - (6 + 2.0 * (size - 1))) < 1e-6, "the averages over the ranks");

    go_wrong(group, rank, size);
    ujoin_group_destroy(group);

    /* After an error: a new group, under another name. */
    check(ujoin_group_create(&(ujoin_group_options){.size = sizeof(ujoin_group_options), .name = "second"}, &group));
    expect(sum_over_ranks(group, 1) == size, "the second group works");
    check(ujoin_group_close(group, -1)); /* when all are done; a plain destroy would do */
    ujoin_group_destroy(group);
    printf("rank %d: all well\n", rank);
    return 0;
}
