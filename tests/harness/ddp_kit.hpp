// SPDX-License-Identifier: Apache-2.0
// What the tests of the gradient reducer share: groups as objects, and a model whose memory they describe.
#pragma once
#include "base/dtype.hpp"
#include "harness/meet.hpp"
#include "ujoin.h"
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#define ASSERT_UJOIN_OK(call)                                                                                              \
    do {                                                                                                                   \
        const ujoin_status status_ = (call);                                                                               \
        ASSERT_EQ(status_, UJOIN_OK) << #call << ": " << ujoin_status_name(status_) << ": " << ujoin_last_error();         \
    } while (0)

namespace ddp_kit {

template <class T, void (*destroy)(T *)> struct Destroy {
    void operator()(T *handle) const { destroy(handle); }
};
using GroupPtr = std::unique_ptr<ujoin_group, Destroy<ujoin_group, ujoin_group_destroy>>;
using DdpPtr = std::unique_ptr<ujoin_ddp, Destroy<ujoin_ddp, ujoin_ddp_destroy>>;
using ZeroPtr = std::unique_ptr<ujoin_zero, Destroy<ujoin_zero, zero_destroy>>;
using CtxPtr = std::unique_ptr<ujoin_ctx, Destroy<ujoin_ctx, ujoin_ctx_destroy>>;

inline GroupPtr make_group(const std::string &rendezvous, const char *backend, int rank, int size) {
    ujoin_group_options options{};
    options.size = sizeof options;
    options.rendezvous = rendezvous.c_str();
    options.backend = backend;
    options.rank = rank;
    options.world_size = size;
    ujoin_group *group = nullptr;
    const ujoin_status status = ujoin_group_create(&options, &group);
    EXPECT_EQ(status, UJOIN_OK) << ujoin_last_error();
    return GroupPtr(group);
}

/// A group of one.
inline GroupPtr alone() { return make_group("env://", "self", 0, 1); }

using Body = std::function<void(ujoin_group *group, int rank)>;

inline void with_backend(const std::string &backend, int size, const Body &body) {
    const harness::Meet meet(backend, harness::unique("ddp"));
    meet.run(size, [&](int rank) {
        const GroupPtr group = make_group(meet.url(), backend.c_str(), rank, size);
        ASSERT_TRUE(group);
        body(group.get(), rank);
    });
}
/// Ranks as threads over the local backend.
inline void with_threads(int size, const Body &body) { with_backend("local", size, body); }
/// Ranks as processes over shared memory.
inline void with_processes(int size, const Body &body) { with_backend("shm", size, body); }

/// Threads and processes with memory in common, threads that have only connections, processes of several hosts.
enum class Ranks { threads, processes, connections, hosts };

inline void run(Ranks kind, int size, const Body &body) {
    constexpr const char *backends[] = {"local", "shm", "tcp", "hier"};
    with_backend(backends[static_cast<int>(kind)], size, body);
}

inline CtxPtr make_ctx(const std::vector<ujoin_joinable *> &joinables, const ujoin_ctx_options *options = nullptr) {
    ujoin_ctx *ctx = nullptr;
    const ujoin_status status = ujoin_ctx_create(joinables.data(), joinables.size(), options, &ctx);
    EXPECT_EQ(status, UJOIN_OK) << ujoin_last_error();
    return CtxPtr(ctx);
}

inline std::string name_of_kind(Ranks kind) {
    constexpr const char *names[] = {"threads", "processes", "connections", "hosts"};
    return names[static_cast<int>(kind)];
}
inline std::string name_of(const testing::TestParamInfo<std::tuple<Ranks, int>> &info) {
    return name_of_kind(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}
inline std::string kind_name(const testing::TestParamInfo<Ranks> &info) { return name_of_kind(info.param); }

/// One tensor with its gradient.
struct Tensor {
    std::string name;
    ujoin_dtype dtype = UJOIN_F32;
    size_t count = 0;
    std::vector<char> data;
    std::vector<char> grad;

    Tensor(std::string n, size_t c, ujoin_dtype d = UJOIN_F32)
        : name(std::move(n)), dtype(d), count(c), data(c * ujoin::dtype_size(d)), grad(c * ujoin::dtype_size(d)) {}

    template <class T> T *values() { return reinterpret_cast<T *>(data.data()); }
    template <class T> T *grads() { return reinterpret_cast<T *>(grad.data()); }
    template <class T> void fill(T value) { std::fill_n(values<T>(), count, value); }
    template <class T> void fill_grad(T value) { std::fill_n(grads<T>(), count, value); }
};

inline std::vector<ujoin_param> params_of(std::vector<Tensor> &tensors) {
    std::vector<ujoin_param> params;
    for (Tensor &tensor : tensors) {
        ujoin_param param{};
        param.name = tensor.name.c_str();
        param.data = tensor.data.data();
        param.grad = tensor.grad.data();
        param.count = tensor.count;
        param.dtype = tensor.dtype;
        params.push_back(param);
    }
    return params;
}

inline ujoin_ddp_options ddp_options(ujoin_division division = UJOIN_DIVISION_INITIAL) {
    ujoin_ddp_options options{};
    options.size = sizeof options;
    options.division = division;
    return options;
}

inline DdpPtr make_ddp(ujoin_group *group, std::vector<Tensor> &tensors, const ujoin_ddp_options &options) {
    const std::vector<ujoin_param> params = params_of(tensors);
    ujoin_ddp *ddp = nullptr;
    const ujoin_status status = ujoin_ddp_create(group, params.data(), params.size(), &options, &ddp);
    EXPECT_EQ(status, UJOIN_OK) << ujoin_last_error();
    return DdpPtr(ddp);
}

/// A whole iteration; the gradients are in place already and become ready from the last to the first.
inline ujoin_status reduce(ujoin_ddp *ddp, size_t params, double samples = 1) {
    ujoin_status status = ujoin_ddp_forward(ddp, samples);
    for (size_t i = params; i-- > 0 && status == UJOIN_OK;) status = ujoin_ddp_ready(ddp, i);
    return status == UJOIN_OK ? ujoin_ddp_finish(ddp) : status;
}

inline ujoin_ddp_report report_of(const ujoin_ddp *ddp) {
    ujoin_ddp_report report{};
    report.size = sizeof report;
    EXPECT_EQ(ujoin_ddp_get_report(ddp, &report), UJOIN_OK) << ujoin_last_error();
    return report;
}

} // namespace ddp_kit
