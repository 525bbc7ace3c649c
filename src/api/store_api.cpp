// SPDX-License-Identifier: Apache-2.0
#include "api/guard.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "store/store.hpp"

using namespace ujoin;

namespace {

constexpr int64_t default_timeout_ms = 300'000;

std::string text(const char *value, const char *name) {
    if (!value) fail_invalid(name, " is NULL");
    return value;
}

} // namespace

ujoin_status ujoin_store_create(const char *url, const ujoin_store_options *options, ujoin_store **out) {
    return api::guard("ujoin_store_create", [&] {
        api::begin_out(out);
        const ujoin_store_options given = api::read_options(options, "options");
        Store::Options store_options;
        store_options.secret = api::text_or(given.secret, "");
        store_options.timeout_ms = duration_option(given.timeout_ms, default_timeout_ms, "options.timeout_ms");
        store_options.listen = api::flag(given.listen, "options.listen");
        api::give(out, Store::open(text(url, "url"), store_options));
    });
}

ujoin_status ujoin_store_prefix(ujoin_store *store, const char *prefix, ujoin_store **out) {
    return api::guard("ujoin_store_prefix", [&] {
        api::begin_out(out);
        api::give(out, Store::with_prefix(api::use(store, "store"), text(prefix, "prefix")));
    });
}

const char *ujoin_store_url(const ujoin_store *store) {
    return api::guard_value<const char *>("ujoin_store_url", nullptr,
                                          [&] { return api::use(store, "store")->url().c_str(); });
}

ujoin_status ujoin_store_set(ujoin_store *store, const char *key, const void *data, size_t size) {
    return api::guard("ujoin_store_set", [&] {
        const std::shared_ptr<Store> object = api::use(store, "store");
        const std::string name = text(key, "key");
        if (!data && size > 0) fail_invalid("data is NULL and size is ", size);
        if (size > Store::max_value) fail_invalid("size is ", size, "; a value has at most ", Store::max_value, " bytes");
        object->set(name, size > 0 ? std::string(static_cast<const char *>(data), size) : std::string());
    });
}

ujoin_status ujoin_store_get(ujoin_store *store, const char *key, int64_t timeout_ms, void *out_data, size_t capacity,
                             size_t *out_size) {
    return api::guard("ujoin_store_get", [&]() -> ujoin_status {
        const std::shared_ptr<Store> object = api::use(store, "store");
        const std::string name = text(key, "key");
        if (!out_size) fail_invalid("out_size is NULL");
        if (!out_data && capacity > 0) fail_invalid("out_data is NULL and capacity is ", capacity);
        const std::optional<std::string> value = object->get(name, Deadline::in(timeout_ms));
        if (!value) return record(Error(UJOIN_PENDING, cat("ujoin_store_get: key \"", name, "\" is not there yet")));
        *out_size = value->size();
        if (value->size() > capacity)
            fail_invalid("key \"", name, "\" holds ", value->size(), " bytes, capacity is ", capacity);
        std::copy(value->begin(), value->end(), static_cast<char *>(out_data));
        return UJOIN_OK;
    });
}

ujoin_status ujoin_store_add(ujoin_store *store, const char *key, int64_t amount, int64_t *out_value) {
    return api::guard("ujoin_store_add", [&] {
        const std::shared_ptr<Store> object = api::use(store, "store");
        const std::string name = text(key, "key");
        if (!out_value) fail_invalid("out_value is NULL");
        *out_value = object->add(name, amount);
    });
}

ujoin_status ujoin_store_wait(ujoin_store *store, const char *const *keys, size_t count, int64_t timeout_ms) {
    return api::guard("ujoin_store_wait", [&]() -> ujoin_status {
        const std::shared_ptr<Store> object = api::use(store, "store");
        if (!keys && count > 0) fail_invalid("keys is NULL and count is ", count);
        std::vector<std::string> names;
        for (size_t i = 0; i < count; i++) names.push_back(text(keys[i], cat("keys[", i, "]").c_str()));
        const std::vector<std::string> missing = object->wait(names, Deadline::in(timeout_ms));
        if (missing.empty()) return UJOIN_OK;
        return record(Error(UJOIN_PENDING, cat("ujoin_store_wait: not there yet: ", join_list(missing))));
    });
}

void ujoin_store_abort(ujoin_store *store) {
    api::guard("ujoin_store_abort", [&] { api::use(store, "store")->abort(); });
}

void ujoin_store_destroy(ujoin_store *store) { api::drop(store); }
