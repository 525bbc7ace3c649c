/* SPDX-License-Identifier: Apache-2.0 */
/* The sharded optimizer through the public header alone: what right calls do, and what wrong ones get. */
#include "kit.h"
#include <errno.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

static ujoin_group *group;
static float weight[6], weight_grad[6];
static double bias[2], bias_grad[2];
static const int64_t shape[2] = {2, 3};
static int released;

static int make_group(void **state) {
    (void)state;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = "local://api-zero", .world_size = 1};
    return ujoin_group_create(&options, &group) == UJOIN_OK ? 0 : -1;
}
static int drop_group(void **state) {
    (void)state;
    ujoin_group_destroy(group);
    return 0;
}

/* What every case starts from: correct in all. */
static ujoin_param params[2];
static ujoin_hyper hyper[2];
static ujoin_zero_options options;

static void reset(void) {
    memset(params, 0, sizeof params);
    params[0] =
        (ujoin_param){.name = "weight", .data = weight, .grad = weight_grad, .dtype = UJOIN_F32, .shape = shape, .ndim = 2};
    params[1] = (ujoin_param){.data = bias, .grad = bias_grad, .count = 2, .dtype = UJOIN_F64};
    hyper[0] = (ujoin_hyper){"lr", 0.5};
    hyper[1] = (ujoin_hyper){"weight_decay", 0};
    options = (ujoin_zero_options){
        .size = sizeof options, .hyper = hyper, .hyper_count = 2, .release = count_release, .release_data = &released};
    for (int i = 0; i < 6; i++) weight[i] = weight_grad[i] = 1;
    for (int i = 0; i < 2; i++) bias[i] = bias_grad[i] = 1;
    released = 0;
}

static ujoin_zero *make(ujoin_optimizer rule) {
    ujoin_zero *zero = NULL;
    if (zero_create(group, rule, params, 2, &options, &zero) != UJOIN_OK) fail_msg("%s", ujoin_last_error());
    return zero;
}

/* Creation with the present arguments fails, gives nothing, and ends the loan of the memory. */
static void refuse(ujoin_status wanted, const char *part) {
    ujoin_zero *zero = (ujoin_zero *)&zero;
    assert_error(zero_create(group, UJOIN_OPTIMIZER_ADAM, params, 2, &options, &zero), wanted, part);
    assert_null(zero);
    assert_int_equal(released, 1);
    assert_non_null(strstr(ujoin_last_error(), "zero_create: rank 0: "));
    reset();
}

static void a_step_moves_all_parameters(void **state) {
    (void)state;
    reset();
    ujoin_zero *zero = make(UJOIN_OPTIMIZER_SGD);
    assert_int_equal(zero_group_count(zero), 1);
    assert_int_equal(zero_shard_count(zero), 2);
    assert_non_null(zero_joinable(zero));
    assert_int_equal(zero_step(zero, NULL), UJOIN_OK);
    for (int i = 0; i < 6; i++) assert_true(weight[i] == 0.5F);
    for (int i = 0; i < 2; i++) assert_true(bias[i] == 0.5);
    assert_int_equal(zero_clear_gradients(zero), UJOIN_OK);
    for (int i = 0; i < 6; i++) assert_true(weight_grad[i] == 0);
    assert_int_equal(zero_set_gradient(zero, 0, NULL), UJOIN_OK);
    assert_int_equal(zero_set_hyper(zero, -1, "lr", 0.25), UJOIN_OK);
    double value = 0;
    assert_int_equal(zero_get_hyper(zero, 0, "lr", &value), UJOIN_OK);
    assert_true(value == 0.25);
    bias_grad[0] = 2;
    assert_int_equal(zero_step(zero, NULL), UJOIN_OK);
    assert_true(weight[0] == 0.5F && bias[0] == 0 && bias[1] == 0.5);
    assert_int_equal(released, 0);
    zero_destroy(zero);
    assert_int_equal(released, 1);
}

static void shards_say_who_owns_what(void **state) {
    (void)state;
    reset();
    ujoin_zero *zero = make(UJOIN_OPTIMIZER_ADAMW);
    ujoin_shard shard = {.size = sizeof shard};
    assert_int_equal(zero_get_shard(zero, 0, &shard), UJOIN_OK);
    assert_int_equal(shard.param, 0);
    assert_int_equal(shard.offset, 0);
    assert_int_equal(shard.count, 6);
    assert_int_equal(shard.rank, 0);
    assert_int_equal(shard.group, 0);
    assert_error(zero_get_shard(zero, 2, &shard), UJOIN_E_INVALID, "index is 2; there are 2 pieces");
    assert_error(zero_get_shard(zero, 0, NULL), UJOIN_E_INVALID, "out is NULL");
    shard.size = 4;
    assert_error(zero_get_shard(zero, 0, &shard), UJOIN_E_INVALID, "out.size is 4");
    zero_destroy(zero);
}

static void wrong_parameters_are_refused(void **state) {
    (void)state;
    const int64_t negative[2] = {-2, 3};
    const int64_t large[2] = {(int64_t)1 << 60, (int64_t)1 << 60};
    reset();
#define REFUSE(change, wanted, part)                                                                                       \
    do {                                                                                                                   \
        change;                                                                                                            \
        refuse(wanted, part);                                                                                              \
    } while (0)
    REFUSE(params[1].name = "weight", UJOIN_E_INVALID, "parameters 0 and 1 have the same name, \"weight\"");
    REFUSE(params[0].name = "1", UJOIN_E_INVALID, "the same name, \"1\"");
    REFUSE(params[0].name = "", UJOIN_E_INVALID, "params[0].name is empty");
    REFUSE(params[0].data = NULL, UJOIN_E_INVALID, "params[0].data is NULL");
    REFUSE(params[1].data = (char *)bias + 4, UJOIN_E_INVALID, "params[1].data is not aligned");
    REFUSE(params[1].grad = (char *)bias_grad + 4, UJOIN_E_INVALID, "gradient of \"1\" is not aligned");
    REFUSE(params[0].count = 5, UJOIN_E_INVALID, "params[0].count is 5, but its shape [2, 3] has 6 elements");
    REFUSE(params[0].shape = NULL, UJOIN_E_INVALID, "params[0].shape is NULL, but ndim is 2");
    REFUSE(params[0].ndim = -1, UJOIN_E_INVALID, "params[0].ndim is -1");
    REFUSE(params[0].ndim = 65, UJOIN_E_INVALID, "params[0].ndim is 65");
    REFUSE(params[0].shape = negative, UJOIN_E_INVALID, "dimension 0 is -2");
    REFUSE(params[0].shape = large, UJOIN_E_INVALID, "too large");
    REFUSE(params[1].count = SIZE_MAX, UJOIN_E_INVALID, "params[1]");
    REFUSE(params[0].dtype = 0, UJOIN_E_INVALID, "params[0].dtype is 0");
    REFUSE(params[0].dtype = 99, UJOIN_E_INVALID, "params[0].dtype is 99");
    REFUSE(params[0].dtype = UJOIN_I32, UJOIN_E_INVALID, "params[0].dtype is i32");
    REFUSE(params[0].grad_dtype = UJOIN_I32, UJOIN_E_INVALID, "params[0].grad_dtype is 5");
    REFUSE(params[0].grad_dtype = 77, UJOIN_E_INVALID, "params[0].grad_dtype is 77");
    REFUSE(params[0].device = UJOIN_DEVICE_CUDA, UJOIN_E_UNSUPPORTED, "params[0].device is 1");
    REFUSE(params[0].flags = 4, UJOIN_E_INVALID, "params[0].flags is 4");
    REFUSE(params[1].reserved[1] = 1, UJOIN_E_INVALID, "params[1].reserved");
    REFUSE(params[1].data = weight + 4, UJOIN_E_INVALID, "share memory");
#undef REFUSE
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    reset();
    hyper[0] = (ujoin_hyper){"momentum", 0.9};
    refuse(UJOIN_E_INVALID,
           "\"momentum\" is no hyper-parameter of adam; known are lr, beta1, beta2, eps, weight_decay, amsgrad, maximize");
    hyper[0].value = -1;
    refuse(UJOIN_E_INVALID, "lr is -1; it must be 0 or more");
    hyper[1] = (ujoin_hyper){"beta1", 1.0};
    refuse(UJOIN_E_INVALID, "beta1 is 1; it must be at least 0 and less than 1");
    hyper[1] = (ujoin_hyper){"amsgrad", 0.5};
    refuse(UJOIN_E_INVALID, "amsgrad is 0.5; expected 0 or 1");
    hyper[1] = (ujoin_hyper){"lr", NAN};
    refuse(UJOIN_E_INVALID, "twice");
    hyper[0].value = NAN;
    refuse(UJOIN_E_INVALID, "lr is nan");
    hyper[1].name = NULL;
    refuse(UJOIN_E_INVALID, "hyper[1].name is NULL");
    options.hyper = NULL;
    refuse(UJOIN_E_INVALID, "hyper is NULL, but hyper_count is 2");
    options.idle_timeout_ms = -5;
    refuse(UJOIN_E_INVALID, "options.idle_timeout_ms is -5");
    options.consolidate_timeout_ms = -3;
    refuse(UJOIN_E_INVALID, "options.consolidate_timeout_ms is -3");
    options.partition = 7;
    refuse(UJOIN_E_INVALID, "options.partition is 7");
    options.bucket_view = 2;
    refuse(UJOIN_E_INVALID, "options.bucket_view is 2");
    options.size = sizeof options + 1000000;
    refuse(UJOIN_E_INVALID, "options.size");

    ujoin_zero *zero = NULL;
    assert_error(zero_create(group, 99, params, 2, &options, &zero), UJOIN_E_INVALID,
                 "optimizer is 99; expected one of 1 (custom), 2 (sgd), 3 (adam), 4 (adamw), 5 (adagrad), 6 (rmsprop), ");
    assert_error(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params, 2, &options, &zero), UJOIN_E_INVALID,
                 "options.rule is NULL");
    assert_error(zero_create(group, 0, params, 2, NULL, &zero), UJOIN_E_INVALID, "optimizer is 0");
    assert_error(zero_create(group, UJOIN_OPTIMIZER_SGD, NULL, 2, NULL, &zero), UJOIN_E_INVALID, "params is NULL");
    assert_error(zero_create(group, UJOIN_OPTIMIZER_SGD, params, 0, NULL, &zero), UJOIN_E_INVALID, "no parameters");
    assert_error(zero_create(NULL, UJOIN_OPTIMIZER_SGD, params, 2, NULL, &zero), UJOIN_E_INVALID, "group is NULL");
    assert_error(zero_create(group, UJOIN_OPTIMIZER_SGD, params, 2, NULL, NULL), UJOIN_E_INVALID, "out is NULL");
    /* An option struct of an older program that knew no release. */
    released = 0;
    options.size = offsetof(ujoin_zero_options, release);
    zero = make(UJOIN_OPTIMIZER_SGD);
    zero_destroy(zero);
    assert_int_equal(released, 0);
}

static void wrong_calls_are_refused(void **state) {
    (void)state;
    reset();
    ujoin_zero *zero = make(UJOIN_OPTIMIZER_SGD);
    double value = 0;
    ujoin_state *list = NULL;
    assert_error(zero_set_hyper(zero, 1, "lr", 0.1), UJOIN_E_INVALID, "rank 0: group is 1; there are 1 param groups");
    assert_error(zero_set_hyper(zero, -2, "lr", 0.1), UJOIN_E_INVALID, "group is -2");
    assert_error(zero_set_hyper(zero, 0, "beta1", 0.1), UJOIN_E_INVALID, "known are lr, momentum");
    assert_error(zero_set_hyper(zero, 0, NULL, 0.1), UJOIN_E_INVALID, "name is NULL");
    assert_error(zero_set_hyper(zero, 0, "lr", -0.1), UJOIN_E_INVALID, "lr is -0.1");
    assert_error(zero_set_hyper(zero, 0, "nesterov", 1), UJOIN_E_INVALID, "nesterov needs a momentum");
    assert_error(zero_get_hyper(zero, -1, "lr", &value), UJOIN_E_INVALID, "group is -1");
    assert_error(zero_get_hyper(zero, 0, "lr", NULL), UJOIN_E_INVALID, "out_value is NULL");
    assert_error(zero_set_gradient(zero, 2, NULL), UJOIN_E_INVALID, "index is 2; there are 2 parameters");
    assert_error(zero_set_gradient(zero, 1, (char *)bias_grad + 1), UJOIN_E_INVALID, "not aligned");
    assert_error(zero_add_param_group(zero, params, 1, NULL, 0), UJOIN_E_INVALID, "the same name, \"weight\"");
    assert_error(zero_add_param_group(zero, NULL, 1, NULL, 0), UJOIN_E_INVALID, "params is NULL");
    assert_error(zero_consolidate_state_dict(zero, 1), UJOIN_E_INVALID, "to is 1");
    assert_error(zero_consolidate_state_dict(zero, -1), UJOIN_E_INVALID, "to is -1");
    assert_error(zero_state_dict(zero, &list), UJOIN_E_STATE, "no consolidated state");
    assert_error(zero_state_dict(zero, NULL), UJOIN_E_INVALID, "out is NULL");
    assert_error(zero_load_state_dict(zero, NULL), UJOIN_E_INVALID, "state is NULL");
    ujoin_step_options wrong = {.size = 1};
    assert_error(zero_step(zero, &wrong), UJOIN_E_INVALID, "options.size is 1");
    assert_null(zero_hyper_name(zero, 6));
    assert_ptr_equal(zero_param_data(zero, 0), weight);
    assert_null(zero_param_data(zero, 2));
    assert_null(zero_param_data(NULL, 0));
    assert_string_equal(zero_hyper_name(zero, 1), "momentum");
    for (int i = 0; i < 6; i++) assert_true(weight[i] == 1); /* nothing of that has changed anything */

    assert_error(zero_step(NULL, NULL), UJOIN_E_INVALID, "zero_step: zero is NULL");
    assert_error(zero_save(NULL, "x", NULL), UJOIN_E_INVALID, "zero is NULL");
    assert_error(zero_load(NULL, "x", NULL, &list), UJOIN_E_INVALID, "zero is NULL");
    assert_error(zero_clear_gradients(NULL), UJOIN_E_INVALID, "zero is NULL");
    assert_error(zero_consolidate_state_dict(NULL, 0), UJOIN_E_INVALID, "zero is NULL");
    assert_int_equal(zero_group_count(NULL), 0);
    assert_int_equal(zero_shard_count(NULL), 0);
    assert_null(zero_joinable(NULL));
    assert_null(zero_hyper_name(NULL, 0));
    zero_destroy(NULL);
    zero_destroy(zero);
}

static void wrong_saves_are_refused(void **state) {
    (void)state;
    reset();
    ujoin_zero *zero = make(UJOIN_OPTIMIZER_SGD);
    ujoin_state *list = NULL;
    ujoin_state *out = (ujoin_state *)&list;
    assert_int_equal(ujoin_state_create(&list), UJOIN_OK);
    ujoin_item item = {.size = sizeof item, .key = "lr", .kind = UJOIN_ITEM_NUMBER, .owner = UJOIN_ITEM_OF_GROUP};
    assert_int_equal(ujoin_state_set(list, &item), UJOIN_OK);
    ujoin_save_options how = {.size = sizeof how, .extra = list};
    assert_error(zero_save(zero, "unused", &how), UJOIN_E_INVALID, "\"lr\" that is not the program's own");
    ujoin_state_destroy(list);
    how = (ujoin_save_options){.size = sizeof how, .parts = 4};
    assert_error(zero_save(zero, "unused", &how), UJOIN_E_INVALID, "options.parts is 4");
    how = (ujoin_save_options){.size = sizeof how, .no_sync = 2};
    assert_error(zero_save(zero, "unused", &how), UJOIN_E_INVALID, "options.no_sync is 2");
    how = (ujoin_save_options){.size = 3};
    assert_error(zero_load(zero, "unused", &how, &out), UJOIN_E_INVALID, "options.size is 3");
    assert_null(out);
    assert_error(zero_save(zero, NULL, NULL), UJOIN_E_INVALID, "path is NULL");
    assert_error(zero_save(zero, "", NULL), UJOIN_E_INVALID, "path is empty");
    assert_error(zero_load(zero, "/nonexistent/place", NULL, NULL), UJOIN_E_SYSTEM, "/nonexistent/place/index.json");
    assert_int_equal(ujoin_last_errno(), ENOENT);
    how = (ujoin_save_options){.size = sizeof how, .parts = UJOIN_SAVE_PARAMETERS};
    assert_error(zero_save(zero, "/nonexistent/place", &how), UJOIN_E_SYSTEM, "/nonexistent");
    assert_error(zero_save(zero, "/dev/null/x", &how), UJOIN_E_SYSTEM, "/dev/null");
    assert_error(zero_load(zero, "/dev/zero", &how, NULL), UJOIN_E_MISMATCH, "no regular file");
    zero_destroy(zero);
}

static void a_forked_child_can_only_drop_it(void **state) {
    (void)state;
    reset();
    ujoin_zero *zero = make(UJOIN_OPTIMIZER_SGD);
    const pid_t child = fork();
    if (child == 0) {
        const int good = zero_step(zero, NULL) == UJOIN_E_STATE && weight[0] == 1 && !zero_joinable(zero);
        zero_destroy(zero);
        _exit(good && released == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(zero_step(zero, NULL), UJOIN_OK);
    zero_destroy(zero);
    assert_int_equal(released, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_moves_all_parameters),     cmocka_unit_test(shards_say_who_owns_what),
        cmocka_unit_test(wrong_parameters_are_refused),    cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_calls_are_refused),         cmocka_unit_test(wrong_saves_are_refused),
        cmocka_unit_test(a_forked_child_can_only_drop_it),
    };
    return cmocka_run_group_tests(tests, make_group, drop_group);
}
