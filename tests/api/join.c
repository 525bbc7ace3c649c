/* SPDX-License-Identifier: Apache-2.0 */
/* Join contexts through the public header: what wrong calls answer, and one pass of two ranks. */
#include "kit.h"
#include <pthread.h>

static ujoin_group *group_of(const char *name, int32_t rank, int32_t size) {
    ujoin_group_options options;
    ujoin_group *group = NULL;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.rendezvous = name;
    options.backend = "local";
    options.rank = rank;
    options.world_size = size;
    if (ujoin_group_create(&options, &group) != UJOIN_OK) fprintf(stderr, "%s\n", ujoin_last_error());
    return group;
}

static void count_destroy(void *user_data) { ++*(int *)user_data; }

static ujoin_hooks hooks_with(int *destroyed) {
    ujoin_hooks hooks;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    hooks.user_data = destroyed;
    hooks.destroy = count_destroy;
    return hooks;
}

static void wrong_joinables(void **state) {
    ujoin_group *group = group_of("local://wrong_joinables", 0, 1);
    ujoin_joinable *joinable = (ujoin_joinable *)&group;
    const char *names[2] = {"a", NULL};
    struct {
        ujoin_hooks known;
        uint64_t more;
    } newer;
    int destroyed = 0;
    ujoin_hooks hooks = hooks_with(&destroyed);
    (void)state;

    assert_error(ujoin_joinable_create(NULL, &hooks, &joinable), UJOIN_E_INVALID, "group is NULL");
    assert_null(joinable);
    assert_int_equal(destroyed, 1);
    assert_error(ujoin_joinable_create(group, &hooks, NULL), UJOIN_E_INVALID, "out is NULL");
    assert_int_equal(destroyed, 2);
    assert_error(ujoin_joinable_create(group, NULL, &joinable), UJOIN_E_INVALID, "hooks is NULL");
    hooks.device = UJOIN_DEVICE_CUDA;
    assert_error(ujoin_joinable_create(group, &hooks, &joinable), UJOIN_E_UNSUPPORTED, "device");
    assert_int_equal(destroyed, 3);
    hooks = hooks_with(&destroyed);
    hooks.option_count = 1;
    assert_error(ujoin_joinable_create(group, &hooks, &joinable), UJOIN_E_INVALID, "options is NULL");
    hooks.options = names;
    hooks.option_count = 2;
    assert_error(ujoin_joinable_create(group, &hooks, &joinable), UJOIN_E_INVALID, "options[1]");
    assert_int_equal(destroyed, 5);
    newer.known = hooks_with(&destroyed);
    newer.known.size = sizeof newer;
    newer.more = 1;
    assert_error(ujoin_joinable_create(group, &newer.known, &joinable), UJOIN_E_UNSUPPORTED, "ujoin_hooks");
    assert_int_equal(destroyed, 6);
    newer.more = 0;
    assert_int_equal(ujoin_joinable_create(group, &newer.known, &joinable), UJOIN_OK);
    assert_int_equal(destroyed, 6);
    ujoin_joinable_destroy(joinable);
    assert_int_equal(destroyed, 7);
    ujoin_joinable_destroy(NULL);
    assert_error(ujoin_joinable_notify(NULL, NULL), UJOIN_E_INVALID, "joinable is NULL");
    ujoin_group_destroy(group);
}

static void wrong_contexts(void **state) {
    ujoin_group *group = group_of("local://wrong_contexts", 0, 1);
    ujoin_group *other = group_of("local://wrong_contexts/other", 0, 1);
    ujoin_joinable *list[2] = {NULL, NULL};
    const char *names[1] = {"depth"};
    ujoin_ctx *ctx = (ujoin_ctx *)&group;
    ujoin_ctx_options options;
    ujoin_hyper hyper[2] = {{"depht", 1}, {NULL, 2}};
    ujoin_ctx_report report;
    int destroyed = 0, i;
    ujoin_hooks hooks = hooks_with(&destroyed);
    (void)state;
    hooks.options = names;
    hooks.option_count = 1;
    assert_int_equal(ujoin_joinable_create(group, &hooks, &list[0]), UJOIN_OK);

    assert_error(ujoin_ctx_create(list, 0, NULL, &ctx), UJOIN_E_INVALID, "empty");
    assert_null(ctx);
    assert_error(ujoin_ctx_create(NULL, 1, NULL, &ctx), UJOIN_E_INVALID, "joinables is NULL");
    assert_error(ujoin_ctx_create(list, 2, NULL, &ctx), UJOIN_E_INVALID, "joinables[1] is NULL");
    assert_error(ujoin_ctx_create(list, 1, NULL, NULL), UJOIN_E_INVALID, "out is NULL");
    list[1] = list[0];
    assert_error(ujoin_ctx_create(list, 2, NULL, &ctx), UJOIN_E_INVALID, "twice");
    hooks.options = NULL;
    hooks.option_count = 0;
    assert_int_equal(ujoin_joinable_create(other, &hooks, &list[1]), UJOIN_OK);
    assert_error(ujoin_ctx_create(list, 2, NULL, &ctx), UJOIN_E_INVALID, "another group");

    memset(&options, 0, sizeof options);
    for (i = 0; i < 3; i++) {
        int32_t *const flags[3] = {&options.disabled, &options.throw_on_exhausted, &options.strict};
        static const char *const texts[3] = {"disabled", "throw_on_exhausted", "strict"};
        options.size = sizeof options;
        *flags[i] = 2;
        assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID, texts[i]);
        *flags[i] = 0;
    }
    options.size = 3;
    assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID, "size");
    options.size = sizeof options;
    options.reserved = 1;
    assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID, "reserved");
    options.reserved = 0;
    options.idle_timeout_ms = -3;
    assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID, "idle_timeout_ms");
    options.idle_timeout_ms = 0;
    options.hook_option_count = 1;
    assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID, "hook_options is NULL");
    options.hook_options = hyper;
    assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID,
                 "no joinable knows the hook option \"depht\"; known are: depth");
    hyper[0].name = "depth";
    options.hook_option_count = 2;
    assert_error(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_E_INVALID, "hook_options[1]");
    assert_null(ctx);

    assert_error(ujoin_ctx_start(NULL), UJOIN_E_INVALID, "ctx is NULL");
    assert_error(ujoin_ctx_finish(NULL), UJOIN_E_INVALID, "ctx is NULL");
    assert_error(ujoin_ctx_stop(NULL), UJOIN_E_INVALID, "ctx is NULL");
    assert_int_equal(ujoin_ctx_stopped(NULL), -1);
    assert_int_equal(ujoin_ctx_rounds(NULL, NULL, 0), 0);
    ujoin_ctx_abort(NULL, NULL);
    ujoin_ctx_destroy(NULL);
    options.hook_option_count = 1;
    assert_int_equal(ujoin_ctx_create(list, 1, &options, &ctx), UJOIN_OK);
    assert_error(ujoin_ctx_finish(ctx), UJOIN_E_STATE, "not started");
    assert_error(ujoin_ctx_get_report(ctx, NULL), UJOIN_E_INVALID, "out is NULL");
    report.size = 1;
    assert_error(ujoin_ctx_get_report(ctx, &report), UJOIN_E_INVALID, "size");
    assert_int_equal(ujoin_ctx_rounds(ctx, NULL, 1), 0);
    assert_int_equal(ujoin_ctx_rounds(ctx, NULL, 0), 1);

    ujoin_joinable_destroy(list[0]);
    assert_int_equal(destroyed, 0); /* the context keeps it */
    ujoin_ctx_destroy(ctx);
    assert_int_equal(destroyed, 1);
    ujoin_joinable_destroy(list[1]);
    assert_int_equal(destroyed, 2);
    ujoin_group_destroy(other);
    ujoin_group_destroy(group);
}

/* --------------------------------------------------------------------------------------------- two ranks as threads -- */

struct rank {
    const char *name;
    int32_t rank;
    void (*body)(struct rank *self, ujoin_group *group);
    ujoin_group *group;
    int main_calls, post_calls, destroyed, last, authoritative;
    double depth;
    ujoin_status fail_with;
    ujoin_status result;
    char text[400];
};

static ujoin_status main_hook(void *user_data, const ujoin_hook_args *args) {
    struct rank *self = user_data;
    int32_t active = -1;
    double value = 5;
    ujoin_buffer buffer;
    self->main_calls++;
    if (args->option_count == 1 && strcmp(args->options[0].name, "depth") == 0) self->depth = args->options[0].value;
    if (ujoin_joinable_notify(args->joinable, &active) != UJOIN_JOINED || active != args->active)
        return ujoin_set_last_error(UJOIN_E_INTERNAL, "notify in a hook");
    if (self->fail_with) return ujoin_set_last_error(self->fail_with, "the hook has had enough");
    memset(&buffer, 0, sizeof buffer);
    buffer.data = &value;
    buffer.count = 1;
    buffer.dtype = UJOIN_F64;
    return ujoin_all_reduce(self->group, NULL, &buffer, UJOIN_AVG, NULL, NULL);
}
static ujoin_status post_hook(void *user_data, const ujoin_hook_args *args) {
    struct rank *self = user_data;
    self->post_calls++;
    self->last = args->is_last_joiner;
    self->authoritative = args->authoritative_rank;
    return UJOIN_OK;
}
static void rank_destroy(void *user_data) { ((struct rank *)user_data)->destroyed++; }

/* Rank r has 2 + 3 r inputs. */
static void train(struct rank *self, ujoin_group *group) {
    const char *names[1] = {"depth"};
    ujoin_hyper depth = {"depth", 7};
    ujoin_hooks hooks;
    ujoin_ctx_options options;
    ujoin_joinable *joinable = NULL;
    ujoin_ctx *ctx = NULL;
    int i;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    hooks.main_hook = main_hook;
    hooks.post_hook = post_hook;
    hooks.user_data = self;
    hooks.destroy = rank_destroy;
    hooks.name = "metric";
    hooks.options = names;
    hooks.option_count = 1;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.hook_options = &depth;
    options.hook_option_count = 1;
    self->group = group;
    self->result = ujoin_joinable_create(group, &hooks, &joinable);
    if (self->result == UJOIN_OK) self->result = ujoin_ctx_create(&joinable, 1, &options, &ctx);
    if (self->result == UJOIN_OK) self->result = ujoin_ctx_start(ctx);
    for (i = 0; i < 2 + 3 * self->rank && self->result == UJOIN_OK; i++) {
        double value = 5 + self->rank;
        ujoin_buffer buffer;
        memset(&buffer, 0, sizeof buffer);
        buffer.data = &value;
        buffer.count = 1;
        buffer.dtype = UJOIN_F64;
        self->result = ujoin_joinable_notify(joinable, NULL);
        if (self->result == UJOIN_OK) self->result = ujoin_all_reduce(group, NULL, &buffer, UJOIN_AVG, NULL, NULL);
        if (self->result == UJOIN_OK && value != (i < 2 ? 5.5 : 6)) self->result = UJOIN_E_INTERNAL;
    }
    if (self->result == UJOIN_OK) self->result = ujoin_ctx_finish(ctx);
    snprintf(self->text, sizeof self->text, "%s", ujoin_last_error());
    if (self->result == UJOIN_OK) {
        int64_t rounds[3] = {-9, -9, -9};
        ujoin_ctx_report report;
        report.size = sizeof report;
        if (ujoin_ctx_get_report(ctx, &report) != UJOIN_OK || report.rounds != 2 + 3 * self->rank || report.joined != 2 ||
            report.shadow_rounds != 3 - 3 * self->rank || report.authoritative_rank != 1 || report.stopped)
            self->result = UJOIN_E_INTERNAL;
        if (ujoin_ctx_rounds(ctx, rounds, 3) != 2 || rounds[0] != 2 || rounds[1] != 5 || rounds[2] != -9)
            self->result = UJOIN_E_INTERNAL;
    }
    ujoin_joinable_destroy(joinable);
    ujoin_ctx_destroy(ctx);
}

/* Rank 1 drops its context in the middle. */
static void drop(struct rank *self, ujoin_group *group) {
    ujoin_joinable *joinable = NULL;
    ujoin_ctx *ctx = NULL;
    ujoin_hooks hooks;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    self->result = ujoin_joinable_create(group, &hooks, &joinable);
    if (self->result == UJOIN_OK) self->result = ujoin_ctx_create(&joinable, 1, NULL, &ctx);
    if (self->result == UJOIN_OK) self->result = ujoin_ctx_start(ctx);
    if (self->rank == 0 && self->result == UJOIN_OK) self->result = ujoin_ctx_finish(ctx);
    snprintf(self->text, sizeof self->text, "%s", ujoin_last_error());
    ujoin_ctx_destroy(ctx);
    if (self->rank == 1 && ujoin_joinable_notify(joinable, NULL) != UJOIN_OK) self->result = UJOIN_E_INTERNAL;
    ujoin_joinable_destroy(joinable);
}

static void *run_rank(void *argument) {
    struct rank *self = argument;
    ujoin_group *group = group_of(self->name, self->rank, 2);
    if (group)
        self->body(self, group);
    else
        self->result = UJOIN_E_INTERNAL;
    ujoin_group_destroy(group);
    return NULL;
}

static void run_two(struct rank ranks[2], const char *name, void (*body)(struct rank *, ujoin_group *)) {
    pthread_t threads[2];
    int i;
    for (i = 0; i < 2; i++) {
        ranks[i].name = name;
        ranks[i].rank = i;
        ranks[i].body = body;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
    }
    for (i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void one_pass(void **state) {
    struct rank ranks[2];
    int i;
    (void)state;
    memset(ranks, 0, sizeof ranks);
    run_two(ranks, "local://one_pass", train);
    for (i = 0; i < 2; i++) {
        if (ranks[i].result != UJOIN_OK) fail_msg("rank %d: %s: %s", i, ujoin_status_name(ranks[i].result), ranks[i].text);
        assert_int_equal(ranks[i].main_calls, i == 0 ? 3 : 0);
        assert_int_equal(ranks[i].post_calls, 1);
        assert_int_equal(ranks[i].last, i);
        assert_int_equal(ranks[i].authoritative, 1);
        assert_int_equal(ranks[i].destroyed, 1);
    }
    assert_true(ranks[0].depth == 7);
}

static void a_failing_hook(void **state) {
    struct rank ranks[2];
    int i;
    (void)state;
    memset(ranks, 0, sizeof ranks);
    ranks[0].fail_with = UJOIN_E_STATE;
    run_two(ranks, "local://a_failing_hook", train);
    assert_int_equal(ranks[0].result, UJOIN_E_CALLBACK);
    assert_int_equal(ranks[1].result, UJOIN_E_ABORTED);
    for (i = 0; i < 2; i++) {
        assert_non_null(strstr(ranks[i].text, "main hook 0 (joinable \"metric\") on rank 0: the hook has had enough"));
        assert_int_equal(ranks[i].post_calls, 0);
        assert_int_equal(ranks[i].destroyed, 1);
    }
}

static void a_dropped_context(void **state) {
    struct rank ranks[2];
    (void)state;
    memset(ranks, 0, sizeof ranks);
    run_two(ranks, "local://a_dropped_context", drop);
    assert_int_equal(ranks[1].result, UJOIN_OK);
    assert_int_equal(ranks[0].result, UJOIN_E_ABORTED);
    assert_non_null(strstr(ranks[0].text, "rank 1"));
    assert_non_null(strstr(ranks[0].text, "destroyed before it was finished"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_joinables), cmocka_unit_test(wrong_contexts),    cmocka_unit_test(one_pass),
        cmocka_unit_test(a_failing_hook),  cmocka_unit_test(a_dropped_context),
    };
    return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
