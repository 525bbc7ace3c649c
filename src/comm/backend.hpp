// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "comm/board.hpp"
#include "comm/op.hpp"
#include "os/fd.hpp"
#include "os/health.hpp"
#include <string>
#include <vector>

namespace ujoin {

/// The seam under a group: one rank's end of a set of ranks that communicate. Calls come from one thread at a time, except
/// abort. Every rank issues the same operations in the same order.
class Backend {
  public:
    virtual ~Backend() = default;
    virtual const char *name() const = 0;

    /// Moves the operation on as far as it goes without waiting; true = complete.
    virtual bool advance(OpArgs &op) = 0;
    /// Completes the operation; false = the caller's `patience` ended first, and nothing is lost. Throws UJOIN_E_TIMEOUT past
    /// the operation's own deadline, _PEER_LOST, _ABORTED, _MISMATCH; this rank's failure mark is left then and the backend is
    /// broken. `interruptible`: on the caller's thread, which runs the interrupt check.
    virtual bool run(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible) = 0;
    /// Another rank has entered the operation after the last one that this rank entered: which? Not with work in flight.
    virtual bool pending(int32_t rank, OpArgs &out) = 0;
    /// Leaves this rank's mark and wakes everybody; from any thread. `left` = said goodbye, else gave up.
    virtual void abort(const std::string &reason, bool left) = 0;
    /// Tells the launcher from now on what it does. `health` outlives it.
    virtual void tell(os::Health &health) = 0;
    /// Every rank's descriptor of memory, by rank, for one of this rank's. Collective; not with work in flight.
    virtual std::vector<os::Fd> pass(const os::Fd &own, const Deadline &deadline) = 0;
    /// Words of join contexts, visible to all ranks.
    virtual Board &board() = 0;
};

} // namespace ujoin
