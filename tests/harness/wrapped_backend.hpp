// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "backends/builtin.hpp"
#include "comm/group.hpp"
#include <functional>
#include <memory>
#include <string>

namespace harness {

/// A backend that tells of each operation before it runs it. What `look` throws ends the operation, on all ranks.
class WrappedBackend final : public ujoin::Backend {
  public:
    using Look = std::function<void(const ujoin::OpArgs &op)>;
    WrappedBackend(std::unique_ptr<Backend> backend, Look look) : backend_(std::move(backend)), look_(std::move(look)) {}

    const char *name() const override { return backend_->name(); }
    bool advance(ujoin::OpArgs &op) override { return backend_->advance(op); }
    bool run(ujoin::OpArgs &op, const ujoin::Deadline &deadline, const ujoin::Deadline &patience,
             bool interruptible) override {
        try {
            look_(op);
        } catch (const ujoin::Error &error) {
            backend_->abort(error.text(), false);
            throw;
        }
        return backend_->run(op, deadline, patience, interruptible);
    }
    bool pending(int32_t rank, ujoin::OpArgs &out) override { return backend_->pending(rank, out); }
    void abort(const std::string &reason, bool left) override { backend_->abort(reason, left); }
    void tell(ujoin::os::Health &health) override { backend_->tell(health); }
    std::vector<ujoin::os::Fd> pass(const ujoin::os::Fd &own, const ujoin::Deadline &deadline) override {
        return backend_->pass(own, deadline);
    }
    ujoin::Board &board() override { return backend_->board(); }

  private:
    std::unique_ptr<Backend> backend_;
    Look look_;
};

/// A rank's group over such a backend, which meets the others as "local" does.
inline std::shared_ptr<ujoin::Group> wrapped_group(const std::string &meeting, int32_t rank, int32_t size,
                                                   WrappedBackend::Look look) {
    ujoin::AttachRequest request;
    request.rank = rank;
    request.size = size;
    request.meeting = meeting;
    request.backend = "local";
    return std::make_shared<ujoin::Group>(
        std::make_unique<WrappedBackend>(ujoin::local_backend().attach(request), std::move(look)), rank, size,
        ujoin::HostPlace{rank, size}, ujoin::GroupConfig{});
}

} // namespace harness
