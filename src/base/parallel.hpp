// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>

namespace ujoin {

/// Threads that share the items of a loop. Kept apart from how they are made, so that loops need not know.
class Parallel {
  public:
    virtual ~Parallel() = default;
    virtual int threads() const = 0;

    /// Calls body(i) once for each i below `count`, in any order, on at most `most` threads, of which the caller is one.
    /// Returns when all calls have. Throws the first error of theirs; items that nobody had begun are left out then.
    template <class Body> void run(size_t count, size_t most, const Body &body) {
        run_items(
            count, most, [](const void *data, size_t item) { (*static_cast<const Body *>(data))(item); }, &body);
    }

  protected:
    using Call = void (*)(const void *data, size_t item);
    virtual void run_items(size_t count, size_t most, Call call, const void *data) = 0;
};

} // namespace ujoin
