// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include "os/fork.hpp"
#include <memory>
#include <mutex>
#include <vector>

namespace ujoin::api {

/// What an opaque pointer of the API points to: one strong reference to an object, the kind of handle, and the process
/// that made it. `struct ujoin_group : ujoin::api::Handle<ujoin::Group> { using Handle::Handle; };`
template <class T> struct Handle {
    explicit Handle(std::shared_ptr<T> o) : object(std::move(o)) {}
    std::shared_ptr<T> object;
    uint64_t generation = os::fork_generation();
};

/// The object behind a handle. UJOIN_E_INVALID for NULL, UJOIN_E_STATE in a forked child.
template <class T> const std::shared_ptr<T> &use(const Handle<T> *handle, const char *what) {
    if (!handle) fail_invalid(what, " is NULL");
    if (handle->generation != os::fork_generation())
        fail_state(what, " was made before this process was forked; make a new one in the child");
    return handle->object;
}

/// Deletes a handle. In a forked child the object is kept (its threads and peers are the parent's), only the handle goes.
template <class H> void drop(H *handle) noexcept {
    if (!handle) return;
    if (handle->generation != os::fork_generation()) {
        try {
            static std::mutex mutex;
            static auto *kept = new std::vector<std::shared_ptr<void>>; // reachable, hence no leak, and never destroyed
            std::scoped_lock lock(mutex);
            kept->push_back(std::move(handle->object));
        } catch (...) {
            return; // no memory to keep it: leave the handle as it is
        }
    }
    delete handle;
}

/// Writes a new handle to `out`.
template <class H, class T> void give(H **out, std::shared_ptr<T> object) { *out = new H(std::move(object)); }
/// The same for what begins when it is made: the handle is there before, so that nothing is in flight if it cannot be.
template <class H, class Begin> void give_begun(H **out, Begin &&begin) {
    auto handle = std::make_unique<H>(nullptr);
    handle->object = begin();
    *out = handle.release();
}
/// An out parameter: not NULL, and NULL until the call has succeeded.
template <class H> void begin_out(H **out, const char *what = "out") {
    if (!out) fail_invalid(what, " is NULL");
    *out = nullptr;
}

} // namespace ujoin::api
