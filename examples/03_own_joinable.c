/* SPDX-License-Identifier: Apache-2.0 */
/* Lesson 3: a joinable of your own. Anything with collectives in each round can take part in a join context, if it says
 * what a rank that has joined must do in its place: here a counter of the inputs that all ranks have seen.
 *
 *     ujoin-run --standalone --nproc-per-node 2 03_own_joinable
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ujoin.h>

#define INPUTS 5

static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

typedef struct counter {
    ujoin_group *group;
    ujoin_joinable *joinable;
    int64_t count;   /* inputs of all ranks, while this rank had some itself */
    int64_t maximum; /* the count of the rank that joined last */
    int shadowed;    /* rounds that this rank worked for others */
} counter;

/* The counter's collective: how many inputs there are in this round. */
static ujoin_status sum(counter *me, int64_t *number) {
    ujoin_buffer buffer = {.data = number, .count = 1, .dtype = UJOIN_I64};
    return ujoin_all_reduce(me->group, NULL, &buffer, UJOIN_SUM, NULL, NULL);
}

/* In the loop: first tell the context that this joinable is used, then the collective. */
static void counter_add(counter *me) {
    int64_t inputs = 1;
    check(ujoin_joinable_notify(me->joinable, NULL));
    check(sum(me, &inputs));
    me->count += inputs;
}

/* After this rank has joined: called once for each use by a rank that has not. It issues the same collectives as that use.
 * What it brings does not count, whatever it is: a joined rank adds nothing to a sum. */
static ujoin_status main_hook(void *self, const ujoin_hook_args *args) {
    counter *me = self;
    int64_t nothing = 0;
    (void)args;
    me->shadowed++;
    return sum(me, &nothing); /* an error here is told to all ranks, with hook and rank */
}

/* Once on each rank, when all have joined. The context has agreed on one of the last joiners, the same on every rank. */
static ujoin_status post_hook(void *self, const ujoin_hook_args *args) {
    counter *me = self;
    int wanted = 0;
    for (size_t i = 0; i < args->option_count; i++)
        if (strcmp(args->options[i].name, "sync_maximum") == 0) wanted = args->options[i].value != 0;
    if (!wanted) return UJOIN_OK;
    me->maximum = me->count; /* what that rank has goes to all */
    ujoin_buffer buffer = {.data = &me->maximum, .count = 1, .dtype = UJOIN_I64};
    return ujoin_broadcast(me->group, &buffer, args->authoritative_rank, NULL, NULL);
}

/* Rank r sees its own rounds 0 to INPUTS + r - 1; in round i the ranks with more than i inputs add one each. */
static int64_t expected_count(int rank, int size) {
    int64_t count = 0;
    for (int round = 0; round < INPUTS + rank; round++)
        for (int r = 0; r < size; r++) count += INPUTS + r > round;
    return count;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    counter me = {0};
    check(ujoin_group_create(NULL, &me.group));
    int rank = ujoin_group_rank(me.group), size = ujoin_group_size(me.group);

    const char *known[] = {"sync_maximum"}; /* the options that its hooks know; another one is refused by the context */
    ujoin_hooks hooks = {.size = sizeof hooks,
                         .main_hook = main_hook,
                         .post_hook = post_hook,
                         .user_data = &me,
                         .name = "counter",
                         .options = known,
                         .option_count = 1};
    check(ujoin_joinable_create(me.group, &hooks, &me.joinable));

    ujoin_hyper wanted = {"sync_maximum", 1}; /* given to the context, for the hooks of all its joinables */
    ujoin_ctx_options options = {.size = sizeof options, .hook_options = &wanted, .hook_option_count = 1};
    ujoin_ctx *join;
    check(ujoin_ctx_create(&me.joinable, 1, &options, &join));

    check(ujoin_ctx_start(join));
    for (int input = 0; input < INPUTS + rank; input++) counter_add(&me);
    check(ujoin_ctx_finish(join));

    printf("rank %d: %lld inputs counted before joining (own: %d), %d rounds shadowed, %lld counted in all\n", rank,
           (long long)me.count, INPUTS + rank, me.shadowed, (long long)me.maximum);
    expect(me.count == expected_count(rank, size), "the count");
    expect(me.maximum == expected_count(size - 1, size), "the maximum");
    expect(me.shadowed == size - 1 - rank, "the rounds shadowed");

    ujoin_ctx_destroy(join);
    ujoin_joinable_destroy(me.joinable);
    ujoin_group_destroy(me.group);
    printf("rank %d: all well\n", rank);
    return 0;
}
