/* SPDX-License-Identifier: Apache-2.0 */
/* Process contexts from C: what each function says to wrong input, and a plain run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those first */
#include "ujoin.h"
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const shell_args[] = {"-c", "exit 0"};

static ujoin_pctx_spec good_spec(void) {
    ujoin_pctx_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.size = sizeof spec;
    spec.program = "sh";
    spec.args = shell_args;
    spec.arg_count = 2;
    spec.nprocs = 2;
    return spec;
}

static ujoin_pctx *made(void) {
    ujoin_pctx_spec spec = good_spec();
    ujoin_pctx *pctx = NULL;
    assert_int_equal(pctx_create(&spec, &pctx), UJOIN_OK);
    assert_non_null(pctx);
    return pctx;
}

static void refuse_spec(const ujoin_pctx_spec *spec, ujoin_status status, const char *names) {
    ujoin_pctx *pctx = (ujoin_pctx *)(intptr_t)1;
    assert_int_equal(pctx_create(spec, &pctx), status);
    assert_null(pctx);
    if (!strstr(ujoin_last_error(), names)) fail_msg("\"%s\" is not in: %s", names, ujoin_last_error());
}

static void test_parse_std(void **state) {
    ujoin_std values[2] = {9, 9};
    (void)state;
    assert_int_equal(pctx_parse_std("0:1,1:2", values, 2), UJOIN_OK);
    assert_int_equal(values[0], UJOIN_STD_OUT);
    assert_int_equal(values[1], UJOIN_STD_ERR);
    assert_int_equal(pctx_parse_std("3", NULL, 0), UJOIN_OK);
    assert_int_equal(pctx_parse_std(NULL, values, 2), UJOIN_E_INVALID);
    assert_int_equal(pctx_parse_std("3", NULL, 2), UJOIN_E_INVALID);
    assert_int_equal(pctx_parse_std("5", values, 2), UJOIN_E_INVALID);
    assert_int_equal(values[0], UJOIN_STD_OUT); /* a failed call leaves it alone */
}

static void test_create_refuses(void **state) {
    static const char *const hole[] = {"a", NULL, "b"};
    ujoin_pctx_spec spec = good_spec();
    char longer[sizeof(ujoin_pctx_spec) + 16];
    (void)state;
    assert_int_equal(pctx_create(&spec, NULL), UJOIN_E_INVALID);
    refuse_spec(NULL, UJOIN_E_INVALID, "spec");
#define REFUSE(change, names)                                                                                              \
    do {                                                                                                                   \
        spec = good_spec();                                                                                                \
        change;                                                                                                            \
        refuse_spec(&spec, UJOIN_E_INVALID, names);                                                                        \
    } while (0)
    REFUSE(spec.size = 0, "size");
    REFUSE(spec.size = sizeof(size_t) - 1, "size");
    REFUSE(spec.size = SIZE_MAX, "size");
    REFUSE(spec.function = "f", "function");
    REFUSE(spec.start_method = 4, "start_method");
    REFUSE(spec.console = 4, "console");
    REFUSE(spec.binding = -1, "binding");
    REFUSE(spec.console_rank_count = 1, "console_ranks");
    REFUSE(spec.stdout_filter_count = 1, "stdout_filters");
    REFUSE(spec.rotate_bytes = 10, "rotate_bytes");
    REFUSE(spec.no_colour = 2, "no_colour");
    REFUSE(spec.no_error_file = 2, "no_error_file");
    REFUSE(spec.program = "", "program");
    REFUSE(spec.nprocs = 0, "nprocs");
    REFUSE(spec.nprocs = -1, "nprocs");
    REFUSE(spec.nprocs = INT32_MAX, "nprocs");
    REFUSE(spec.args = NULL, "args");
    REFUSE((spec.args = hole, spec.arg_count = 3), "args[1]");
    REFUSE(spec.log_dir = "", "log_dir");
    REFUSE(spec.run_id = "", "run_id");
    REFUSE(spec.run_id = "a/b", "run_id");
    REFUSE(spec.run_id = "..", "run_id");
    REFUSE(spec.run_id = "latest", "run_id");
    REFUSE(spec.grace_ms = -3, "grace_ms");
    REFUSE(spec.drain_ms = INT64_MIN, "drain_ms");
    REFUSE(spec.partial_line_ms = -3, "partial_line_ms");
    REFUSE(spec.first_rank = -1, "first_rank");
    REFUSE(spec.restart_count = -1, "restart_count");
    REFUSE(spec.redirects = 4, "redirects");
    REFUSE(spec.redirects = -1, "redirects");
    REFUSE(spec.tee = 8, "tee");
    REFUSE(spec.containment = 5, "containment");
    REFUSE(spec.containment = -1, "containment");
    REFUSE(spec.same_session = 2, "same_session");
    REFUSE(spec.same_session = 1, "same_session"); /* two workers */
    REFUSE(spec.status_line = 2, "spec.status_line");
#undef REFUSE
    memset(longer, 0, sizeof longer);
    spec = good_spec();
    spec.size = sizeof longer;
    memcpy(longer, &spec, sizeof spec);
    longer[sizeof longer - 1] = 1;
    refuse_spec((const ujoin_pctx_spec *)(const void *)longer, UJOIN_E_UNSUPPORTED, "does not know");
}

/* An older program's struct ends earlier; a newer one's is longer, with zeros that this library does not know. */
static void test_create_takes_other_sizes(void **state) {
    char longer[sizeof(ujoin_pctx_spec) + 16];
    ujoin_pctx_spec spec = good_spec();
    ujoin_pctx *pctx = NULL;
    (void)state;
    memset(longer, 0, sizeof longer);
    spec.size = sizeof longer;
    memcpy(longer, &spec, sizeof spec);
    assert_int_equal(pctx_create((const ujoin_pctx_spec *)(const void *)longer, &pctx), UJOIN_OK);
    pctx_destroy(pctx);
    spec = good_spec();
    spec.size = offsetof(ujoin_pctx_spec, first_rank);
    spec.containment = 77; /* behind its end */
    assert_int_equal(pctx_create(&spec, &pctx), UJOIN_OK);
    pctx_destroy(pctx);
}

static void test_set_env_refuses(void **state) {
    ujoin_pctx *pctx = made();
    (void)state;
    assert_int_equal(pctx_set_env(NULL, 0, "A", "1"), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_env(pctx, 0, NULL, "1"), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_env(pctx, 0, "", "1"), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_env(pctx, 0, "A=B", "1"), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_env(pctx, 2, "A", "1"), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_env(pctx, -2, "A", "1"), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_env(pctx, -1, "A", NULL), UJOIN_OK);
    assert_int_equal(pctx_start(pctx), UJOIN_OK);
    assert_int_equal(pctx_set_env(pctx, 0, "A", "1"), UJOIN_E_STATE);
    pctx_destroy(pctx);
}

static void test_set_worker_refuses(void **state) {
    ujoin_pctx *pctx = made();
    ujoin_worker worker;
    (void)state;
    memset(&worker, 0, sizeof worker);
    worker.size = sizeof worker;
    assert_int_equal(pctx_set_worker(NULL, 0, &worker), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_worker(pctx, 0, NULL), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_worker(pctx, 2, &worker), UJOIN_E_INVALID);
    assert_int_equal(pctx_set_worker(pctx, -2, &worker), UJOIN_E_INVALID);
    worker.size = 4;
    assert_int_equal(pctx_set_worker(pctx, 0, &worker), UJOIN_E_INVALID);
    worker.size = sizeof worker;
    worker.redirects = 8;
    assert_int_equal(pctx_set_worker(pctx, 0, &worker), UJOIN_E_INVALID);
    worker.redirects = 0;
    worker.tee = -1;
    assert_int_equal(pctx_set_worker(pctx, 0, &worker), UJOIN_E_INVALID);
    worker.tee = 0;
    worker.program = "";
    assert_int_equal(pctx_set_worker(pctx, 0, &worker), UJOIN_E_INVALID);
    worker.program = NULL;
    worker.directory = "";
    assert_int_equal(pctx_set_worker(pctx, 0, &worker), UJOIN_E_INVALID);
    worker.directory = NULL;
    worker.arg_count = 1;
    assert_int_equal(pctx_set_worker(pctx, 0, &worker), UJOIN_E_INVALID);
    worker.arg_count = 0;
    assert_int_equal(pctx_set_worker(pctx, -1, &worker), UJOIN_OK);
    pctx_destroy(pctx);
}

static void test_before_the_start(void **state) {
    ujoin_pctx *pctx = made();
    ujoin_worker_result result;
    (void)state;
    memset(&result, 0, sizeof result);
    result.size = sizeof result;
    assert_int_equal(pctx_wait(pctx, 0), UJOIN_E_STATE);
    assert_int_equal(pctx_signal(pctx, 0, SIGTERM), UJOIN_E_STATE);
    assert_int_equal(pctx_stop(pctx), UJOIN_E_STATE);
    assert_int_equal(pctx_failed(pctx), 0);
    assert_int_equal(pctx_first_failure(pctx), -1);
    assert_string_equal(pctx_report(pctx), "");
    assert_int_equal(pctx_get_result(pctx, 1, &result), UJOIN_OK);
    assert_int_equal(result.state, UJOIN_WORKER_CREATED);
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.exit_code, -1);
    assert_string_equal(result.stdout_path, "");
    assert_int_equal(pctx_close(pctx, 0, 0), UJOIN_OK);
    assert_int_equal(pctx_close(pctx, 0, 0), UJOIN_OK);
    assert_int_equal(pctx_start(pctx), UJOIN_E_STATE);
    pctx_destroy(pctx);
}

static void test_null_handles(void **state) {
    ujoin_worker_result result;
    (void)state;
    memset(&result, 0, sizeof result);
    result.size = sizeof result;
    assert_int_equal(pctx_start(NULL), UJOIN_E_INVALID);
    assert_int_equal(pctx_wait(NULL, 0), UJOIN_E_INVALID);
    assert_int_equal(pctx_failed(NULL), -1);
    assert_int_equal(pctx_first_failure(NULL), -1);
    assert_int_equal(pctx_get_result(NULL, 0, &result), UJOIN_E_INVALID);
    assert_null(pctx_report(NULL));
    assert_int_equal(pctx_signal(NULL, 0, SIGTERM), UJOIN_E_INVALID);
    assert_int_equal(pctx_stop(NULL), UJOIN_E_INVALID);
    assert_int_equal(pctx_close(NULL, 0, 0), UJOIN_E_INVALID);
    assert_non_null(strstr(ujoin_last_error(), "pctx is NULL"));
    pctx_abort(NULL);
    pctx_destroy(NULL);
}

static void test_running(void **state) {
    ujoin_pctx *pctx = made();
    ujoin_worker_result result;
    union {
        ujoin_worker_result result;
        unsigned char bytes[sizeof(ujoin_worker_result)];
    } small;
    (void)state;
    memset(&result, 0, sizeof result);
    assert_int_equal(pctx_start(pctx), UJOIN_OK);
    assert_int_equal(pctx_signal(pctx, 2, SIGTERM), UJOIN_E_INVALID);
    assert_int_equal(pctx_signal(pctx, 0, 0), UJOIN_E_INVALID);
    assert_int_equal(pctx_signal(pctx, 0, 65), UJOIN_E_INVALID);
    assert_int_equal(pctx_stop(pctx), UJOIN_OK); /* they do not hear it */
    assert_int_equal(pctx_close(pctx, -1, 0), UJOIN_E_INVALID);
    assert_int_equal(pctx_close(pctx, 65, 0), UJOIN_E_INVALID);
    assert_int_equal(pctx_wait(pctx, -1), UJOIN_OK);
    assert_int_equal(pctx_get_result(pctx, 0, NULL), UJOIN_E_INVALID);
    assert_int_equal(pctx_get_result(pctx, 0, &result), UJOIN_E_INVALID); /* its size is 0 */
    result.size = sizeof result;
    assert_int_equal(pctx_get_result(pctx, 2, &result), UJOIN_E_INVALID);
    assert_int_equal(pctx_get_result(pctx, -1, &result), UJOIN_E_INVALID);
    assert_int_equal(pctx_get_result(pctx, 1, &result), UJOIN_OK);
    assert_int_equal(result.state, UJOIN_WORKER_EXITED);
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(result.containment, UJOIN_CONTAINMENT_GROUP);
    assert_true(result.pid > 0);
    memset(&small, 0xAB, sizeof small);
    small.result.size = offsetof(ujoin_worker_result, pid); /* an older program's */
    assert_int_equal(pctx_get_result(pctx, 1, &small.result), UJOIN_OK);
    assert_int_equal(small.result.state, UJOIN_WORKER_EXITED);
    assert_int_equal(small.bytes[offsetof(ujoin_worker_result, pid)], 0xAB);
    pctx_destroy(pctx);
}

static void test_failure_is_told(void **state) {
    static const char *const args[] = {"-c", "test $R = 0 || exit 7; exec sleep 1000"};
    ujoin_pctx_spec spec = good_spec();
    ujoin_pctx *pctx = NULL;
    int32_t rank = -1;
    (void)state;
    spec.args = args;
    assert_int_equal(pctx_create(&spec, &pctx), UJOIN_OK);
    assert_int_equal(pctx_set_env(pctx, 0, "R", "0"), UJOIN_OK);
    assert_int_equal(pctx_set_env(pctx, 1, "R", "1"), UJOIN_OK);
    assert_int_equal(pctx_start(pctx), UJOIN_OK);
    assert_int_equal(pctx_wait(pctx, -1), UJOIN_E_CHILD_FAILED);
    assert_non_null(strstr(ujoin_last_error(), "exited with code 7"));
    assert_int_equal(ujoin_last_missing(&rank, 1), 1);
    assert_int_equal(rank, 1);
    assert_int_equal(pctx_failed(pctx), 1);
    assert_int_equal(pctx_first_failure(pctx), 1);
    assert_non_null(strstr(pctx_report(pctx), "Root Cause (first observed failure):\n[0]:"));
    assert_non_null(strstr(pctx_report(pctx), "  rank      : 1 (local_rank: 1)\n  exitcode  : 7 (pid: "));
    assert_non_null(strstr(pctx_report(pctx), "stopped by the launcher"));
    assert_non_null(strstr(pctx_report_json(pctx), "\"first_failure\":1"));
    pctx_destroy(pctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_std),
        cmocka_unit_test(test_create_refuses),
        cmocka_unit_test(test_create_takes_other_sizes),
        cmocka_unit_test(test_set_env_refuses),
        cmocka_unit_test(test_set_worker_refuses),
        cmocka_unit_test(test_before_the_start),
        cmocka_unit_test(test_null_handles),
        cmocka_unit_test(test_running),
        cmocka_unit_test(test_failure_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
