/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules, loss scales and the options of a step through the public header alone. */
#include "kit.h"
#include <math.h>

static ujoin_group *group;
static float weight[4], grad[4];

static int make_group(void **state) {
    (void)state;
    ujoin_group_options options = {.size = sizeof options, .rendezvous = "local://api-scaler", .world_size = 1};
    return ujoin_group_create(&options, &group) == UJOIN_OK ? 0 : -1;
}
static int drop_group(void **state) {
    (void)state;
    ujoin_group_destroy(group);
    return 0;
}

static ujoin_zero *make(void) {
    const ujoin_param param = {.name = "weight", .data = weight, .grad = grad, .count = 4, .dtype = UJOIN_F32};
    const ujoin_hyper lr = {"lr", 0.5};
    const ujoin_zero_options options = {.size = sizeof options, .hyper = &lr, .hyper_count = 1};
    ujoin_zero *zero = NULL;
    for (int i = 0; i < 4; i++) weight[i] = grad[i] = 1;
    if (zero_create(group, UJOIN_OPTIMIZER_SGD, &param, 1, &options, &zero) != UJOIN_OK) fail_msg("%s", ujoin_last_error());
    return zero;
}

static void a_schedule_gives_a_rate(void **state) {
    (void)state;
    ujoin_schedule_options how = {.size = sizeof how,
                                  .kind = UJOIN_SCHEDULE_COSINE,
                                  .base = 0.5,
                                  .minimum = 0.1,
                                  .warmup_steps = 2,
                                  .total_steps = 10};
    double value = 0;
    ujoin_zero *zero = make();
    assert_int_equal(zero_schedule(&how, 0, &value), UJOIN_OK);
    assert_true(value == 0.25);
    assert_int_equal(zero_schedule(&how, 6, &value), UJOIN_OK);
    assert_true(fabs(value - 0.3) < 1e-15);
    assert_int_equal(zero_set_hyper(zero, -1, "lr", value), UJOIN_OK);
    assert_int_equal(zero_schedule(&how, 100, &value), UJOIN_OK);
    assert_true(value == 0.1);
    zero_destroy(zero);

    assert_error(zero_schedule(NULL, 0, &value), UJOIN_E_INVALID, "schedule is NULL");
    assert_error(zero_schedule(&how, 0, NULL), UJOIN_E_INVALID, "out_value is NULL");
    assert_error(zero_schedule(&how, -1, &value), UJOIN_E_INVALID, "step is -1");
    how.kind = 9;
    assert_error(zero_schedule(&how, 0, &value), UJOIN_E_INVALID, "schedule.kind is 9");
    how.reserved = 1;
    assert_error(zero_schedule(&how, 0, &value), UJOIN_E_INVALID, "schedule.reserved is not 0");
    how.size = 2;
    assert_error(zero_schedule(&how, 0, &value), UJOIN_E_INVALID, "schedule.size is 2");
}

static void a_scale_is_made_read_and_made_again(void **state) {
    (void)state;
    ujoin_scaler *scaler = NULL;
    ujoin_scaler_options now = {.size = sizeof now};
    assert_int_equal(zero_scaler_create(NULL, &scaler), UJOIN_OK);
    assert_true(zero_scaler_scale(scaler) == 65536);
    assert_int_equal(zero_scaler_get(scaler, &now), UJOIN_OK);
    assert_true(now.size == sizeof now && now.growth == 2 && now.backoff == 0.5);
    assert_int_equal(now.interval, 2000);
    zero_scaler_destroy(scaler);
    now.scale = 8;
    assert_int_equal(zero_scaler_create(&now, &scaler), UJOIN_OK);
    assert_true(zero_scaler_scale(scaler) == 8);
    zero_scaler_destroy(scaler);
    zero_scaler_destroy(NULL);

    scaler = (ujoin_scaler *)&scaler;
    now.backoff = 2;
    assert_error(zero_scaler_create(&now, &scaler), UJOIN_E_INVALID, "options.backoff is 2");
    assert_null(scaler);
    assert_error(zero_scaler_create(NULL, NULL), UJOIN_E_INVALID, "out is NULL");
    assert_error(zero_scaler_get(NULL, &now), UJOIN_E_INVALID, "scaler is NULL");
    assert_true(zero_scaler_scale(NULL) == 0);
}

static void a_step_divides_clips_and_skips(void **state) {
    (void)state;
    ujoin_zero *zero = make();
    ujoin_scaler *scaler = NULL;
    double norm = 0;
    const ujoin_scaler_options how = {.size = sizeof how, .scale = 4};
    assert_int_equal(zero_scaler_create(&how, &scaler), UJOIN_OK);
    ujoin_step_options step = {.size = sizeof step, .scaler = scaler, .max_norm = 100, .out_norm = &norm};
    for (int i = 0; i < 4; i++) grad[i] = 4;
    assert_int_equal(zero_step(zero, &step), UJOIN_OK);
    assert_true(norm == 2 && weight[3] == 0.5F && grad[3] == 4);
    grad[2] = INFINITY;
    assert_int_equal(zero_step(zero, &step), UJOIN_SKIPPED);
    assert_string_equal(ujoin_status_name(UJOIN_SKIPPED), "UJOIN_SKIPPED");
    assert_true(zero_scaler_scale(scaler) == 2 && weight[0] == 0.5F && isinf(norm));
    zero_scaler_destroy(scaler); /* the optimizer may still know it */

    step = (ujoin_step_options){.size = sizeof step, .max_norm = -1};
    assert_error(zero_step(zero, &step), UJOIN_E_INVALID, "options.max_norm is -1");
    step = (ujoin_step_options){.size = sizeof step, .max_norm = 1, .norm_type = -2};
    assert_error(zero_step(zero, &step), UJOIN_E_INVALID, "options.norm_type is -2");
    step = (ujoin_step_options){.size = sizeof step, .max_norm = 1, .norm_type = NAN};
    assert_error(zero_step(zero, &step), UJOIN_E_INVALID, "options.norm_type is nan");
    step = (ujoin_step_options){.size = sizeof step, .skip_nonfinite = 2};
    assert_error(zero_step(zero, &step), UJOIN_E_INVALID, "options.skip_nonfinite is 2");
    step = (ujoin_step_options){.size = sizeof step, .reserved = 1};
    assert_error(zero_step(zero, &step), UJOIN_E_INVALID, "options.reserved is not 0");
    assert_error(zero_clip_grad_norm(NULL, 1, 2, NULL), UJOIN_E_INVALID, "zero is NULL");
    assert_error(zero_clip_grad_norm(zero, NAN, 2, NULL), UJOIN_E_INVALID, "max_norm is nan");
    assert_true(weight[0] == 0.5F);
    zero_destroy(zero);
}

static void memory_and_frozen_parameters(void **state) {
    (void)state;
    ujoin_zero *zero = make();
    ujoin_zero_memory memory = {.size = sizeof memory};
    assert_int_equal(zero_get_memory(zero, &memory), UJOIN_OK);
    assert_true(memory.parameters == 16 && memory.gradients == 16 && memory.state == 0 && memory.full_state == 0);
    assert_error(zero_get_memory(zero, NULL), UJOIN_E_INVALID, "out is NULL");
    assert_error(zero_get_memory(NULL, &memory), UJOIN_E_INVALID, "zero is NULL");
    assert_int_equal(zero_set_frozen(zero, 0, 1), UJOIN_OK);
    assert_int_equal(zero_step(zero, NULL), UJOIN_OK);
    assert_true(weight[0] == 1);
    assert_int_equal(zero_set_frozen(zero, 0, 0), UJOIN_OK);
    assert_int_equal(zero_step(zero, NULL), UJOIN_OK);
    assert_true(weight[0] == 0.5F);
    assert_error(zero_set_frozen(zero, 1, 1), UJOIN_E_INVALID, "index is 1; there are 1 parameters");
    assert_error(zero_set_frozen(zero, 0, 7), UJOIN_E_INVALID, "frozen is 7");
    assert_error(zero_set_frozen(NULL, 0, 1), UJOIN_E_INVALID, "zero is NULL");
    zero_destroy(zero);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schedule_gives_a_rate),
        cmocka_unit_test(a_scale_is_made_read_and_made_again),
        cmocka_unit_test(a_step_divides_clips_and_skips),
        cmocka_unit_test(memory_and_frozen_parameters),
    };
    return cmocka_run_group_tests(tests, make_group, drop_group);
}
