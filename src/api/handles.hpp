// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "api/handle.hpp"
#include "ujoin.h"

namespace ujoin {
class Store;
class Group;
class Work;
class SharedMemory;
class Joinable;
class JoinContext;
class Ddp;
class Zero;
class State;
class ProcessContext;
namespace optim {
class Scaler;
}
} // namespace ujoin

// What the opaque types of ujoin.h are.
struct ujoin_store : ujoin::api::Handle<ujoin::Store> {
    using Handle::Handle;
};
struct ujoin_group : ujoin::api::Handle<ujoin::Group> {
    using Handle::Handle;
};
struct ujoin_work : ujoin::api::Handle<ujoin::Work> {
    using Handle::Handle;
};
struct ujoin_memory : ujoin::api::Handle<ujoin::SharedMemory> {
    using Handle::Handle;
};
struct ujoin_joinable : ujoin::api::Handle<ujoin::Joinable> {
    using Handle::Handle;
};
struct ujoin_ctx : ujoin::api::Handle<ujoin::JoinContext> {
    using Handle::Handle;
};
struct ujoin_state : ujoin::api::Handle<ujoin::State> {
    using Handle::Handle;
};
struct ujoin_scaler : ujoin::api::Handle<ujoin::optim::Scaler> {
    using Handle::Handle;
};
struct ujoin_pctx : ujoin::api::Handle<ujoin::ProcessContext> {
    using Handle::Handle;
};

// These two also lend the joinable that they are.
struct ujoin_ddp : ujoin::api::Handle<ujoin::Ddp> {
    ujoin_ddp(std::shared_ptr<ujoin::Ddp> o, std::shared_ptr<ujoin::Joinable> j)
        : Handle(std::move(o)), joinable(std::move(j)) {}
    ujoin_joinable joinable;
};
struct ujoin_zero : ujoin::api::Handle<ujoin::Zero> {
    ujoin_zero(std::shared_ptr<ujoin::Zero> o, std::shared_ptr<ujoin::Joinable> j)
        : Handle(std::move(o)), joinable(std::move(j)) {}
    ujoin_joinable joinable;
};
