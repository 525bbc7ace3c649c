/* SPDX-License-Identifier: Apache-2.0 */
/* The C half of what a program would write by hand, and a thread that is not Go's. */
#ifndef UJOIN_GO_BENCH_PEER_H
#define UJOIN_GO_BENCH_PEER_H

#include <ujoin.h>

/* Go functions. */
extern int32_t peerClosure(uintptr_t handle);
extern void peerLine(uintptr_t handle, int32_t level, char *text);
extern void ujoinGoLog(uintptr_t handle, int32_t level, char *text);

/* zero_step with a closure that is a Go function. */
ujoin_status peer_step(ujoin_zero *zero, uintptr_t handle);
/* A group of one with a reducer and an optimizer. */
ujoin_status peer_create(float **data, float **grad, size_t params, size_t count, ujoin_group **group, ujoin_ddp **ddp,
                         ujoin_zero **zero);
/* Nanoseconds a call, of `calls` lines on a thread of its own; ours = the binding's way, else the hand-written one. */
double lines_from_a_thread(int ours, uintptr_t handle, int64_t calls);

#endif
