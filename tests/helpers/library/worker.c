/* SPDX-License-Identifier: Apache-2.0 */
/* A library with a function that ujoin-run --function starts. */
#include <stdio.h>
#include <ujoin.h>

ujoin_status greet(void *user_data, const ujoin_worker_args *args);

ujoin_status greet(void *user_data, const ujoin_worker_args *args) {
    (void)user_data;
    printf("%s from %d\n", args->arg_count > 0 ? args->args[0] : "?", args->rank);
    return UJOIN_OK;
}
