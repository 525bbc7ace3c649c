/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a million lines of 100 bytes. */
#include <stdio.h>
#include <string.h>

int main(void) {
    char line[100];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 1000000; i++)
        if (fwrite(line, 1, sizeof line, stdout) != sizeof line) return 1;
    return 0;
}
