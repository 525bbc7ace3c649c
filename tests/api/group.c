/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, operations and work through the public header alone: what right calls do, and what wrong ones get. */
#define _GNU_SOURCE /* CPU_SET */
#include "kit.h"
#include <pthread.h>
#include <sched.h>

static ujoin_group *self_group(void) {
    ujoin_group_options options = {.size = sizeof options, .rendezvous = "local://api-group-self", .world_size = 1};
    ujoin_group *group = NULL;
    assert_int_equal(ujoin_group_create(&options, &group), UJOIN_OK);
    assert_non_null(group);
    return group;
}

static void library_facts(void **state) {
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", UJOIN_VERSION_MAJOR, UJOIN_VERSION_MINOR, UJOIN_VERSION_PATCH);
    assert_string_equal(ujoin_version(), version);
    assert_int_equal(ujoin_abi_version(), UJOIN_ABI_VERSION);
    assert_non_null(strstr(ujoin_backends(), "shm\tyes\t"));
    assert_string_equal(ujoin_status_name(UJOIN_E_TIMEOUT), "UJOIN_E_TIMEOUT");
    assert_string_equal(ujoin_status_name(-999), "UJOIN_E_?");
    assert_int_equal(ujoin_set_last_error(UJOIN_E_CALLBACK, "text of mine"), UJOIN_E_CALLBACK);
    assert_string_equal(ujoin_last_error(), "text of mine");
    assert_int_equal(ujoin_last_errno(), 0);
    assert_int_equal(ujoin_last_missing(NULL, 0), 0);
}

static void wrong_groups(void **state) {
    (void)state;
    ujoin_group *group = (ujoin_group *)&group;
    ujoin_group_options o = {.size = sizeof o, .rendezvous = "local://x", .world_size = 1};
    assert_error(ujoin_group_create(&o, NULL), UJOIN_E_INVALID, "out is NULL");
    o.size = 3;
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "size");
    assert_null(group);
    o.size = sizeof o;
    o.rank = 1;
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "rank is 1");
    o.rank = 0;
    o.world_size = -2;
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "world_size is -2");
    o.world_size = 1;
    o.backend = "nccl";
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_UNSUPPORTED, "nccl");
    o.backend = "shm";
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_UNSUPPORTED, "threads");
    o.backend = NULL;
    o.rendezvous = "http://x";
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "http://x");
    o.rendezvous = "tcp://host:99999";
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "tcp://host:99999");
    o.rendezvous = "file://relative";
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "file://relative");
    o.rendezvous = "file:///no/such/folder/x";
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_SYSTEM, "/no/such/folder");
    o.rendezvous = "local://x";
    o.timeout_ms = -7;
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "timeout_ms is -7");
    o.timeout_ms = 0;
    o.threads = -1;
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "threads is -1");
    o.threads = 1025;
    assert_error(ujoin_group_create(&o, &group), UJOIN_E_INVALID, "threads is 1025; expected 1 to 1024");
    o.threads = 0;
    struct {
        ujoin_group_options known;
        int64_t newer[2];
    } longer = {.known = o};
    longer.known.size = sizeof longer;
    assert_int_equal(ujoin_group_create(&longer.known, &group), UJOIN_OK);
    ujoin_group_destroy(group);
    longer.newer[1] = 1;
    assert_error(ujoin_group_create(&longer.known, &group), UJOIN_E_UNSUPPORTED, "does not know");
    assert_int_equal(ujoin_group_rank(NULL), -1);
    assert_int_equal(ujoin_group_size(NULL), -1);
    assert_error(ujoin_group_get_info(NULL, NULL), UJOIN_E_INVALID, "group is NULL");
    assert_error(ujoin_group_close(NULL, 0), UJOIN_E_INVALID, "group is NULL");
    ujoin_group_abort(NULL, NULL);
    ujoin_group_destroy(NULL);
}

/* Of a group that is made with this option and this environment. */
static int32_t threads_of(int32_t option, const char *variable) {
    ujoin_group_options o = {.size = sizeof o, .rendezvous = "local://api-threads", .world_size = 1, .threads = option};
    ujoin_group_info info = {.size = sizeof info};
    ujoin_group *group = NULL;
    if (variable) setenv("UJOIN_THREADS", variable, 1);
    assert_int_equal(ujoin_group_create(&o, &group), UJOIN_OK);
    unsetenv("UJOIN_THREADS");
    assert_int_equal(ujoin_group_get_info(group, &info), UJOIN_OK);
    ujoin_group_destroy(group);
    return info.threads;
}

static void threads_by_option_environment_and_processors(void **state) {
    (void)state;
    assert_int_equal(threads_of(3, NULL), 3);
    assert_int_equal(threads_of(3, "5"), 3);
    assert_int_equal(threads_of(0, "5"), 5);
    cpu_set_t all;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    const int32_t by_processors = threads_of(0, NULL);
    assert_true(by_processors >= 1 && by_processors <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(threads_of(0, NULL), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void wrong_environment(void **state) {
    (void)state;
    const char *wrong[][3] = {{"RANK", "two", "RANK is \"two\""},         {"RANK", "5", "RANK is 5"},
                              {"WORLD_SIZE", "0", "WORLD_SIZE is 0"},     {"MASTER_PORT", "x", "MASTER_PORT is \"x\""},
                              {"UJOIN_TIMEOUT_MS", "soon", "soon"},       {"UJOIN_SPIN_US", "-3", "UJOIN_SPIN_US is -3"},
                              {"LOCAL_WORLD_SIZE", "1", "several hosts"}, {"UJOIN_THREADS", "0", "UJOIN_THREADS is 0"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("RANK", "0", 1);
        setenv("WORLD_SIZE", i == 6 ? "2" : "1", 1);
        setenv("MASTER_PORT", "29555", 1);
        setenv(wrong[i][0], wrong[i][1], 1);
        ujoin_group_options o = {.size = sizeof o, .backend = "shm"};
        ujoin_group *group = NULL;
        assert_error(ujoin_group_create(&o, &group), i == 6 ? UJOIN_E_UNSUPPORTED : UJOIN_E_INVALID, wrong[i][2]);
        assert_null(group);
        unsetenv(wrong[i][0]);
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    ujoin_group *group = NULL;
    assert_error(ujoin_group_create(NULL, &group), UJOIN_E_INVALID, "WORLD_SIZE is not set");
    unsetenv("MASTER_PORT");
}

static void wrong_operations(void **state) {
    (void)state;
    ujoin_group *group = self_group();
    float data[4] = {1, 2, 3, 4};
    float more[8] = {0};
    ujoin_buffer recv = {.data = data, .count = 4, .dtype = UJOIN_F32};
    ujoin_const_buffer send = {.data = more, .count = 4, .dtype = UJOIN_F32};
    assert_error(ujoin_all_reduce(NULL, NULL, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "group is NULL");
    assert_error(ujoin_all_reduce(group, NULL, NULL, 0, NULL, NULL), UJOIN_E_INVALID, "recv is NULL");
    assert_error(ujoin_all_reduce(group, NULL, &recv, 9, NULL, NULL), UJOIN_E_INVALID, "reduce is 9");
    send.count = 3;
    assert_error(ujoin_all_reduce(group, &send, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "send.count is 3");
    send.count = 4;
    send.dtype = UJOIN_F64;
    assert_error(ujoin_all_reduce(group, &send, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "f64");
    recv.dtype = 77;
    assert_error(ujoin_all_reduce(group, NULL, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "dtype is 77");
    recv.dtype = UJOIN_F32;
    recv.data = NULL;
    assert_error(ujoin_all_reduce(group, NULL, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "recv.data is NULL");
    recv.data = data;
    recv.device = UJOIN_DEVICE_CUDA;
    assert_error(ujoin_all_reduce(group, NULL, &recv, 0, NULL, NULL), UJOIN_E_UNSUPPORTED, "device");
    recv.device = 0;
    recv.reserved = 1;
    assert_error(ujoin_all_reduce(group, NULL, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "reserved");
    recv.reserved = 0;
    assert_error(ujoin_broadcast(group, &recv, 1, NULL, NULL), UJOIN_E_INVALID, "root is 1");
    assert_error(ujoin_broadcast(group, NULL, 0, NULL, NULL), UJOIN_E_INVALID, "buffer is NULL");
    assert_error(ujoin_reduce_scatter(group, NULL, &recv, 0, NULL, NULL), UJOIN_E_INVALID, "send is NULL");
    ujoin_op_options o = {.size = sizeof o, .stream = data};
    assert_error(ujoin_barrier(group, &o), UJOIN_E_UNSUPPORTED, "stream");
    o.stream = NULL;
    o.timeout_ms = -9;
    assert_error(ujoin_barrier(group, &o), UJOIN_E_INVALID, "timeout_ms is -9");
    assert_error(ujoin_work_wait(NULL, 0), UJOIN_E_INVALID, "work is NULL");
    assert_error(ujoin_work_test(NULL), UJOIN_E_INVALID, "work is NULL");
    ujoin_work_abort(NULL);
    ujoin_work_destroy(NULL);
    assert_int_equal(ujoin_work_contributors(NULL, NULL, 0), 0);
    assert_non_null(strstr(ujoin_last_error(), "work is NULL"));
    ujoin_work *work = NULL;
    assert_int_equal(ujoin_all_reduce(group, NULL, &recv, 0, NULL, &work), UJOIN_OK); /* nothing was broken */
    assert_int_equal(ujoin_work_wait(work, UJOIN_NEVER), UJOIN_OK);
    int32_t rank = -1;
    assert_int_equal(ujoin_work_contributors(work, NULL, 1), 0);
    assert_non_null(strstr(ujoin_last_error(), "out_ranks is NULL"));
    assert_int_equal(ujoin_work_contributors(work, NULL, 0), 1);
    assert_int_equal(ujoin_work_contributors(work, &rank, 1), 1);
    assert_int_equal(rank, 0);
    ujoin_work_destroy(work);
    assert_true(data[0] == 1 && data[3] == 4);
    ujoin_group_destroy(group);
}

static void release_runs_once(void **state) {
    (void)state;
    ujoin_group *group = self_group();
    int released = 0;
    float data = 3;
    ujoin_buffer recv = {.data = &data, .count = 1, .dtype = UJOIN_F32};
    ujoin_op_options o = {.size = sizeof o, .release = count_release, .release_data = &released};
    assert_int_equal(ujoin_all_reduce(group, NULL, &recv, 0, &o, NULL), UJOIN_OK);
    assert_int_equal(released, 1);
    assert_int_equal(ujoin_all_reduce(NULL, NULL, &recv, 0, &o, NULL), UJOIN_E_INVALID);
    assert_int_equal(released, 2);
    ujoin_work *work = NULL;
    assert_int_equal(ujoin_all_reduce(group, NULL, &recv, 0, &o, &work), UJOIN_OK);
    assert_int_equal(ujoin_work_wait(work, -1), UJOIN_OK);
    assert_int_equal(released, 3);
    assert_int_equal(ujoin_work_test(work), UJOIN_OK);
    ujoin_group_destroy(group);
    assert_int_equal(ujoin_work_wait(work, 0), UJOIN_OK);
    ujoin_work_destroy(work);
    assert_int_equal(released, 3);
}

struct rank {
    pthread_t thread;
    int rank;
    int errors;
};

static void *rank_main(void *argument) {
    struct rank *me = argument;
    ujoin_group_options o = {.size = sizeof o, .rendezvous = "local://api-group-two", .rank = me->rank, .world_size = 2};
    ujoin_group *group = NULL;
    if (ujoin_group_create(&o, &group) != UJOIN_OK) {
        me->errors = 100;
        return NULL;
    }
    ujoin_group_info info = {.size = sizeof info};
    me->errors += ujoin_group_get_info(group, &info) != UJOIN_OK || strcmp(info.backend, "local") ||
                  info.rank != me->rank || info.world_size != 2 || info.local_size != 2 || info.local_rank != me->rank;
    float sum = (float)(me->rank + 1);
    ujoin_buffer recv = {.data = &sum, .count = 1, .dtype = UJOIN_F32};
    me->errors += ujoin_all_reduce(group, NULL, &recv, UJOIN_SUM, NULL, NULL) != UJOIN_OK || sum != 3;
    int32_t all[2] = {-1, -1};
    int32_t own = me->rank + 7;
    ujoin_const_buffer send = {.data = &own, .count = 1, .dtype = UJOIN_I32};
    ujoin_buffer gathered = {.data = all, .count = 2, .dtype = UJOIN_I32};
    ujoin_work *work = NULL;
    me->errors += ujoin_all_gather(group, &send, &gathered, NULL, &work) != UJOIN_OK;
    me->errors += ujoin_work_wait(work, -1) != UJOIN_OK || all[0] != 7 || all[1] != 8;
    ujoin_work_destroy(work);
    me->errors += ujoin_group_close(group, -1) != UJOIN_OK;
    me->errors += ujoin_barrier(group, NULL) != UJOIN_E_STATE;
    ujoin_group_destroy(group);
    return NULL;
}

static void two_ranks_as_threads(void **state) {
    (void)state;
    struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(ranks[i].thread, NULL);
        assert_int_equal(ranks[i].errors, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_by_option_environment_and_processors),
        cmocka_unit_test(library_facts),
        cmocka_unit_test(wrong_groups),
        cmocka_unit_test(wrong_environment),
        cmocka_unit_test(wrong_operations),
        cmocka_unit_test(release_runs_once),
        cmocka_unit_test(two_ranks_as_threads),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
