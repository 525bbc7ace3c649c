/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: step_ujoin RANK SIZE RENDEZVOUS */
#include "step.h"
#include <ujoin.h>

static ujoin_group *group;

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static ujoin_zero *make(ujoin_param *params, size_t count) {
    ujoin_zero *zero;
    check(zero_create(group, UJOIN_OPTIMIZER_ADAMW, params, count, NULL, &zero));
    return zero;
}

static double median_ms(ujoin_zero *zero, int steps) {
    double times[small_steps];
    int i;
    check(zero_step(zero, NULL));
    for (i = 0; i < steps; i++) {
        double begin;
        check(ujoin_barrier(group, NULL));
        begin = bench_now_us();
        check(zero_step(zero, NULL));
        times[i] = (bench_now_us() - begin) / 1e3;
    }
    return bench_median(times, (size_t)steps);
}

static void fill(ujoin_param *params, size_t count, size_t elements) {
    size_t i;
    memset(params, 0, count * sizeof *params);
    for (i = 0; i < count; i++)
        params[i] = (ujoin_param){
            .data = step_memory(elements, 1), .grad = step_memory(elements, 1e-3F), .count = elements, .dtype = UJOIN_F32};
}

static void drop(ujoin_param *params, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        free(params[i].data);
        free(params[i].grad);
    }
}

static void large(int rank) {
    ujoin_param params[layers];
    ujoin_zero *zero;
    double before;
    fill(params, layers, layer_elements);
    check(ujoin_barrier(group, NULL));
    before = step_reset_peak();
    zero = make(params, layers);
    printf("0 %.6f\n", median_ms(zero, large_steps));
    printf("1 %.3f\n", step_peak() - before);
    before = step_reset_peak();
    check(zero_consolidate_state_dict(zero, 0));
    printf("%d %.3f\n", rank == 0 ? 3 : 4, step_peak() - before);
    zero_destroy(zero);
    drop(params, layers);
}

int main(int argc, char **argv) {
    ujoin_group_options options = {.size = sizeof options, .backend = "shm"};
    ujoin_param params[tensors];
    ujoin_zero *zero;
    if (argc != 4) return 2;
    options.rank = atoi(argv[1]);
    options.world_size = atoi(argv[2]);
    options.rendezvous = argv[3];
    check(ujoin_group_create(&options, &group));
    large(options.rank);
    fill(params, tensors, tensor_elements);
    zero = make(params, tensors);
    printf("2 %.6f\n", median_ms(zero, small_steps));
    zero_destroy(zero);
    drop(params, tensors);
    ujoin_group_destroy(group);
    return 0;
}
