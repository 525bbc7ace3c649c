/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient reducer through the public header alone: what right calls do, and what wrong ones get. */
#include "kit.h"
#include <math.h>

static ujoin_group *group;
static float weight[6], weight_grad[6];
static float bias[2], bias_grad[2];
static const int64_t shape[2] = {2, 3};
static int released;

static int make_group(void **state) {
    (void)state;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = "local://api-ddp", .world_size = 1};
    return ujoin_group_create(&options, &group) == UJOIN_OK ? 0 : -1;
}
static int drop_group(void **state) {
    (void)state;
    ujoin_group_destroy(group);
    return 0;
}

/* What every case starts from: correct in all. */
static ujoin_param params[2];
static ujoin_ddp_options options;

static void reset(void) {
    memset(params, 0, sizeof params);
    params[0] =
        (ujoin_param){.name = "weight", .data = weight, .grad = weight_grad, .dtype = UJOIN_F32, .shape = shape, .ndim = 2};
    params[1] = (ujoin_param){.data = bias, .grad = bias_grad, .count = 2, .dtype = UJOIN_F32};
    options = (ujoin_ddp_options){.size = sizeof options, .release = count_release, .release_data = &released};
    released = 0;
}

/* Creation with the present arguments fails, gives nothing, and ends the loan of the memory. */
static void refuse(ujoin_status wanted, const char *part) {
    ujoin_ddp *ddp = (ujoin_ddp *)&ddp;
    assert_error(ujoin_ddp_create(group, params, 2, &options, &ddp), wanted, part);
    assert_null(ddp);
    assert_int_equal(released, 1);
    assert_non_null(strstr(ujoin_last_error(), "ujoin_ddp_create"));
    assert_non_null(strstr(ujoin_last_error(), "rank 0"));
    reset();
}

static void wrong_parameters(void **state) {
    (void)state;
    static const int64_t negative[2] = {2, -3};
    static const int64_t huge[2] = {INT64_MAX, INT64_MAX};
    static float other[2];
    reset();
    params[0].data = NULL, refuse(UJOIN_E_INVALID, "\"weight\").data is NULL");
    params[0].grad = NULL, refuse(UJOIN_E_INVALID, "\"weight\").grad is NULL");
    params[0].dtype = 0, refuse(UJOIN_E_INVALID, ".dtype is 0");
    params[0].dtype = 99, refuse(UJOIN_E_INVALID, ".dtype is 99");
    params[0].dtype = UJOIN_I64, refuse(UJOIN_E_INVALID, ".dtype is i64");
    params[0].grad_dtype = UJOIN_F64, refuse(UJOIN_E_INVALID, ".grad_dtype is f64");
    params[0].grad_dtype = -1, refuse(UJOIN_E_INVALID, ".grad_dtype is ");
    params[0].device = UJOIN_DEVICE_CUDA, refuse(UJOIN_E_UNSUPPORTED, ".device is 1");
    params[0].flags = 4, refuse(UJOIN_E_INVALID, ".flags is 4");
    params[0].reserved[1] = 1, refuse(UJOIN_E_INVALID, ".reserved");
    params[0].ndim = -1, refuse(UJOIN_E_INVALID, ".ndim is -1");
    params[0].shape = NULL, refuse(UJOIN_E_INVALID, ".shape is NULL, but ndim is 2");
    params[0].shape = negative, refuse(UJOIN_E_INVALID, ".shape[1] is -3");
    params[0].shape = huge, refuse(UJOIN_E_INVALID, "more elements than memory can hold");
    params[1].count = SIZE_MAX, refuse(UJOIN_E_INVALID, "more than memory can hold");
    params[0].count = 7, refuse(UJOIN_E_INVALID, "its shape [2, 3] has 6 elements");
    params[1].name = "weight", refuse(UJOIN_E_INVALID, "unique");
    params[1].name = "0", params[0].name = NULL, refuse(UJOIN_E_INVALID, "unique"); /* a default name counts too */
    params[1].grad = weight_grad + 5, refuse(UJOIN_E_INVALID, "share memory");
    params[0].ndim = 0, params[0].shape = NULL, params[1].count = 0, refuse(UJOIN_E_INVALID, "nothing to train");

    ujoin_ddp *ddp = NULL;
    assert_error(ujoin_ddp_create(group, params, 0, &options, &ddp), UJOIN_E_INVALID, "nothing to train");
    assert_error(ujoin_ddp_create(group, NULL, 2, &options, &ddp), UJOIN_E_INVALID, "params is NULL");
    assert_error(ujoin_ddp_create(NULL, params, 2, &options, &ddp), UJOIN_E_INVALID, "group is NULL");
    assert_error(ujoin_ddp_create(group, params, 2, &options, NULL), UJOIN_E_INVALID, "out is NULL");
    assert_int_equal(released, 4);

    /* Without elements a parameter needs no memory; without a shape it has one dimension. */
    reset();
    params[0] = (ujoin_param){.name = "empty", .dtype = UJOIN_F32};
    params[1].data = other;
    assert_int_equal(ujoin_ddp_create(group, params, 2, &options, &ddp), UJOIN_OK);
    ujoin_ddp_destroy(ddp);
    assert_int_equal(released, 1);
}

static void wrong_options(void **state) {
    (void)state;
    reset();
    options.division = 4, refuse(UJOIN_E_INVALID, "division is 4");
    options.division = -1, refuse(UJOIN_E_INVALID, "division is -1");
    options.gradient_kind = 3, refuse(UJOIN_E_INVALID, "gradient_kind is 3");
    options.no_initial_broadcast = 2, refuse(UJOIN_E_INVALID, "no_initial_broadcast is 2");
    options.find_unused = 2, refuse(UJOIN_E_INVALID, "find_unused is 2");
    options.static_graph = -1, refuse(UJOIN_E_INVALID, "static_graph is -1");
    options.bucket_view = 2, refuse(UJOIN_E_INVALID, "bucket_view is 2");
    options.no_buffer_broadcast = 2, refuse(UJOIN_E_INVALID, "no_buffer_broadcast is 2");
    options.buffer_count = 1, refuse(UJOIN_E_INVALID, "buffers is NULL, buffer_count is 1");
    static float memory[2];
    ujoin_buffer buffer = {.data = memory, .count = 2};
    options.buffers = &buffer, options.buffer_count = 1, refuse(UJOIN_E_INVALID, "buffers[0].dtype is 0");
    buffer.dtype = UJOIN_F32, buffer.data = NULL;
    options.buffers = &buffer, options.buffer_count = 1, refuse(UJOIN_E_INVALID, "buffers[0].data is NULL");
    buffer.device = UJOIN_DEVICE_CUDA;
    options.buffers = &buffer, options.buffer_count = 1, refuse(UJOIN_E_UNSUPPORTED, "buffers[0].device is 1");
    options.source_rank = 1, refuse(UJOIN_E_INVALID, "source_rank is 1");
    options.source_rank = -1, refuse(UJOIN_E_INVALID, "source_rank is -1");
    options.idle_timeout_ms = -3, refuse(UJOIN_E_INVALID, "idle_timeout_ms is -3");

    struct {
        ujoin_ddp_options known;
        int64_t newer;
    } longer = {options, 0};
    ujoin_ddp *ddp = NULL;
    longer.known.size = sizeof longer;
    assert_int_equal(ujoin_ddp_create(group, params, 2, &longer.known, &ddp), UJOIN_OK);
    ujoin_ddp_destroy(ddp);
    assert_int_equal(released, 1);
    longer.newer = 1;
    assert_error(ujoin_ddp_create(group, params, 2, &longer.known, &ddp), UJOIN_E_UNSUPPORTED, "does not know");
    assert_int_equal(released, 2);
    options.size = 4; /* too short to have a release notice */
    assert_error(ujoin_ddp_create(group, params, 2, &options, &ddp), UJOIN_E_INVALID, "size is 4");
    assert_int_equal(released, 2);
    options.size = offsetof(ujoin_ddp_options, source_rank); /* an older program's */
    assert_int_equal(ujoin_ddp_create(group, params, 2, &options, &ddp), UJOIN_OK);
    ujoin_ddp_destroy(ddp);
    assert_int_equal(released, 2);
    assert_int_equal(ujoin_ddp_create(group, params, 2, NULL, &ddp), UJOIN_OK);
    ujoin_ddp_destroy(ddp);
}

static void wrong_calls(void **state) {
    (void)state;
    ujoin_ddp_report report = {.size = sizeof report};
    assert_error(ujoin_ddp_forward(NULL, 1), UJOIN_E_INVALID, "ddp is NULL");
    assert_error(ujoin_ddp_ready(NULL, 0), UJOIN_E_INVALID, "ddp is NULL");
    assert_error(ujoin_ddp_finish(NULL), UJOIN_E_INVALID, "ddp is NULL");
    assert_error(ujoin_ddp_get_report(NULL, &report), UJOIN_E_INVALID, "ddp is NULL");
    assert_null(ujoin_ddp_joinable(NULL));
    assert_non_null(strstr(ujoin_last_error(), "ujoin_ddp_joinable: ddp is NULL"));
    ujoin_ddp_destroy(NULL);
    int given_back = 0;
    ujoin_comm_hook hook = {.size = sizeof hook, .user_data = &given_back, .destroy = count_release};
    assert_error(ujoin_ddp_set_sync(NULL, 1), UJOIN_E_INVALID, "ddp is NULL");
    assert_error(ujoin_ddp_set_comm_hook(NULL, &hook), UJOIN_E_INVALID, "ddp is NULL");
    assert_error(ujoin_ddp_set_buffer_hook(NULL, 0, &hook), UJOIN_E_INVALID, "ddp is NULL");
    assert_int_equal(given_back, 2);
    assert_null(ujoin_ddp_gradient(NULL, 0));
    assert_int_equal(ujoin_ddp_used(NULL, NULL, 0), 0);

    reset();
    ujoin_ddp *ddp = NULL;
    assert_int_equal(ujoin_ddp_create(group, params, 2, &options, &ddp), UJOIN_OK);
    assert_error(ujoin_ddp_set_sync(ddp, 2), UJOIN_E_INVALID, "enabled is 2");
    assert_error(ujoin_ddp_set_comm_hook(ddp, NULL), UJOIN_E_INVALID, "hook is NULL");
    hook.rank = -1;
    assert_error(ujoin_ddp_set_comm_hook(ddp, &hook), UJOIN_E_INVALID, "rank is -1");
    hook.rank = 0;
    assert_error(ujoin_ddp_set_buffer_hook(ddp, 3, &hook), UJOIN_E_INVALID, "time is 3");
    assert_int_equal(given_back, 4);
    assert_ptr_equal(ujoin_ddp_gradient(ddp, 1), bias_grad);
    assert_null(ujoin_ddp_gradient(ddp, 2));
    assert_non_null(strstr(ujoin_last_error(), "index is 2"));
    assert_int_equal(ujoin_ddp_used(ddp, NULL, 0), 2);
    assert_int_equal(ujoin_ddp_used(ddp, NULL, 1), 0);
    assert_non_null(strstr(ujoin_last_error(), "out_ranks is NULL"));
    assert_error(ujoin_ddp_get_report(ddp, NULL), UJOIN_E_INVALID, "out is NULL");
    report.size = 0;
    assert_error(ujoin_ddp_get_report(ddp, &report), UJOIN_E_INVALID, "size is 0");
    assert_error(ujoin_ddp_forward(ddp, -0.5), UJOIN_E_INVALID, "samples is -0.5");
    assert_error(ujoin_ddp_forward(ddp, NAN), UJOIN_E_INVALID, "samples is");
    assert_error(ujoin_ddp_ready(ddp, 0), UJOIN_E_STATE, "\"weight\"");
    assert_error(ujoin_ddp_finish(ddp), UJOIN_E_STATE, "ujoin_ddp_forward");
    assert_int_equal(ujoin_ddp_forward(ddp, 0), UJOIN_OK);
    assert_error(ujoin_ddp_set_sync(ddp, 0), UJOIN_E_STATE, "between iterations");
    assert_error(ujoin_ddp_ready(ddp, 2), UJOIN_E_INVALID, "index is 2");
    assert_error(ujoin_ddp_ready(ddp, SIZE_MAX), UJOIN_E_INVALID, "index is 18446744073709551615");
    assert_int_equal(ujoin_ddp_ready(ddp, 0), UJOIN_OK);
    assert_error(ujoin_ddp_ready(ddp, 0), UJOIN_E_STATE, "already");
    assert_error(ujoin_ddp_finish(ddp), UJOIN_E_STATE, "1 (\"1\")");
    assert_error(ujoin_ddp_forward(ddp, 1), UJOIN_E_STATE, "1 (\"1\")");
    assert_int_equal(ujoin_ddp_ready(ddp, 1), UJOIN_OK);
    assert_int_equal(ujoin_ddp_finish(ddp), UJOIN_OK);
    assert_error(ujoin_ddp_finish(ddp), UJOIN_E_STATE, "ujoin_ddp_forward");
    ujoin_ddp_destroy(ddp);
    assert_int_equal(released, 1);
}

static void one_rank(void **state) {
    (void)state;
    reset();
    options.division = UJOIN_DIVISION_SAMPLES;
    options.gradient_kind = UJOIN_GRADIENT_SUM;
    ujoin_ddp *ddp = NULL;
    assert_int_equal(ujoin_ddp_create(group, params, 2, &options, &ddp), UJOIN_OK);
    assert_non_null(ujoin_ddp_joinable(ddp));
    assert_ptr_equal(ujoin_ddp_joinable(ddp), ujoin_ddp_joinable(ddp));
    for (int i = 0; i < 6; i++) weight_grad[i] = 8;
    bias_grad[0] = bias_grad[1] = 4;
    assert_int_equal(ujoin_ddp_forward(ddp, 4), UJOIN_OK);
    assert_int_equal(ujoin_ddp_ready(ddp, 1), UJOIN_OK);
    assert_int_equal(ujoin_ddp_ready(ddp, 0), UJOIN_OK);
    assert_int_equal(ujoin_ddp_finish(ddp), UJOIN_OK);
    for (int i = 0; i < 6; i++) assert_true(weight_grad[i] == 2);
    assert_true(bias_grad[1] == 1);

    ujoin_ddp_report report = {.size = sizeof report};
    assert_int_equal(ujoin_ddp_get_report(ddp, &report), UJOIN_OK);
    assert_int_equal(report.iterations, 1);
    assert_true(report.divisor == 4 && report.samples == 4);
    assert_int_equal(report.bucket_count, 1);
    assert_int_equal(report.joined_uneven, 0);
    assert_true(report.reduce_us >= 0 && report.exposed_us >= 0);
    report = (ujoin_ddp_report){.size = offsetof(ujoin_ddp_report, samples), .samples = -1}; /* an older program's */
    assert_int_equal(ujoin_ddp_get_report(ddp, &report), UJOIN_OK);
    assert_true(report.divisor == 4 && report.samples == -1);

    /* A handle of the group may go first: the reducer keeps the group. */
    ujoin_group_options again = {.size = sizeof again, .rendezvous = "local://api-ddp-second", .world_size = 1};
    ujoin_group *second = NULL;
    assert_int_equal(ujoin_group_create(&again, &second), UJOIN_OK);
    ujoin_ddp *other = NULL;
    assert_int_equal(ujoin_ddp_create(second, params, 2, NULL, &other), UJOIN_OK);
    ujoin_group_destroy(second);
    ujoin_ddp_destroy(other);
    ujoin_ddp_destroy(ddp);
    assert_int_equal(released, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_parameters),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(one_rank),
    };
    return cmocka_run_group_tests(tests, make_group, drop_group);
}
