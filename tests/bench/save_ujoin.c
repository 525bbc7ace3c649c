/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading the state of an optimizer: one parameter of 16M elements with momentum, both saved: 128 MB.
 * Milliseconds as "key value" lines: 0 zero_save with everything on the disk, 1 zero_save without that, 2 zero_load.
 * Usage: save_ujoin DIRECTORY */
#include "bench.h"
#include <ujoin.h>

enum { elements = 16 * 1000 * 1000, times = 3 };

static void check(ujoin_status status) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static double save(ujoin_zero *zero, const char *path, int sync) {
    const ujoin_save_options options = {
        .size = sizeof options, .parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS, .no_sync = !sync};
    const double begin = bench_now_us();
    check(zero_save(zero, path, &options));
    return (bench_now_us() - begin) / 1e3;
}

static double load(ujoin_zero *zero, const char *path) {
    const ujoin_save_options options = {.size = sizeof options, .parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS};
    const double begin = bench_now_us();
    check(zero_load(zero, path, &options, NULL));
    return (bench_now_us() - begin) / 1e3;
}

int main(int argc, char **argv) {
    const ujoin_group_options alone = {
        .size = sizeof alone, .rendezvous = "local://save", .backend = "self", .world_size = 1};
    const ujoin_hyper momentum = {"momentum", 0.9};
    const ujoin_zero_options options = {.size = sizeof options, .hyper = &momentum, .hyper_count = 1};
    ujoin_param param = {.count = elements, .dtype = UJOIN_F32};
    double synced[times], unsynced[times], loaded[times];
    ujoin_group *group;
    ujoin_zero *zero;
    if (argc != 2) return 2;
    param.data = malloc(elements * sizeof(float));
    param.grad = malloc(elements * sizeof(float));
    if (!param.data || !param.grad) return 1;
    bench_rewrite(param.data, elements, 1);
    bench_rewrite(param.grad, elements, 1e-3F);
    check(ujoin_group_create(&alone, &group));
    check(zero_create(group, UJOIN_OPTIMIZER_SGD, &param, 1, &options, &zero));
    check(zero_step(zero, NULL));
    save(zero, argv[1], 0);
    for (int i = 0; i < times; i++) {
        synced[i] = save(zero, argv[1], 1);
        unsynced[i] = save(zero, argv[1], 0);
        loaded[i] = load(zero, argv[1]);
    }
    printf("0 %.6f\n1 %.6f\n2 %.6f\n", bench_median(synced, times), bench_median(unsynced, times),
           bench_median(loaded, times));
    zero_destroy(zero);
    ujoin_group_destroy(group);
    free(param.data);
    free(param.grad);
    return 0;
}
