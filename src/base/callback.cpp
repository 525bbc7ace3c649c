// SPDX-License-Identifier: Apache-2.0
#include "base/callback.hpp"
#include <cstdlib>
#include <memory>
#include <typeinfo>
#include <utility>

namespace ujoin {

std::string exception_text(const char *what) {
    const std::type_info *type = abi::__cxa_current_exception_type();
    int status = 0;
    const std::unique_ptr<char, void (*)(void *)> name(
        type ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr, std::free);
    return cat(name ? name.get() : "an exception", what && *what ? ": " : "", what ? what : "");
}

ujoin_status record_exception(const char *what) noexcept {
    try {
        return record(UJOIN_E_CALLBACK, "", exception_text(what).c_str());
    } catch (...) {
        return record(UJOIN_E_CALLBACK, "", "an exception");
    }
}

void end_user_data(ujoin_destroy_fn destroy, void *user_data) noexcept {
    if (!destroy) return;
    LastError kept = std::exchange(last_error(), {}); // the notice may run after a call that failed
    call_program([&] {
        destroy(user_data);
        return UJOIN_OK;
    });
    last_error() = std::move(kept);
}

} // namespace ujoin
