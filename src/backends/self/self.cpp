// SPDX-License-Identifier: Apache-2.0
#include "backends/builtin.hpp"
#include "comm/shared_backend.hpp"
#include <new>

namespace ujoin {
namespace {

std::string why_not(const RanksAre &ranks) { return ranks.size == 1 ? "" : "it is for one rank"; }

std::unique_ptr<Backend> attach(const AttachRequest & /*request*/) {
    const std::shared_ptr<void> memory(::operator new (RankArea::bytes(default_chunk), std::align_val_t{64}),
                                       [](void *p) { ::operator delete (p, std::align_val_t{64}); });
    SharedBackend::Parts parts;
    parts.name = "self";
    parts.areas = {new (memory.get()) RankArea};
    parts.keep_mapped = memory;
    return std::make_unique<SharedBackend>(std::move(parts));
}

} // namespace

BackendFactory self_backend() { return {"self", why_not, attach, "one rank"}; }

} // namespace ujoin
