/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides of the wrapper share: the box in which an error travels, and the Go functions that C calls. */
#ifndef UJOIN_GO_BRIDGE_H
#define UJOIN_GO_BRIDGE_H

#include <ujoin.h>

/* A failed call's status, errno, ranks and text, taken on the thread that failed. One block of memory, unless static. */
typedef struct ujgo_failure {
    int32_t status;
    int32_t system_errno;
    int32_t is_static;
    size_t rank_count;
    int32_t *ranks;
    char *text;
} ujgo_failure;

/* `user` is a cgo.Handle, `call` the address of the Call that the running call was given (NULL: none). */
extern int32_t ujoinGoHook(uintptr_t user, int32_t post, void *args, void *call);
extern int32_t ujoinGoClosure(uintptr_t user, void *call);
extern int32_t ujoinGoBucket(uintptr_t user, int32_t then, void *bucket, void *out_work, void *call);
extern int32_t ujoinGoRule(uintptr_t user, int32_t init, void *args, void *call);
extern int32_t ujoinGoOutput(uintptr_t user, int32_t rank, int32_t stream, char *data, size_t size, void *call);
extern int32_t ujoinGoWorker(uintptr_t user, void *args);
extern int32_t ujoinGoInterrupt(void *call);
extern void ujoinGoRelease(uintptr_t user);
extern void ujoinGoLog(uintptr_t user, int32_t level, char *text);

#endif
