/* SPDX-License-Identifier: Apache-2.0 */
/* What the C programs of this folder share: cmocka with what it needs before it, the header, one assertion. */
#ifndef KIT_H
#define KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ujoin.h>

/* A call failed as it should: with this status, and a text that has this part. */
static inline void assert_error(ujoin_status got, ujoin_status wanted, const char *part) {
    if (got != wanted || !strstr(ujoin_last_error(), part))
        fail_msg("%s (wanted %s with \"%s\"): %s", ujoin_status_name(got), ujoin_status_name(wanted), part,
                 ujoin_last_error());
}

static inline void count_release(void *counter) { ++*(int *)counter; }

#endif
