/* SPDX-License-Identifier: Apache-2.0 */
/* The same by a shell: tee_lines | tee file | cat >/dev/null, as often as argv[1] says at the same time; milliseconds. */
#include "bench.h"
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char command[16384] = "";
    char folder[] = "/tmp/ujoin-bench-XXXXXX";
    char removal[64];
    const char *slash = strrchr(argv[0], '/');
    const int count = argc > 1 ? atoi(argv[1]) : 1;
    if (!mkdtemp(folder) || !slash || count > 3) return 1;
    for (int i = 0; i < count; i++)
        snprintf(command + strlen(command), sizeof command - strlen(command),
                 "'%.*s/tee_lines' | tee %s/%d | cat >/dev/null & ", (int)(slash - argv[0]), argv[0], folder, i);
    strcat(command, "wait");
    double begin = bench_now_us();
    if (system(command) != 0) return 1;
    double end = bench_now_us();
    snprintf(removal, sizeof removal, "rm -rf %s", folder);
    if (system(removal) != 0) return 1;
    printf("0 %.6f\n", (end - begin) / 1e3);
    return 0;
}
