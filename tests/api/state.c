/* SPDX-License-Identifier: Apache-2.0 */
/* Typed lists through the public header alone. */
#include "kit.h"

static const float data[6] = {1, 2, 3, 4, 5, 6};
static const int64_t shape[2] = {2, 3};

/* A tensor of a parameter: correct in all. */
static ujoin_item good(void) {
    return (ujoin_item){.size = sizeof(ujoin_item),
                        .param = "w",
                        .key = "exp_avg",
                        .data = data,
                        .bytes = sizeof data,
                        .shape = shape,
                        .kind = UJOIN_ITEM_TENSOR,
                        .dtype = UJOIN_F32,
                        .ndim = 2,
                        .owner = UJOIN_ITEM_OF_PARAM,
                        .group = 1};
}

static void what_is_set_is_found(void **unused) {
    (void)unused;
    ujoin_state *state = NULL;
    assert_int_equal(ujoin_state_create(&state), UJOIN_OK);
    assert_int_equal(ujoin_state_count(state), 0);
    ujoin_item item = good();
    assert_int_equal(ujoin_state_set(state, &item), UJOIN_OK);
    ujoin_item number = {.size = sizeof number,
                         .key = "lr",
                         .number = 0.5,
                         .kind = UJOIN_ITEM_NUMBER,
                         .owner = UJOIN_ITEM_OF_GROUP,
                         .group = 2};
    assert_int_equal(ujoin_state_set(state, &number), UJOIN_OK);
    char text[] = "epoch 3";
    ujoin_item note = {.size = sizeof note, .key = "note", .data = text, .bytes = strlen(text), .kind = UJOIN_ITEM_TEXT};
    assert_int_equal(ujoin_state_set(state, &note), UJOIN_OK);
    text[0] = 'X'; /* it was copied */
    ujoin_item empty = {.size = sizeof empty, .key = "empty", .kind = UJOIN_ITEM_BYTES};
    assert_int_equal(ujoin_state_set(state, &empty), UJOIN_OK);
    ujoin_item scalar = {
        .size = sizeof scalar, .key = "scalar", .data = data, .bytes = 4, .kind = UJOIN_ITEM_TENSOR, .dtype = UJOIN_F32};
    assert_int_equal(ujoin_state_set(state, &scalar), UJOIN_OK);
    assert_int_equal(ujoin_state_count(state), 5);

    const char *keys[] = {"empty", "note", "scalar", "exp_avg", "lr"};
    ujoin_item out = {.size = sizeof out};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(ujoin_state_get(state, i, &out), UJOIN_OK);
        assert_string_equal(out.key, keys[i]);
        assert_int_equal(out.size, sizeof out);
    }
    assert_int_equal(ujoin_state_get(state, 3, &out), UJOIN_OK);
    assert_string_equal(out.param, "w");
    assert_int_equal(out.owner, UJOIN_ITEM_OF_PARAM);
    assert_int_equal(out.group, 1);
    assert_int_equal(out.kind, UJOIN_ITEM_TENSOR);
    assert_int_equal(out.dtype, UJOIN_F32);
    assert_int_equal(out.ndim, 2);
    assert_int_equal(out.shape[0], 2);
    assert_int_equal(out.shape[1], 3);
    assert_int_equal(out.bytes, sizeof data);
    assert_memory_equal(out.data, data, sizeof data);
    assert_int_equal(ujoin_state_get(state, 4, &out), UJOIN_OK);
    assert_true(out.number == 0.5);
    assert_int_equal(ujoin_state_find(state, "note", &out), UJOIN_OK);
    assert_string_equal((const char *)out.data, "epoch 3"); /* a NUL follows */
    assert_int_equal(out.bytes, 7);
    assert_int_equal(out.owner, UJOIN_ITEM_OF_PROGRAM);
    assert_int_equal(ujoin_state_find(state, "scalar", &out), UJOIN_OK);
    assert_int_equal(out.ndim, 0);
    assert_null(out.shape);

    /* A shorter struct, of an older program, is filled as far as it goes. */
    ujoin_item old;
    memset(&old, 0x5a, sizeof old);
    old.size = offsetof(ujoin_item, number);
    assert_int_equal(ujoin_state_find(state, "note", &old), UJOIN_OK);
    assert_string_equal(old.key, "note");
    assert_int_equal(old.kind, 0x5a5a5a5a);
    ujoin_state_destroy(state);
}

static void a_key_is_replaced(void **unused) {
    (void)unused;
    ujoin_state *state = NULL;
    assert_int_equal(ujoin_state_create(&state), UJOIN_OK);
    ujoin_item item = good();
    assert_int_equal(ujoin_state_set(state, &item), UJOIN_OK);
    item = (ujoin_item){.size = sizeof item,
                        .param = "w",
                        .key = "exp_avg",
                        .number = 7,
                        .kind = UJOIN_ITEM_NUMBER,
                        .owner = UJOIN_ITEM_OF_PARAM};
    assert_int_equal(ujoin_state_set(state, &item), UJOIN_OK);
    assert_int_equal(ujoin_state_count(state), 1);
    ujoin_item out = {.size = sizeof out};
    assert_int_equal(ujoin_state_get(state, 0, &out), UJOIN_OK);
    assert_int_equal(out.kind, UJOIN_ITEM_NUMBER);
    assert_true(out.number == 7);
    ujoin_state_destroy(state);
}

static void wrong_items_are_refused(void **unused) {
    (void)unused;
    ujoin_state *state = NULL;
    assert_int_equal(ujoin_state_create(&state), UJOIN_OK);
    const int64_t negative[2] = {-2, -3};
    const int64_t wrapping[2] = {((int64_t)1 << 42) + 1, (int64_t)1 << 22};
    ujoin_item item;
#define REFUSE(change, part)                                                                                               \
    do {                                                                                                                   \
        item = good();                                                                                                     \
        change;                                                                                                            \
        assert_error(ujoin_state_set(state, &item), UJOIN_E_INVALID, part);                                                \
        assert_int_equal(ujoin_state_count(state), 0);                                                                     \
    } while (0)
    REFUSE(item.size = 0, "item.size is 0");
    REFUSE(item.size = sizeof item + 100000, "item.size");
    REFUSE(item.reserved = 1, "item.reserved");
    REFUSE(item.key = NULL, "item.key is NULL");
    REFUSE(item.key = "", "item.key is empty");
    REFUSE(item.param = NULL, "item.param is NULL");
    REFUSE(item.param = "", "item.param is empty");
    REFUSE(item.owner = 4, "item.owner is 4");
    REFUSE(item.owner = -1, "item.owner is -1");
    REFUSE(item.kind = 0, "item.kind is 0; expected 1 to 4");
    REFUSE(item.kind = 5, "item.kind is 5");
    REFUSE(item.group = -1, "item.group is -1");
    REFUSE(item.dtype = 0, "item.dtype is 0");
    REFUSE(item.dtype = 8, "item.dtype is 8");
    REFUSE(item.ndim = -1, "item.ndim is -1");
    REFUSE(item.ndim = 65, "item.ndim is 65");
    REFUSE(item.shape = NULL, "item.shape is NULL");
    REFUSE(item.shape = negative, "dimension 0 is -2");
    REFUSE(item.shape = wrapping, "too large");
    REFUSE(item.bytes = 20, "item.bytes is 20, but the shape has 6 elements of 4 bytes");
    REFUSE(item.data = NULL, "item.data is NULL");
    REFUSE(item.kind = UJOIN_ITEM_BYTES; item.bytes = SIZE_MAX, "item.bytes");
#undef REFUSE
    assert_error(ujoin_state_set(state, NULL), UJOIN_E_INVALID, "item is NULL");
    struct {
        ujoin_item item;
        int64_t tail;
    } longer = {good(), 1};
    longer.item.size = sizeof longer;
    assert_error(ujoin_state_set(state, &longer.item), UJOIN_E_UNSUPPORTED,
                 "fields that this version of ujoin does not know");
    longer.tail = 0;
    assert_int_equal(ujoin_state_set(state, &longer.item), UJOIN_OK);
    ujoin_state_destroy(state);
}

static void wrong_arguments_are_refused(void **unused) {
    (void)unused;
    assert_error(ujoin_state_create(NULL), UJOIN_E_INVALID, "ujoin_state_create: out is NULL");
    ujoin_item item = good();
    assert_error(ujoin_state_set(NULL, &item), UJOIN_E_INVALID, "state is NULL");
    assert_int_equal(ujoin_state_count(NULL), 0);
    assert_non_null(strstr(ujoin_last_error(), "ujoin_state_count"));
    ujoin_item out = {.size = sizeof out};
    assert_error(ujoin_state_get(NULL, 0, &out), UJOIN_E_INVALID, "state is NULL");
    ujoin_state *state = NULL;
    assert_int_equal(ujoin_state_create(&state), UJOIN_OK);
    assert_error(ujoin_state_get(state, 0, &out), UJOIN_E_INVALID, "index is 0; the list has 0 items");
    assert_int_equal(ujoin_state_set(state, &item), UJOIN_OK);
    assert_error(ujoin_state_get(state, 0, NULL), UJOIN_E_INVALID, "out is NULL");
    out.size = 0;
    assert_error(ujoin_state_get(state, 0, &out), UJOIN_E_INVALID, "out.size is 0");
    out.size = sizeof out;
    assert_error(ujoin_state_find(state, "exp_avg", &out), UJOIN_E_INVALID, "no item \"exp_avg\" of the program's own");
    assert_error(ujoin_state_find(state, NULL, &out), UJOIN_E_INVALID, "key is NULL");
    ujoin_state_destroy(state);
    ujoin_state_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_set_is_found),
        cmocka_unit_test(a_key_is_replaced),
        cmocka_unit_test(wrong_items_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
