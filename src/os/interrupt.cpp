// SPDX-License-Identifier: Apache-2.0
#include "os/interrupt.hpp"
#include "base/callback.hpp"
#include "base/error.hpp"
#include <memory>
#include <mutex>

namespace ujoin::os {
namespace {

struct Check {
    ujoin_call_fn fn = nullptr;
    void *user_data = nullptr;
    ujoin_destroy_fn destroy = nullptr;
    Check() = default;
    Check(const Check &) = delete;
    Check &operator=(const Check &) = delete;
    ~Check() { end_user_data(destroy, user_data); }
};

std::mutex g_mutex;

/// A thread inside keeps its check alive. Never destroyed: threads may still wait when the process exits.
std::shared_ptr<const Check> &current() {
    static auto *check = new std::shared_ptr<const Check>;
    return *check;
}

} // namespace

void check_interrupt() {
    std::shared_ptr<const Check> check;
    {
        std::scoped_lock lock(g_mutex);
        check = current();
    }
    if (!check) return;
    if (const ujoin_status status = call_program([&] { return check->fn(check->user_data); }); status < 0) {
        const std::string cause = last_error().text;
        fail(UJOIN_E_CALLBACK, "the interrupt check ended the wait", cause.empty() ? "" : ": ", cause);
    }
}

bool has_interrupt_check() {
    std::scoped_lock lock(g_mutex);
    return current() != nullptr;
}

void set_interrupt_check(ujoin_call_fn fn, void *user_data, ujoin_destroy_fn destroy) {
    std::shared_ptr<Check> next;
    if (fn) {
        next = std::make_shared<Check>();
        next->fn = fn;
        next->user_data = user_data;
        next->destroy = destroy;
    }
    std::shared_ptr<const Check> old = next;
    {
        std::scoped_lock lock(g_mutex);
        current().swap(old);
    }
    if (!fn) end_user_data(destroy, user_data); // given with nothing to run: not needed ever
}

} // namespace ujoin::os
