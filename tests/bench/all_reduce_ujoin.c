/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce over shared memory. Usage: all_reduce_ujoin RANK SIZE RENDEZVOUS */
#include "bench.h"
#include <ujoin.h>

static ujoin_group *group;

static void check(ujoin_status status) {
    if (status == UJOIN_OK) return;
    fprintf(stderr, "%s: %s\n", ujoin_status_name(status), ujoin_last_error());
    exit(1);
}

static void sum(float *data, size_t count) {
    ujoin_buffer buffer = {.data = data, .count = count, .dtype = UJOIN_F32};
    check(ujoin_all_reduce(group, NULL, &buffer, UJOIN_SUM, NULL, NULL));
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = argv[3], .backend = "shm"};
    options.rank = atoi(argv[1]);
    options.world_size = atoi(argv[2]);
    check(ujoin_group_create(&options, &group));
    for (int i = 0; i < bench_size_count; i++) bench_all_reduce(sum, bench_sizes[i]);
    check(ujoin_group_close(group, -1));
    ujoin_group_destroy(group);
    return 0;
}
