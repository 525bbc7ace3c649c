// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "ddp/bucket.hpp"
#include <optional>
#include <vector>

namespace ujoin {

struct DdpConfig {
    std::vector<GradParam> params;
    std::vector<ujoin_buffer> buffers;
    ujoin_division division = UJOIN_DIVISION_INITIAL;
    ujoin_gradient_kind gradient_kind = UJOIN_GRADIENT_MEAN;
    bool to_owner = false; ///< the step of an optimizer sums the gradients
    bool find_unused = false;
    bool static_graph = false;
    bool bucket_view = false;
    bool buffer_broadcast = true;
    bool initial_broadcast = true;
    int32_t source_rank = 0;
    size_t first_bucket_bytes = size_t{1} << 20;
    size_t bucket_bytes = size_t{25} << 20;
    int64_t idle_timeout_ms = -1; ///< as Deadline::in takes it
    bool params_released = false; ///< a parameter is not read any more once its gradient is ready

    /// Parameters may be unused: which ones is agreed on.
    bool finds_unused() const { return find_unused || static_graph; }
    /// The order of a dynamic graph's gradients says nothing of the next iteration's.
    bool may_rebuild() const { return !to_owner && (!find_unused || static_graph); }
};

/// Compares the ranks' configurations. `local`: what is wrong with this rank's own; it is told to the others, so that every
/// rank fails if one does. UJOIN_E_MISMATCH names the first difference and each rank's value.
void agree_on_config(Group &group, const DdpConfig &config, const std::optional<Error> &local);

} // namespace ujoin
