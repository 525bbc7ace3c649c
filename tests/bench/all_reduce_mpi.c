/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce of an MPI, built with its own compiler wrapper. */
#include "bench.h"
#include <mpi.h>

static void sum(float *data, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0, rank = 0, i;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    if (rank == 0) printf("# %s\n", version);
    for (i = 0; i < bench_size_count; i++) bench_all_reduce(sum, bench_sizes[i]);
    MPI_Finalize();
    return 0;
}
