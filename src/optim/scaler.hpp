// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"

namespace ujoin::optim {

/// A dynamic loss scale: lowered by each step whose gradients overflow, raised after a number of good ones.
class Scaler {
  public:
    /// Zeros stand for the defaults. UJOIN_E_INVALID names the field that makes no sense.
    explicit Scaler(const ujoin_scaler_options &options);
    double scale() const { return state_.scale; }
    const ujoin_scaler_options &state() const { return state_; }
    void good_step();
    void skipped_step();

  private:
    ujoin_scaler_options state_;
};

} // namespace ujoin::optim
