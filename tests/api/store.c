/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ujoin.h>

#define text_has(part) assert_non_null(strstr(ujoin_last_error(), part))

static ujoin_store *memory(void) {
    static int count;
    char url[] = "memory://api-0";
    ujoin_store *store;
    url[strlen(url) - 1] = (char)('a' + count++);
    assert_int_equal(ujoin_store_create(url, NULL, &store), UJOIN_OK);
    return store;
}

static void set_get_add_wait(void **state) {
    ujoin_store *store = memory();
    char data[8] = "........";
    size_t size = 99;
    int64_t value = 0;
    const char *keys[] = {"key", "n"};
    (void)state;
    assert_int_equal(ujoin_store_set(store, "key", "abc", 3), UJOIN_OK);
    assert_int_equal(ujoin_store_get(store, "key", 0, data, sizeof data, &size), UJOIN_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(data, "abc.....", 8);
    assert_int_equal(ujoin_store_add(store, "n", 41, &value), UJOIN_OK);
    assert_int_equal(ujoin_store_add(store, "n", 1, &value), UJOIN_OK);
    assert_int_equal(value, 42);
    assert_int_equal(ujoin_store_get(store, "n", -1, data, sizeof data, &size), UJOIN_OK);
    assert_memory_equal(data, "42", 2);
    assert_int_equal(ujoin_store_wait(store, keys, 2, -1), UJOIN_OK);
    assert_int_equal(ujoin_store_wait(store, NULL, 0, -1), UJOIN_OK);
    assert_int_equal(ujoin_store_set(store, "empty", NULL, 0), UJOIN_OK);
    assert_int_equal(ujoin_store_get(store, "empty", 0, NULL, 0, &size), UJOIN_OK);
    assert_int_equal(size, 0);
    assert_string_equal(ujoin_store_url(store), "");
    ujoin_store_destroy(store);
}

static void pending_names_what_is_missing(void **state) {
    ujoin_store *store = memory();
    const char *keys[] = {"present", "gone-1", "gone-2"};
    char data[4] = "...";
    size_t size = 99;
    (void)state;
    assert_int_equal(ujoin_store_set(store, "present", "", 0), UJOIN_OK);
    assert_int_equal(ujoin_store_get(store, "gone-1", 20, data, sizeof data, &size), UJOIN_PENDING);
    assert_memory_equal(data, "...", 4);
    assert_int_equal(size, 99);
    text_has("gone-1");
    assert_int_equal(ujoin_store_wait(store, keys, 3, 0), UJOIN_PENDING);
    text_has("gone-1, gone-2");
    assert_null(strstr(ujoin_last_error(), "present"));
    ujoin_store_destroy(store);
}

static void a_small_buffer_learns_the_size(void **state) {
    ujoin_store *store = memory();
    char data[4] = "...";
    size_t size = 0;
    (void)state;
    assert_int_equal(ujoin_store_set(store, "key", "abcdef", 6), UJOIN_OK);
    assert_int_equal(ujoin_store_get(store, "key", 0, data, 3, &size), UJOIN_E_INVALID);
    assert_int_equal(size, 6);
    assert_memory_equal(data, "...", 4);
    text_has("6 bytes");
    size = 0;
    assert_int_equal(ujoin_store_get(store, "key", 0, NULL, 0, &size), UJOIN_E_INVALID);
    assert_int_equal(size, 6);
    ujoin_store_destroy(store);
}

static void add_to_text_is_a_mismatch(void **state) {
    ujoin_store *store = memory();
    int64_t value = 7;
    (void)state;
    assert_int_equal(ujoin_store_set(store, "key", "abc", 3), UJOIN_OK);
    assert_int_equal(ujoin_store_add(store, "key", 1, &value), UJOIN_E_MISMATCH);
    assert_int_equal(value, 7);
    text_has("key");
    ujoin_store_destroy(store);
}

static void prefix_and_abort(void **state) {
    ujoin_store *store = memory();
    ujoin_store *view;
    char data[4];
    size_t size;
    (void)state;
    assert_int_equal(ujoin_store_prefix(store, "a/", &view), UJOIN_OK);
    assert_int_equal(ujoin_store_set(view, "k", "1", 1), UJOIN_OK);
    assert_int_equal(ujoin_store_get(store, "a/k", 0, data, sizeof data, &size), UJOIN_OK);
    ujoin_store_abort(store);
    assert_int_equal(ujoin_store_get(store, "never", -1, data, sizeof data, &size), UJOIN_E_ABORTED);
    assert_int_equal(ujoin_store_get(view, "k", -1, data, sizeof data, &size), UJOIN_OK);
    ujoin_store_destroy(store);
    assert_int_equal(ujoin_store_get(view, "k", -1, data, sizeof data, &size), UJOIN_OK);
    ujoin_store_destroy(view);
}

static void tcp_server_and_client(void **state) {
    ujoin_store_options options = {0};
    ujoin_store *server;
    ujoin_store *client;
    int64_t value;
    char url[64];
    (void)state;
    options.size = sizeof options;
    options.listen = 1;
    options.secret = "of this test";
    assert_int_equal(ujoin_store_create("tcp://127.0.0.1:0", &options, &server), UJOIN_OK);
    assert_true(strlen(ujoin_store_url(server)) < sizeof url);
    strcpy(url, ujoin_store_url(server));
    assert_string_not_equal(url, "tcp://127.0.0.1:0");

    assert_int_equal(ujoin_store_create(url, &options, &client), UJOIN_E_SYSTEM); /* taken */
    assert_null(client);
    assert_int_not_equal(ujoin_last_errno(), 0);
    options.listen = 0;
    options.secret = "another";
    assert_int_equal(ujoin_store_create(url, &options, &client), UJOIN_E_MISMATCH);
    setenv("UJOIN_SECRET", "of this test", 1); /* the default */
    assert_int_equal(ujoin_store_create(url, NULL, &client), UJOIN_OK);
    ujoin_store_destroy(client);
    unsetenv("UJOIN_SECRET");
    assert_int_equal(ujoin_store_create(url, NULL, &client), UJOIN_E_MISMATCH);
    options.secret = "of this test";
    assert_int_equal(ujoin_store_create(url, &options, &client), UJOIN_OK);
    assert_int_equal(ujoin_store_add(client, "n", 5, &value), UJOIN_OK);
    assert_int_equal(ujoin_store_add(server, "n", 5, &value), UJOIN_OK);
    assert_int_equal(value, 10);
    ujoin_store_destroy(server);
    assert_int_equal(ujoin_store_add(client, "n", 5, &value), UJOIN_E_PEER_LOST);
    text_has(url);
    ujoin_store_destroy(client);
}

static ujoin_status stop(void *count) {
    return ++*(int *)count < 2 ? UJOIN_OK : ujoin_set_last_error(UJOIN_E_CALLBACK, "enough of it");
}

static void the_interrupt_check_ends_a_wait(void **state) {
    const char *urls[] = {"memory://interrupt", "tcp://127.0.0.1:0", "file:///tmp/ujoin-api-store-test"};
    size_t i;
    (void)state;
    for (i = 0; i < 3; i++) {
        ujoin_store_options options = {0};
        ujoin_store *store;
        size_t size;
        int64_t value;
        int count = 0;
        options.size = sizeof options;
        options.listen = i == 1;
        assert_int_equal(ujoin_store_create(urls[i], &options, &store), UJOIN_OK);
        assert_int_equal(ujoin_set_interrupt_check(stop, &count, NULL), UJOIN_OK);
        assert_int_equal(ujoin_store_get(store, "never", -1, NULL, 0, &size), UJOIN_E_CALLBACK);
        text_has("enough of it");
        assert_int_equal(count, 2);
        assert_int_equal(ujoin_set_interrupt_check(NULL, NULL, NULL), UJOIN_OK);
        assert_int_equal(ujoin_store_add(store, "n", 1, &value), UJOIN_OK); /* the store lives on */
        ujoin_store_destroy(store);
    }
    remove("/tmp/ujoin-api-store-test");
}

static void bad_input(void **state) {
    ujoin_store *store = memory();
    ujoin_store *out = store;
    ujoin_store_options options = {0};
    const char *keys[] = {"a", NULL};
    const char *empty[] = {""};
    char big_key[1026];
    size_t size;
    int64_t value;
    char *big = calloc(1, (16U << 20) + 1);
    (void)state;
    assert_non_null(big);
    memset(big_key, 'k', sizeof big_key - 1);
    big_key[sizeof big_key - 1] = 0;
    options.size = sizeof options;

    assert_int_equal(ujoin_store_create(NULL, NULL, &out), UJOIN_E_INVALID);
    assert_null(out);
    text_has("url is NULL");
    assert_int_equal(ujoin_store_create("memory://x", NULL, NULL), UJOIN_E_INVALID);
    text_has("out is NULL");
    assert_int_equal(ujoin_store_create("nonsense", NULL, &out), UJOIN_E_INVALID);
    options.size = 1;
    assert_int_equal(ujoin_store_create("memory://x", &options, &out), UJOIN_E_INVALID);
    options.size = sizeof options;
    options.reserved = 1;
    assert_int_equal(ujoin_store_create("memory://x", &options, &out), UJOIN_E_INVALID);
    options.reserved = 0;
    options.listen = 2;
    assert_int_equal(ujoin_store_create("memory://x", &options, &out), UJOIN_E_INVALID);
    text_has("options.listen is 2");
    options.listen = 0;
    options.timeout_ms = -3;
    assert_int_equal(ujoin_store_create("memory://x", &options, &out), UJOIN_E_INVALID);
    text_has("options.timeout_ms");

    assert_int_equal(ujoin_store_prefix(NULL, "p", &out), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_prefix(store, NULL, &out), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_prefix(store, "p", NULL), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_prefix(store, big_key, &out), UJOIN_E_INVALID);
    assert_null(ujoin_store_url(NULL));
    text_has("store is NULL");

    assert_int_equal(ujoin_store_set(NULL, "k", "v", 1), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_set(store, NULL, "v", 1), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_set(store, "", "v", 1), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_set(store, big_key, "v", 1), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_set(store, "k", NULL, 1), UJOIN_E_INVALID);
    text_has("data is NULL");
    assert_int_equal(ujoin_store_set(store, "k", big, (16U << 20) + 1), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_set(store, "k", big, SIZE_MAX), UJOIN_E_INVALID);

    assert_int_equal(ujoin_store_get(NULL, "k", 0, NULL, 0, &size), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_get(store, NULL, 0, NULL, 0, &size), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_get(store, "k", 0, NULL, 4, &size), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_get(store, "k", 0, NULL, 0, NULL), UJOIN_E_INVALID);
    text_has("out_size is NULL");
    assert_int_equal(ujoin_store_get(store, "k", 0, NULL, 0, &size), UJOIN_PENDING); /* none of the above has set it */

    assert_int_equal(ujoin_store_add(NULL, "n", 1, &value), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_add(store, NULL, 1, &value), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_add(store, "n", 1, NULL), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_add(store, "n", 1, &value), UJOIN_OK);
    assert_int_equal(value, 1);

    assert_int_equal(ujoin_store_wait(NULL, empty, 1, 0), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_wait(store, NULL, 1, 0), UJOIN_E_INVALID);
    assert_int_equal(ujoin_store_wait(store, keys, 2, 0), UJOIN_E_INVALID);
    text_has("keys[1] is NULL");
    assert_int_equal(ujoin_store_wait(store, empty, 1, 0), UJOIN_E_INVALID);

    ujoin_store_abort(NULL);
    ujoin_store_destroy(NULL);
    ujoin_store_destroy(store);
    free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_get_add_wait),
        cmocka_unit_test(pending_names_what_is_missing),
        cmocka_unit_test(a_small_buffer_learns_the_size),
        cmocka_unit_test(add_to_text_is_a_mismatch),
        cmocka_unit_test(prefix_and_abort),
        cmocka_unit_test(tcp_server_and_client),
        cmocka_unit_test(the_interrupt_check_ends_a_wait),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
