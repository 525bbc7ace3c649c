/* SPDX-License-Identifier: Apache-2.0 */
/* Lesson 2: training on uneven inputs. Rank r has 5 + r of them.
 *
 *     ujoin-run --standalone --nproc-per-node 2 02_join
 *
 * Without a join context the rank with 6 inputs would wait for ever in its last round. With one, a rank without inputs
 * joins: it works for the others, with gradients of zero, until all have joined. Then all get the parameters of a rank that
 * was the last to join. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ujoin.h>

#define INPUTS 5
#define RATE 0.01f

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

/* The model: y = weight x + bias, and y itself is the loss. So the gradients are x and 1. */
static float weight, bias, weight_grad, bias_grad;

static void backward(ujoin_ddp *ddp, float x) {
    bias_grad = 1;
    check(ujoin_ddp_ready(ddp, 1)); /* this gradient is complete, and may be on its way while the next is computed */
    weight_grad = x;
    check(ujoin_ddp_ready(ddp, 0));
}

/* One pass over the inputs of this rank. The rank `stopper` asks all to stop in its third round; -1: nobody does. */
static ujoin_ctx_report pass(ujoin_ctx *join, ujoin_ddp *ddp, int rank, int stopper) {
    check(ujoin_ctx_start(join));
    for (int round = 0; round < INPUTS + rank; round++) {
        if (rank == stopper && round == 2) check(ujoin_ctx_stop(join));
        check(ujoin_ddp_forward(ddp, 1)); /* a batch of one sample */
        backward(ddp, 1);
        check(ujoin_ddp_finish(ddp)); /* the gradients are now those of all ranks */
        weight -= RATE * weight_grad;
        bias -= RATE * bias_grad;
        if (ujoin_ctx_stopped(join)) break; /* after the same round on every rank */
    }
    check(ujoin_ctx_finish(join)); /* no more inputs here: works for the others until all have joined */

    ujoin_ctx_report report = {.size = sizeof report};
    check(ujoin_ctx_get_report(join, &report));
    return report;
}

static void whole_pass(ujoin_ctx *join, ujoin_ddp *ddp, int rank, int size) {
    weight = bias = 0;
    ujoin_ctx_report report = pass(join, ddp, rank, -1);
    printf("rank %d: %lld rounds of its own, then %lld for the others; weight %.4f, bias %.4f\n", rank,
           (long long)report.rounds, (long long)report.shadow_rounds, weight, bias);
    expect(report.rounds == INPUTS + rank, "a rank's own rounds");
    expect(report.shadow_rounds == size - 1 - rank, "the rounds that it worked for others");

    /* A rank that ran no round for others is a last joiner; of several the largest is the one whose word counts. */
    expect(report.is_last_joiner == (rank == size - 1), "who was the last to join");
    expect(report.authoritative_rank == size - 1, "whose parameters all have");

    /* In each round the gradients of the ranks that are left are summed and divided by the size of the group. In all
     * rounds together each input has moved the parameters by RATE / size. */
    int inputs = 0;
    for (int r = 0; r < size; r++) inputs += INPUTS + r;
    float expected = -RATE * (float)inputs / (float)size;
    expect(fabsf(weight - expected) < 1e-6f && fabsf(bias - expected) < 1e-6f, "the parameters");
}

static void stopped_pass(ujoin_ctx *join, ujoin_ddp *ddp, int rank, int size) {
    ujoin_ctx_report report = pass(join, ddp, rank, size - 1);
    printf("rank %d: stopped after %lld rounds, as all agreed\n", rank, (long long)report.rounds);
    expect(report.stopped && report.rounds == 3, "all leave after the round in which one asked");
    expect(report.is_last_joiner, "who leaves with all others is a last joiner too");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    ujoin_group *group;
    check(ujoin_group_create(NULL, &group));
    int rank = ujoin_group_rank(group), size = ujoin_group_size(group);

    ujoin_param params[] = {
        {.name = "weight", .data = &weight, .grad = &weight_grad, .count = 1, .dtype = UJOIN_F32},
        {.name = "bias", .data = &bias, .grad = &bias_grad, .count = 1, .dtype = UJOIN_F32},
    };
    ujoin_ddp *ddp; /* sums the gradients over the ranks */
    check(ujoin_ddp_create(group, params, 2, NULL, &ddp));
    ujoin_joinable *joinables[] = {ujoin_ddp_joinable(ddp)}; /* whose work a joined rank is to go on with */
    ujoin_ctx *join;
    check(ujoin_ctx_create(joinables, 1, NULL, &join));

    whole_pass(join, ddp, rank, size); /* a context can be started again: once per epoch */
    stopped_pass(join, ddp, rank, size);

    ujoin_ctx_destroy(join);
    ujoin_ddp_destroy(ddp);
    ujoin_group_destroy(group);
    printf("rank %d: all well\n", rank);
    return 0;
}
