// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "base/dtype.hpp"
#include "ujoin.h"
#include "zero/state.hpp"

using namespace ujoin;

namespace {

void read_owner(const ujoin_item &given, StateItem &item) {
    item.owner = api::choice(given.owner, UJOIN_ITEM_OF_PROGRAM, UJOIN_ITEM_OF_GROUP, "item.owner");
    if (!given.key || !*given.key) fail_invalid("item.key is ", given.key ? "empty" : "NULL");
    item.key = given.key;
    if (item.owner == UJOIN_ITEM_OF_PROGRAM) return;
    if (given.group < 0) fail_invalid("item.group is ", given.group, "; it must be 0 or more");
    item.group = given.group;
    if (item.owner == UJOIN_ITEM_OF_GROUP) return;
    if (!given.param || !*given.param)
        fail_invalid("item.param is ", given.param ? "empty" : "NULL", "; \"", item.key, "\" belongs to a parameter");
    item.param = given.param;
}

void read_tensor(const ujoin_item &given, StateItem &item) {
    if (!dtype_known(given.dtype)) fail_invalid("item.dtype is ", given.dtype, "; expected a value of ujoin_dtype_value");
    if (given.ndim < 0 || given.ndim > max_dimensions)
        fail_invalid("item.ndim is ", given.ndim, "; expected 0 to ", max_dimensions);
    if (given.ndim > 0 && !given.shape) fail_invalid("item.shape is NULL, but item.ndim is ", given.ndim);
    const auto ndim = static_cast<size_t>(given.ndim);
    const size_t count = shape_count(given.shape, ndim, dtype_size(given.dtype), "item.shape");
    if (given.bytes != count * dtype_size(given.dtype))
        fail_invalid("item.bytes is ", given.bytes, ", but the shape has ", count, " elements of ", dtype_size(given.dtype),
                     " bytes");
    item.dtype = given.dtype;
    item.shape.assign(given.shape, given.shape + ndim);
}

StateItem read_item(const ujoin_item *pointer) {
    if (!pointer) fail_invalid("item is NULL");
    const ujoin_item given = api::read_options(pointer, "item");
    StateItem item;
    read_owner(given, item);
    if (given.kind < UJOIN_ITEM_TENSOR || given.kind > UJOIN_ITEM_BYTES)
        fail_invalid("item.kind is ", given.kind, "; expected ", UJOIN_ITEM_TENSOR, " to ", UJOIN_ITEM_BYTES);
    item.kind = given.kind;
    if (item.kind == UJOIN_ITEM_NUMBER) {
        item.number = given.number;
        return item;
    }
    if (given.bytes != 0 && !given.data) fail_invalid("item.data is NULL, but item.bytes is ", given.bytes);
    if (given.bytes > SIZE_MAX / 4) fail_invalid("item.bytes is ", given.bytes, ": too large");
    if (item.kind == UJOIN_ITEM_TENSOR) read_tensor(given, item);
    const auto *data = static_cast<const std::byte *>(given.data);
    item.bytes = given.bytes;
    item.data.reserve(given.bytes + 1);
    if (given.bytes != 0) item.data.assign(data, data + given.bytes);
    item.data.push_back(std::byte{0}); // so that a text can be printed
    return item;
}

void show(const StateItem &item, ujoin_item *out) {
    ujoin_item shown{};
    shown.param = item.param.c_str();
    shown.key = item.key.c_str();
    shown.data = item.kind == UJOIN_ITEM_NUMBER ? nullptr : item.data.data();
    shown.bytes = item.bytes;
    shown.shape = item.shape.empty() ? nullptr : item.shape.data();
    shown.number = item.number;
    shown.kind = item.kind;
    shown.dtype = item.dtype;
    shown.ndim = static_cast<int32_t>(item.shape.size());
    shown.owner = item.owner;
    shown.group = item.group;
    api::write_struct(out, shown, "out");
}

} // namespace

ujoin_status ujoin_state_create(ujoin_state **out) {
    return api::guard("ujoin_state_create", [&] {
        api::begin_out(out);
        api::give(out, std::make_shared<State>());
    });
}

ujoin_status ujoin_state_set(ujoin_state *state, const ujoin_item *item) {
    return api::guard("ujoin_state_set", [&] { api::use(state, "state")->set(read_item(item)); });
}

size_t ujoin_state_count(const ujoin_state *state) {
    return api::guard_value<size_t>("ujoin_state_count", 0, [&] { return api::use(state, "state")->count(); });
}

ujoin_status ujoin_state_get(const ujoin_state *state, size_t index, ujoin_item *out) {
    return api::guard("ujoin_state_get", [&] {
        const State &list = *api::use(state, "state");
        if (index >= list.count()) fail_invalid("index is ", index, "; the list has ", list.count(), " items");
        show(list.at(index), out);
    });
}

ujoin_status ujoin_state_find(const ujoin_state *state, const char *key, ujoin_item *out) {
    return api::guard("ujoin_state_find", [&] {
        const State &list = *api::use(state, "state");
        if (!key) fail_invalid("key is NULL");
        const StateItem *item = list.find(key);
        if (!item) fail_invalid("the list has no item \"", key, "\" of the program's own");
        show(*item, out);
    });
}

void ujoin_state_destroy(ujoin_state *state) { api::drop(state); }
