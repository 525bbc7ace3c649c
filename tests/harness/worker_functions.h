/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that tests run as workers; C and C++. Who includes it defines _GNU_SOURCE first. */
#ifndef UJOIN_TESTS_WORKER_FUNCTIONS_H
#define UJOIN_TESTS_WORKER_FUNCTIONS_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <ujoin.h>
#include <unistd.h>

static int is_mine(const ujoin_worker_args *args, const char *text) { return atoi(text) == args->rank; }

/* echo TEXT: one line per stream for each part between commas; returns TEXT_RANK */
static ujoin_status worker_echo(void *user_data, const ujoin_worker_args *args) {
    char text[256];
    char value[300];
    char *at = text;
    (void)user_data;
    snprintf(text, sizeof text, "%s", args->args[args->arg_count > 1 ? args->rank : 0]);
    snprintf(value, sizeof value, "%s_%d", text, args->rank);
    for (char *part; (part = strsep(&at, ","));) {
        printf("%s stdout from %d\n", part, args->rank);
        fprintf(stderr, "%s stderr from %d\n", part, args->rank);
    }
    return pctx_return(value, strlen(value));
}

static ujoin_status worker_nothing(void *user_data, const ujoin_worker_args *args) {
    (void)user_data;
    (void)args;
    return UJOIN_OK;
}

/* fill BYTES: every byte is the rank */
static ujoin_status worker_fill(void *user_data, const ujoin_worker_args *args) {
    size_t size = (size_t)atol(args->args[0]);
    char *bytes = (char *)malloc(size);
    ujoin_status status;
    (void)user_data;
    if (!bytes) return ujoin_set_last_error(UJOIN_E_NO_MEMORY, "no memory for the value");
    memset(bytes, args->rank, size);
    status = pctx_return(bytes, size);
    if (pctx_return(bytes, size) != UJOIN_E_STATE) _exit(77);
    free(bytes);
    return status;
}

/* the input comes back */
static ujoin_status worker_mirror(void *user_data, const ujoin_worker_args *args) {
    (void)user_data;
    return pctx_return(args->input, args->input_size);
}

/* fail RANK: that one fails, the others sleep */
static ujoin_status worker_fail(void *user_data, const ujoin_worker_args *args) {
    (void)user_data;
    if (is_mine(args, args->args[0])) return ujoin_set_last_error(UJOIN_E_CALLBACK, "ValueError: a bad batch");
    for (;;) pause();
}

/* recorded TEXT: records a failure with a traceback, then fails with TEXT */
static ujoin_status worker_recorded(void *user_data, const ujoin_worker_args *args) {
    (void)user_data;
    if (pctx_record_error("ValueError: a bad batch", "at line 7", 3) != UJOIN_OK) _exit(79);
    return ujoin_set_last_error(UJOIN_E_CALLBACK, args->args[0]);
}

/* end RANK CODE: exits inside; with a negative CODE it dies of that signal */
static ujoin_status worker_end(void *user_data, const ujoin_worker_args *args) {
    const int code = atoi(args->args[1]);
    struct rlimit none = {0, 0};
    (void)user_data;
    if (!is_mine(args, args->args[0])) return UJOIN_OK;
    fprintf(stderr, "exit %d from %d\n", code, args->rank);
    setrlimit(RLIMIT_CORE, &none);
    if (code < 0) signal(-code, SIG_DFL), raise(-code);
    _exit(code);
}

/* crash: a null pointer, with a record */
static ujoin_status worker_crash(void *user_data, const ujoin_worker_args *args) {
    volatile int *nowhere = (volatile int *)(intptr_t)0x10;
    struct rlimit none = {0, 0};
    (void)user_data;
    (void)args;
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has a handler, which would end the process in its own way */
    if (pctx_record_crashes() != UJOIN_OK || pctx_record_crashes() != UJOIN_OK) _exit(78);
    *nowhere = 1;
    return UJOIN_OK;
}

static ujoin_status worker_sleep_on(void *user_data, const ujoin_worker_args *args) {
    FILE *file = fopen(args->args[0], "ae");
    (void)user_data;
    fprintf(file, "%d\n", (int)getpid());
    if (fclose(file) != 0) return UJOIN_E_CALLBACK;
    for (;;) pause();
}

/* whoever writes to the stream */
static ujoin_status worker_writers(void *user_data, const ujoin_worker_args *args) {
    (void)user_data;
    if (write(1, "raw\n", 4) != 4) return UJOIN_E_CALLBACK;
    printf("stdio\n");
    fflush(stdout);
    if (system("echo child") != 0) return UJOIN_E_CALLBACK;
    printf("last\n");
    if (args->arg_count > 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        fflush(stdout);
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    return UJOIN_OK;
}

static void register_test_functions(void) {
    const struct {
        const char *name;
        ujoin_worker_fn fn;
    } list[] = {{"echo", worker_echo},        {"nothing", worker_nothing},   {"fill", worker_fill},
                {"mirror", worker_mirror},    {"fail", worker_fail},         {"end", worker_end},
                {"crash", worker_crash},      {"sleep_on", worker_sleep_on}, {"writers", worker_writers},
                {"recorded", worker_recorded}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (pctx_register(list[i].name, list[i].fn, NULL, NULL) != UJOIN_OK) abort();
}

#endif
