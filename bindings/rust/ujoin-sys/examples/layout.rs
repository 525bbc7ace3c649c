// SPDX-License-Identifier: Apache-2.0
// Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file.
//! Prints sizes, alignments, offsets and values as this crate has them; the same program in C must print the same.
use std::mem::{align_of, offset_of, size_of};
use ujoin_sys::*;

fn field<T, F>(name: &str, offset: usize, _of: fn(&T) -> &F) {
    println!("field {name} {offset} {}", size_of::<F>());
}

fn kind<T>(name: &str) {
    println!("type {name} {} {}", size_of::<T>(), align_of::<T>());
}

fn main() {
    kind::<ujoin_status>("ujoin_status");
    kind::<ujoin_destroy_fn>("ujoin_destroy_fn");
    kind::<ujoin_call_fn>("ujoin_call_fn");
    kind::<ujoin_log_level>("ujoin_log_level");
    kind::<ujoin_log_fn>("ujoin_log_fn");
    kind::<ujoin_store_options>("ujoin_store_options");
    field("ujoin_store_options.size", offset_of!(ujoin_store_options, size), |s: &ujoin_store_options| &s.size);
    field("ujoin_store_options.secret", offset_of!(ujoin_store_options, secret), |s: &ujoin_store_options| &s.secret);
    field("ujoin_store_options.timeout_ms", offset_of!(ujoin_store_options, timeout_ms), |s: &ujoin_store_options| {
        &s.timeout_ms
    });
    field("ujoin_store_options.listen", offset_of!(ujoin_store_options, listen), |s: &ujoin_store_options| &s.listen);
    field("ujoin_store_options.reserved", offset_of!(ujoin_store_options, reserved), |s: &ujoin_store_options| {
        &s.reserved
    });
    kind::<ujoin_dtype>("ujoin_dtype");
    kind::<ujoin_device>("ujoin_device");
    kind::<ujoin_buffer>("ujoin_buffer");
    field("ujoin_buffer.data", offset_of!(ujoin_buffer, data), |s: &ujoin_buffer| &s.data);
    field("ujoin_buffer.count", offset_of!(ujoin_buffer, count), |s: &ujoin_buffer| &s.count);
    field("ujoin_buffer.dtype", offset_of!(ujoin_buffer, dtype), |s: &ujoin_buffer| &s.dtype);
    field("ujoin_buffer.device", offset_of!(ujoin_buffer, device), |s: &ujoin_buffer| &s.device);
    field("ujoin_buffer.device_index", offset_of!(ujoin_buffer, device_index), |s: &ujoin_buffer| &s.device_index);
    field("ujoin_buffer.reserved", offset_of!(ujoin_buffer, reserved), |s: &ujoin_buffer| &s.reserved);
    kind::<ujoin_const_buffer>("ujoin_const_buffer");
    field("ujoin_const_buffer.data", offset_of!(ujoin_const_buffer, data), |s: &ujoin_const_buffer| &s.data);
    field("ujoin_const_buffer.count", offset_of!(ujoin_const_buffer, count), |s: &ujoin_const_buffer| &s.count);
    field("ujoin_const_buffer.dtype", offset_of!(ujoin_const_buffer, dtype), |s: &ujoin_const_buffer| &s.dtype);
    field("ujoin_const_buffer.device", offset_of!(ujoin_const_buffer, device), |s: &ujoin_const_buffer| &s.device);
    field("ujoin_const_buffer.device_index", offset_of!(ujoin_const_buffer, device_index), |s: &ujoin_const_buffer| {
        &s.device_index
    });
    field("ujoin_const_buffer.reserved", offset_of!(ujoin_const_buffer, reserved), |s: &ujoin_const_buffer| {
        &s.reserved
    });
    kind::<ujoin_hyper>("ujoin_hyper");
    field("ujoin_hyper.name", offset_of!(ujoin_hyper, name), |s: &ujoin_hyper| &s.name);
    field("ujoin_hyper.value", offset_of!(ujoin_hyper, value), |s: &ujoin_hyper| &s.value);
    kind::<ujoin_param>("ujoin_param");
    field("ujoin_param.name", offset_of!(ujoin_param, name), |s: &ujoin_param| &s.name);
    field("ujoin_param.data", offset_of!(ujoin_param, data), |s: &ujoin_param| &s.data);
    field("ujoin_param.grad", offset_of!(ujoin_param, grad), |s: &ujoin_param| &s.grad);
    field("ujoin_param.count", offset_of!(ujoin_param, count), |s: &ujoin_param| &s.count);
    field("ujoin_param.dtype", offset_of!(ujoin_param, dtype), |s: &ujoin_param| &s.dtype);
    field("ujoin_param.grad_dtype", offset_of!(ujoin_param, grad_dtype), |s: &ujoin_param| &s.grad_dtype);
    field("ujoin_param.device", offset_of!(ujoin_param, device), |s: &ujoin_param| &s.device);
    field("ujoin_param.device_index", offset_of!(ujoin_param, device_index), |s: &ujoin_param| &s.device_index);
    field("ujoin_param.shape", offset_of!(ujoin_param, shape), |s: &ujoin_param| &s.shape);
    field("ujoin_param.ndim", offset_of!(ujoin_param, ndim), |s: &ujoin_param| &s.ndim);
    field("ujoin_param.flags", offset_of!(ujoin_param, flags), |s: &ujoin_param| &s.flags);
    field("ujoin_param.reserved", offset_of!(ujoin_param, reserved), |s: &ujoin_param| &s.reserved);
    kind::<ujoin_reduce>("ujoin_reduce");
    kind::<ujoin_op_kind>("ujoin_op_kind");
    kind::<ujoin_op>("ujoin_op");
    field("ujoin_op.size", offset_of!(ujoin_op, size), |s: &ujoin_op| &s.size);
    field("ujoin_op.kind", offset_of!(ujoin_op, kind), |s: &ujoin_op| &s.kind);
    field("ujoin_op.reduce", offset_of!(ujoin_op, reduce), |s: &ujoin_op| &s.reduce);
    field("ujoin_op.peer", offset_of!(ujoin_op, peer), |s: &ujoin_op| &s.peer);
    field("ujoin_op.reserved", offset_of!(ujoin_op, reserved), |s: &ujoin_op| &s.reserved);
    field("ujoin_op.send", offset_of!(ujoin_op, send), |s: &ujoin_op| &s.send);
    field("ujoin_op.recv", offset_of!(ujoin_op, recv), |s: &ujoin_op| &s.recv);
    field("ujoin_op.send_counts", offset_of!(ujoin_op, send_counts), |s: &ujoin_op| &s.send_counts);
    field("ujoin_op.recv_counts", offset_of!(ujoin_op, recv_counts), |s: &ujoin_op| &s.recv_counts);
    kind::<ujoin_op_options>("ujoin_op_options");
    field("ujoin_op_options.size", offset_of!(ujoin_op_options, size), |s: &ujoin_op_options| &s.size);
    field("ujoin_op_options.timeout_ms", offset_of!(ujoin_op_options, timeout_ms), |s: &ujoin_op_options| {
        &s.timeout_ms
    });
    field("ujoin_op_options.stream", offset_of!(ujoin_op_options, stream), |s: &ujoin_op_options| &s.stream);
    field("ujoin_op_options.release", offset_of!(ujoin_op_options, release), |s: &ujoin_op_options| &s.release);
    field("ujoin_op_options.release_data", offset_of!(ujoin_op_options, release_data), |s: &ujoin_op_options| {
        &s.release_data
    });
    kind::<ujoin_group_options>("ujoin_group_options");
    field("ujoin_group_options.size", offset_of!(ujoin_group_options, size), |s: &ujoin_group_options| &s.size);
    field("ujoin_group_options.rendezvous", offset_of!(ujoin_group_options, rendezvous), |s: &ujoin_group_options| {
        &s.rendezvous
    });
    field("ujoin_group_options.backend", offset_of!(ujoin_group_options, backend), |s: &ujoin_group_options| {
        &s.backend
    });
    field("ujoin_group_options.name", offset_of!(ujoin_group_options, name), |s: &ujoin_group_options| &s.name);
    field("ujoin_group_options.store", offset_of!(ujoin_group_options, store), |s: &ujoin_group_options| &s.store);
    field("ujoin_group_options.rank", offset_of!(ujoin_group_options, rank), |s: &ujoin_group_options| &s.rank);
    field("ujoin_group_options.world_size", offset_of!(ujoin_group_options, world_size), |s: &ujoin_group_options| {
        &s.world_size
    });
    field("ujoin_group_options.timeout_ms", offset_of!(ujoin_group_options, timeout_ms), |s: &ujoin_group_options| {
        &s.timeout_ms
    });
    field(
        "ujoin_group_options.rendezvous_timeout_ms",
        offset_of!(ujoin_group_options, rendezvous_timeout_ms),
        |s: &ujoin_group_options| &s.rendezvous_timeout_ms,
    );
    field(
        "ujoin_group_options.shadow_collectives",
        offset_of!(ujoin_group_options, shadow_collectives),
        |s: &ujoin_group_options| &s.shadow_collectives,
    );
    field("ujoin_group_options.threads", offset_of!(ujoin_group_options, threads), |s: &ujoin_group_options| {
        &s.threads
    });
    kind::<ujoin_group_info>("ujoin_group_info");
    field("ujoin_group_info.size", offset_of!(ujoin_group_info, size), |s: &ujoin_group_info| &s.size);
    field("ujoin_group_info.backend", offset_of!(ujoin_group_info, backend), |s: &ujoin_group_info| &s.backend);
    field("ujoin_group_info.rank", offset_of!(ujoin_group_info, rank), |s: &ujoin_group_info| &s.rank);
    field("ujoin_group_info.world_size", offset_of!(ujoin_group_info, world_size), |s: &ujoin_group_info| {
        &s.world_size
    });
    field("ujoin_group_info.local_rank", offset_of!(ujoin_group_info, local_rank), |s: &ujoin_group_info| {
        &s.local_rank
    });
    field("ujoin_group_info.local_size", offset_of!(ujoin_group_info, local_size), |s: &ujoin_group_info| {
        &s.local_size
    });
    field("ujoin_group_info.progress", offset_of!(ujoin_group_info, progress), |s: &ujoin_group_info| &s.progress);
    field("ujoin_group_info.threads", offset_of!(ujoin_group_info, threads), |s: &ujoin_group_info| &s.threads);
    kind::<ujoin_memory_options>("ujoin_memory_options");
    field("ujoin_memory_options.size", offset_of!(ujoin_memory_options, size), |s: &ujoin_memory_options| &s.size);
    field("ujoin_memory_options.device", offset_of!(ujoin_memory_options, device), |s: &ujoin_memory_options| {
        &s.device
    });
    field(
        "ujoin_memory_options.device_index",
        offset_of!(ujoin_memory_options, device_index),
        |s: &ujoin_memory_options| &s.device_index,
    );
    field(
        "ujoin_memory_options.one_per_host",
        offset_of!(ujoin_memory_options, one_per_host),
        |s: &ujoin_memory_options| &s.one_per_host,
    );
    field("ujoin_memory_options.reserved", offset_of!(ujoin_memory_options, reserved), |s: &ujoin_memory_options| {
        &s.reserved
    });
    kind::<ujoin_hook_args>("ujoin_hook_args");
    field("ujoin_hook_args.size", offset_of!(ujoin_hook_args, size), |s: &ujoin_hook_args| &s.size);
    field("ujoin_hook_args.joinable", offset_of!(ujoin_hook_args, joinable), |s: &ujoin_hook_args| &s.joinable);
    field("ujoin_hook_args.round", offset_of!(ujoin_hook_args, round), |s: &ujoin_hook_args| &s.round);
    field("ujoin_hook_args.active", offset_of!(ujoin_hook_args, active), |s: &ujoin_hook_args| &s.active);
    field("ujoin_hook_args.is_last_joiner", offset_of!(ujoin_hook_args, is_last_joiner), |s: &ujoin_hook_args| {
        &s.is_last_joiner
    });
    field(
        "ujoin_hook_args.authoritative_rank",
        offset_of!(ujoin_hook_args, authoritative_rank),
        |s: &ujoin_hook_args| &s.authoritative_rank,
    );
    field("ujoin_hook_args.reserved", offset_of!(ujoin_hook_args, reserved), |s: &ujoin_hook_args| &s.reserved);
    field("ujoin_hook_args.options", offset_of!(ujoin_hook_args, options), |s: &ujoin_hook_args| &s.options);
    field("ujoin_hook_args.option_count", offset_of!(ujoin_hook_args, option_count), |s: &ujoin_hook_args| {
        &s.option_count
    });
    kind::<ujoin_hook_fn>("ujoin_hook_fn");
    kind::<ujoin_hooks>("ujoin_hooks");
    field("ujoin_hooks.size", offset_of!(ujoin_hooks, size), |s: &ujoin_hooks| &s.size);
    field("ujoin_hooks.main_hook", offset_of!(ujoin_hooks, main_hook), |s: &ujoin_hooks| &s.main_hook);
    field("ujoin_hooks.post_hook", offset_of!(ujoin_hooks, post_hook), |s: &ujoin_hooks| &s.post_hook);
    field("ujoin_hooks.user_data", offset_of!(ujoin_hooks, user_data), |s: &ujoin_hooks| &s.user_data);
    field("ujoin_hooks.destroy", offset_of!(ujoin_hooks, destroy), |s: &ujoin_hooks| &s.destroy);
    field("ujoin_hooks.name", offset_of!(ujoin_hooks, name), |s: &ujoin_hooks| &s.name);
    field("ujoin_hooks.options", offset_of!(ujoin_hooks, options), |s: &ujoin_hooks| &s.options);
    field("ujoin_hooks.option_count", offset_of!(ujoin_hooks, option_count), |s: &ujoin_hooks| &s.option_count);
    field("ujoin_hooks.device", offset_of!(ujoin_hooks, device), |s: &ujoin_hooks| &s.device);
    field("ujoin_hooks.device_index", offset_of!(ujoin_hooks, device_index), |s: &ujoin_hooks| &s.device_index);
    kind::<ujoin_ctx_options>("ujoin_ctx_options");
    field("ujoin_ctx_options.size", offset_of!(ujoin_ctx_options, size), |s: &ujoin_ctx_options| &s.size);
    field(
        "ujoin_ctx_options.idle_timeout_ms",
        offset_of!(ujoin_ctx_options, idle_timeout_ms),
        |s: &ujoin_ctx_options| &s.idle_timeout_ms,
    );
    field(
        "ujoin_ctx_options.skew_warning_rounds",
        offset_of!(ujoin_ctx_options, skew_warning_rounds),
        |s: &ujoin_ctx_options| &s.skew_warning_rounds,
    );
    field("ujoin_ctx_options.hook_options", offset_of!(ujoin_ctx_options, hook_options), |s: &ujoin_ctx_options| {
        &s.hook_options
    });
    field(
        "ujoin_ctx_options.hook_option_count",
        offset_of!(ujoin_ctx_options, hook_option_count),
        |s: &ujoin_ctx_options| &s.hook_option_count,
    );
    field("ujoin_ctx_options.disabled", offset_of!(ujoin_ctx_options, disabled), |s: &ujoin_ctx_options| &s.disabled);
    field(
        "ujoin_ctx_options.throw_on_exhausted",
        offset_of!(ujoin_ctx_options, throw_on_exhausted),
        |s: &ujoin_ctx_options| &s.throw_on_exhausted,
    );
    field("ujoin_ctx_options.strict", offset_of!(ujoin_ctx_options, strict), |s: &ujoin_ctx_options| &s.strict);
    field("ujoin_ctx_options.reserved", offset_of!(ujoin_ctx_options, reserved), |s: &ujoin_ctx_options| &s.reserved);
    kind::<ujoin_ctx_report>("ujoin_ctx_report");
    field("ujoin_ctx_report.size", offset_of!(ujoin_ctx_report, size), |s: &ujoin_ctx_report| &s.size);
    field("ujoin_ctx_report.rounds", offset_of!(ujoin_ctx_report, rounds), |s: &ujoin_ctx_report| &s.rounds);
    field("ujoin_ctx_report.shadow_rounds", offset_of!(ujoin_ctx_report, shadow_rounds), |s: &ujoin_ctx_report| {
        &s.shadow_rounds
    });
    field("ujoin_ctx_report.shadow_uses", offset_of!(ujoin_ctx_report, shadow_uses), |s: &ujoin_ctx_report| {
        &s.shadow_uses
    });
    field("ujoin_ctx_report.shadow_us", offset_of!(ujoin_ctx_report, shadow_us), |s: &ujoin_ctx_report| &s.shadow_us);
    field("ujoin_ctx_report.wait_us", offset_of!(ujoin_ctx_report, wait_us), |s: &ujoin_ctx_report| &s.wait_us);
    field("ujoin_ctx_report.is_last_joiner", offset_of!(ujoin_ctx_report, is_last_joiner), |s: &ujoin_ctx_report| {
        &s.is_last_joiner
    });
    field(
        "ujoin_ctx_report.authoritative_rank",
        offset_of!(ujoin_ctx_report, authoritative_rank),
        |s: &ujoin_ctx_report| &s.authoritative_rank,
    );
    field("ujoin_ctx_report.joined", offset_of!(ujoin_ctx_report, joined), |s: &ujoin_ctx_report| &s.joined);
    field("ujoin_ctx_report.stopped", offset_of!(ujoin_ctx_report, stopped), |s: &ujoin_ctx_report| &s.stopped);
    kind::<ujoin_division>("ujoin_division");
    kind::<ujoin_gradient_kind>("ujoin_gradient_kind");
    kind::<ujoin_gradient_sync>("ujoin_gradient_sync");
    kind::<ujoin_comm_hook_kind>("ujoin_comm_hook_kind");
    kind::<ujoin_buffer_time>("ujoin_buffer_time");
    kind::<ujoin_ddp_options>("ujoin_ddp_options");
    field("ujoin_ddp_options.size", offset_of!(ujoin_ddp_options, size), |s: &ujoin_ddp_options| &s.size);
    field("ujoin_ddp_options.division", offset_of!(ujoin_ddp_options, division), |s: &ujoin_ddp_options| &s.division);
    field("ujoin_ddp_options.gradient_kind", offset_of!(ujoin_ddp_options, gradient_kind), |s: &ujoin_ddp_options| {
        &s.gradient_kind
    });
    field("ujoin_ddp_options.find_unused", offset_of!(ujoin_ddp_options, find_unused), |s: &ujoin_ddp_options| {
        &s.find_unused
    });
    field("ujoin_ddp_options.static_graph", offset_of!(ujoin_ddp_options, static_graph), |s: &ujoin_ddp_options| {
        &s.static_graph
    });
    field("ujoin_ddp_options.bucket_view", offset_of!(ujoin_ddp_options, bucket_view), |s: &ujoin_ddp_options| {
        &s.bucket_view
    });
    field(
        "ujoin_ddp_options.no_buffer_broadcast",
        offset_of!(ujoin_ddp_options, no_buffer_broadcast),
        |s: &ujoin_ddp_options| &s.no_buffer_broadcast,
    );
    field(
        "ujoin_ddp_options.no_initial_broadcast",
        offset_of!(ujoin_ddp_options, no_initial_broadcast),
        |s: &ujoin_ddp_options| &s.no_initial_broadcast,
    );
    field("ujoin_ddp_options.source_rank", offset_of!(ujoin_ddp_options, source_rank), |s: &ujoin_ddp_options| {
        &s.source_rank
    });
    field("ujoin_ddp_options.buffers", offset_of!(ujoin_ddp_options, buffers), |s: &ujoin_ddp_options| &s.buffers);
    field("ujoin_ddp_options.buffer_count", offset_of!(ujoin_ddp_options, buffer_count), |s: &ujoin_ddp_options| {
        &s.buffer_count
    });
    field(
        "ujoin_ddp_options.first_bucket_bytes",
        offset_of!(ujoin_ddp_options, first_bucket_bytes),
        |s: &ujoin_ddp_options| &s.first_bucket_bytes,
    );
    field("ujoin_ddp_options.bucket_bytes", offset_of!(ujoin_ddp_options, bucket_bytes), |s: &ujoin_ddp_options| {
        &s.bucket_bytes
    });
    field(
        "ujoin_ddp_options.idle_timeout_ms",
        offset_of!(ujoin_ddp_options, idle_timeout_ms),
        |s: &ujoin_ddp_options| &s.idle_timeout_ms,
    );
    field("ujoin_ddp_options.release", offset_of!(ujoin_ddp_options, release), |s: &ujoin_ddp_options| &s.release);
    field("ujoin_ddp_options.release_data", offset_of!(ujoin_ddp_options, release_data), |s: &ujoin_ddp_options| {
        &s.release_data
    });
    field("ujoin_ddp_options.gradient_sync", offset_of!(ujoin_ddp_options, gradient_sync), |s: &ujoin_ddp_options| {
        &s.gradient_sync
    });
    field(
        "ujoin_ddp_options.params_released_on_ready",
        offset_of!(ujoin_ddp_options, params_released_on_ready),
        |s: &ujoin_ddp_options| &s.params_released_on_ready,
    );
    kind::<ujoin_bucket>("ujoin_bucket");
    field("ujoin_bucket.size", offset_of!(ujoin_bucket, size), |s: &ujoin_bucket| &s.size);
    field("ujoin_bucket.group", offset_of!(ujoin_bucket, group), |s: &ujoin_bucket| &s.group);
    field("ujoin_bucket.buffer", offset_of!(ujoin_bucket, buffer), |s: &ujoin_bucket| &s.buffer);
    field("ujoin_bucket.params", offset_of!(ujoin_bucket, params), |s: &ujoin_bucket| &s.params);
    field("ujoin_bucket.offsets", offset_of!(ujoin_bucket, offsets), |s: &ujoin_bucket| &s.offsets);
    field("ujoin_bucket.param_count", offset_of!(ujoin_bucket, param_count), |s: &ujoin_bucket| &s.param_count);
    field("ujoin_bucket.divisor", offset_of!(ujoin_bucket, divisor), |s: &ujoin_bucket| &s.divisor);
    field("ujoin_bucket.iteration", offset_of!(ujoin_bucket, iteration), |s: &ujoin_bucket| &s.iteration);
    field("ujoin_bucket.index", offset_of!(ujoin_bucket, index), |s: &ujoin_bucket| &s.index);
    field("ujoin_bucket.is_last", offset_of!(ujoin_bucket, is_last), |s: &ujoin_bucket| &s.is_last);
    field("ujoin_bucket.is_shadow", offset_of!(ujoin_bucket, is_shadow), |s: &ujoin_bucket| &s.is_shadow);
    field("ujoin_bucket.source_rank", offset_of!(ujoin_bucket, source_rank), |s: &ujoin_bucket| &s.source_rank);
    kind::<ujoin_bucket_fn>("ujoin_bucket_fn");
    kind::<ujoin_comm_hook>("ujoin_comm_hook");
    field("ujoin_comm_hook.size", offset_of!(ujoin_comm_hook, size), |s: &ujoin_comm_hook| &s.size);
    field("ujoin_comm_hook.start", offset_of!(ujoin_comm_hook, start), |s: &ujoin_comm_hook| &s.start);
    field("ujoin_comm_hook.then", offset_of!(ujoin_comm_hook, then), |s: &ujoin_comm_hook| &s.then);
    field("ujoin_comm_hook.user_data", offset_of!(ujoin_comm_hook, user_data), |s: &ujoin_comm_hook| &s.user_data);
    field("ujoin_comm_hook.destroy", offset_of!(ujoin_comm_hook, destroy), |s: &ujoin_comm_hook| &s.destroy);
    field("ujoin_comm_hook.start_iteration", offset_of!(ujoin_comm_hook, start_iteration), |s: &ujoin_comm_hook| {
        &s.start_iteration
    });
    field("ujoin_comm_hook.kind", offset_of!(ujoin_comm_hook, kind), |s: &ujoin_comm_hook| &s.kind);
    field("ujoin_comm_hook.rank", offset_of!(ujoin_comm_hook, rank), |s: &ujoin_comm_hook| &s.rank);
    kind::<ujoin_ddp_report>("ujoin_ddp_report");
    field("ujoin_ddp_report.size", offset_of!(ujoin_ddp_report, size), |s: &ujoin_ddp_report| &s.size);
    field("ujoin_ddp_report.iterations", offset_of!(ujoin_ddp_report, iterations), |s: &ujoin_ddp_report| {
        &s.iterations
    });
    field("ujoin_ddp_report.divisor", offset_of!(ujoin_ddp_report, divisor), |s: &ujoin_ddp_report| &s.divisor);
    field("ujoin_ddp_report.samples", offset_of!(ujoin_ddp_report, samples), |s: &ujoin_ddp_report| &s.samples);
    field("ujoin_ddp_report.reduce_us", offset_of!(ujoin_ddp_report, reduce_us), |s: &ujoin_ddp_report| &s.reduce_us);
    field("ujoin_ddp_report.exposed_us", offset_of!(ujoin_ddp_report, exposed_us), |s: &ujoin_ddp_report| {
        &s.exposed_us
    });
    field("ujoin_ddp_report.bucket_count", offset_of!(ujoin_ddp_report, bucket_count), |s: &ujoin_ddp_report| {
        &s.bucket_count
    });
    field("ujoin_ddp_report.rebuilt", offset_of!(ujoin_ddp_report, rebuilt), |s: &ujoin_ddp_report| &s.rebuilt);
    field("ujoin_ddp_report.joined_uneven", offset_of!(ujoin_ddp_report, joined_uneven), |s: &ujoin_ddp_report| {
        &s.joined_uneven
    });
    kind::<ujoin_optimizer>("ujoin_optimizer");
    kind::<ujoin_partition>("ujoin_partition");
    kind::<ujoin_rule_args>("ujoin_rule_args");
    field("ujoin_rule_args.size", offset_of!(ujoin_rule_args, size), |s: &ujoin_rule_args| &s.size);
    field("ujoin_rule_args.name", offset_of!(ujoin_rule_args, name), |s: &ujoin_rule_args| &s.name);
    field("ujoin_rule_args.data", offset_of!(ujoin_rule_args, data), |s: &ujoin_rule_args| &s.data);
    field("ujoin_rule_args.grad", offset_of!(ujoin_rule_args, grad), |s: &ujoin_rule_args| &s.grad);
    field("ujoin_rule_args.state", offset_of!(ujoin_rule_args, state), |s: &ujoin_rule_args| &s.state);
    field("ujoin_rule_args.hyper", offset_of!(ujoin_rule_args, hyper), |s: &ujoin_rule_args| &s.hyper);
    field("ujoin_rule_args.shape", offset_of!(ujoin_rule_args, shape), |s: &ujoin_rule_args| &s.shape);
    field("ujoin_rule_args.count", offset_of!(ujoin_rule_args, count), |s: &ujoin_rule_args| &s.count);
    field("ujoin_rule_args.offset", offset_of!(ujoin_rule_args, offset), |s: &ujoin_rule_args| &s.offset);
    field("ujoin_rule_args.param", offset_of!(ujoin_rule_args, param), |s: &ujoin_rule_args| &s.param);
    field("ujoin_rule_args.step", offset_of!(ujoin_rule_args, step), |s: &ujoin_rule_args| &s.step);
    field("ujoin_rule_args.ndim", offset_of!(ujoin_rule_args, ndim), |s: &ujoin_rule_args| &s.ndim);
    field("ujoin_rule_args.group", offset_of!(ujoin_rule_args, group), |s: &ujoin_rule_args| &s.group);
    field("ujoin_rule_args.dtype", offset_of!(ujoin_rule_args, dtype), |s: &ujoin_rule_args| &s.dtype);
    field("ujoin_rule_args.reserved", offset_of!(ujoin_rule_args, reserved), |s: &ujoin_rule_args| &s.reserved);
    kind::<ujoin_rule_fn>("ujoin_rule_fn");
    kind::<ujoin_rule>("ujoin_rule");
    field("ujoin_rule.size", offset_of!(ujoin_rule, size), |s: &ujoin_rule| &s.size);
    field("ujoin_rule.name", offset_of!(ujoin_rule, name), |s: &ujoin_rule| &s.name);
    field("ujoin_rule.step", offset_of!(ujoin_rule, step), |s: &ujoin_rule| &s.step);
    field("ujoin_rule.init", offset_of!(ujoin_rule, init), |s: &ujoin_rule| &s.init);
    field("ujoin_rule.state_names", offset_of!(ujoin_rule, state_names), |s: &ujoin_rule| &s.state_names);
    field("ujoin_rule.state_count", offset_of!(ujoin_rule, state_count), |s: &ujoin_rule| &s.state_count);
    field("ujoin_rule.hyper", offset_of!(ujoin_rule, hyper), |s: &ujoin_rule| &s.hyper);
    field("ujoin_rule.hyper_count", offset_of!(ujoin_rule, hyper_count), |s: &ujoin_rule| &s.hyper_count);
    field("ujoin_rule.user_data", offset_of!(ujoin_rule, user_data), |s: &ujoin_rule| &s.user_data);
    field("ujoin_rule.destroy", offset_of!(ujoin_rule, destroy), |s: &ujoin_rule| &s.destroy);
    field("ujoin_rule.per_tensor", offset_of!(ujoin_rule, per_tensor), |s: &ujoin_rule| &s.per_tensor);
    field("ujoin_rule.reserved", offset_of!(ujoin_rule, reserved), |s: &ujoin_rule| &s.reserved);
    kind::<ujoin_zero_options>("ujoin_zero_options");
    field("ujoin_zero_options.size", offset_of!(ujoin_zero_options, size), |s: &ujoin_zero_options| &s.size);
    field("ujoin_zero_options.hyper", offset_of!(ujoin_zero_options, hyper), |s: &ujoin_zero_options| &s.hyper);
    field("ujoin_zero_options.hyper_count", offset_of!(ujoin_zero_options, hyper_count), |s: &ujoin_zero_options| {
        &s.hyper_count
    });
    field(
        "ujoin_zero_options.idle_timeout_ms",
        offset_of!(ujoin_zero_options, idle_timeout_ms),
        |s: &ujoin_zero_options| &s.idle_timeout_ms,
    );
    field("ujoin_zero_options.release", offset_of!(ujoin_zero_options, release), |s: &ujoin_zero_options| &s.release);
    field("ujoin_zero_options.release_data", offset_of!(ujoin_zero_options, release_data), |s: &ujoin_zero_options| {
        &s.release_data
    });
    field("ujoin_zero_options.rule", offset_of!(ujoin_zero_options, rule), |s: &ujoin_zero_options| &s.rule);
    field("ujoin_zero_options.seed", offset_of!(ujoin_zero_options, seed), |s: &ujoin_zero_options| &s.seed);
    field(
        "ujoin_zero_options.balance_trainable",
        offset_of!(ujoin_zero_options, balance_trainable),
        |s: &ujoin_zero_options| &s.balance_trainable,
    );
    field(
        "ujoin_zero_options.no_master_copy",
        offset_of!(ujoin_zero_options, no_master_copy),
        |s: &ujoin_zero_options| &s.no_master_copy,
    );
    field(
        "ujoin_zero_options.stochastic_rounding",
        offset_of!(ujoin_zero_options, stochastic_rounding),
        |s: &ujoin_zero_options| &s.stochastic_rounding,
    );
    field("ujoin_zero_options.partition", offset_of!(ujoin_zero_options, partition), |s: &ujoin_zero_options| {
        &s.partition
    });
    field(
        "ujoin_zero_options.consolidate_timeout_ms",
        offset_of!(ujoin_zero_options, consolidate_timeout_ms),
        |s: &ujoin_zero_options| &s.consolidate_timeout_ms,
    );
    field("ujoin_zero_options.bucket_view", offset_of!(ujoin_zero_options, bucket_view), |s: &ujoin_zero_options| {
        &s.bucket_view
    });
    field("ujoin_zero_options.reserved", offset_of!(ujoin_zero_options, reserved), |s: &ujoin_zero_options| {
        &s.reserved
    });
    field("ujoin_zero_options.ddp", offset_of!(ujoin_zero_options, ddp), |s: &ujoin_zero_options| &s.ddp);
    kind::<ujoin_step_options>("ujoin_step_options");
    field("ujoin_step_options.size", offset_of!(ujoin_step_options, size), |s: &ujoin_step_options| &s.size);
    field("ujoin_step_options.closure", offset_of!(ujoin_step_options, closure), |s: &ujoin_step_options| &s.closure);
    field("ujoin_step_options.closure_data", offset_of!(ujoin_step_options, closure_data), |s: &ujoin_step_options| {
        &s.closure_data
    });
    field("ujoin_step_options.scaler", offset_of!(ujoin_step_options, scaler), |s: &ujoin_step_options| &s.scaler);
    field("ujoin_step_options.out_norm", offset_of!(ujoin_step_options, out_norm), |s: &ujoin_step_options| {
        &s.out_norm
    });
    field("ujoin_step_options.max_norm", offset_of!(ujoin_step_options, max_norm), |s: &ujoin_step_options| {
        &s.max_norm
    });
    field("ujoin_step_options.norm_type", offset_of!(ujoin_step_options, norm_type), |s: &ujoin_step_options| {
        &s.norm_type
    });
    field(
        "ujoin_step_options.skip_nonfinite",
        offset_of!(ujoin_step_options, skip_nonfinite),
        |s: &ujoin_step_options| &s.skip_nonfinite,
    );
    field("ujoin_step_options.reserved", offset_of!(ujoin_step_options, reserved), |s: &ujoin_step_options| {
        &s.reserved
    });
    kind::<ujoin_zero_memory>("ujoin_zero_memory");
    field("ujoin_zero_memory.size", offset_of!(ujoin_zero_memory, size), |s: &ujoin_zero_memory| &s.size);
    field("ujoin_zero_memory.parameters", offset_of!(ujoin_zero_memory, parameters), |s: &ujoin_zero_memory| {
        &s.parameters
    });
    field("ujoin_zero_memory.gradients", offset_of!(ujoin_zero_memory, gradients), |s: &ujoin_zero_memory| {
        &s.gradients
    });
    field("ujoin_zero_memory.state", offset_of!(ujoin_zero_memory, state), |s: &ujoin_zero_memory| &s.state);
    field("ujoin_zero_memory.buffers", offset_of!(ujoin_zero_memory, buffers), |s: &ujoin_zero_memory| &s.buffers);
    field("ujoin_zero_memory.full_state", offset_of!(ujoin_zero_memory, full_state), |s: &ujoin_zero_memory| {
        &s.full_state
    });
    kind::<ujoin_shard>("ujoin_shard");
    field("ujoin_shard.size", offset_of!(ujoin_shard, size), |s: &ujoin_shard| &s.size);
    field("ujoin_shard.param", offset_of!(ujoin_shard, param), |s: &ujoin_shard| &s.param);
    field("ujoin_shard.offset", offset_of!(ujoin_shard, offset), |s: &ujoin_shard| &s.offset);
    field("ujoin_shard.count", offset_of!(ujoin_shard, count), |s: &ujoin_shard| &s.count);
    field("ujoin_shard.rank", offset_of!(ujoin_shard, rank), |s: &ujoin_shard| &s.rank);
    field("ujoin_shard.group", offset_of!(ujoin_shard, group), |s: &ujoin_shard| &s.group);
    kind::<ujoin_save_options>("ujoin_save_options");
    field("ujoin_save_options.size", offset_of!(ujoin_save_options, size), |s: &ujoin_save_options| &s.size);
    field("ujoin_save_options.extra", offset_of!(ujoin_save_options, extra), |s: &ujoin_save_options| &s.extra);
    field("ujoin_save_options.parts", offset_of!(ujoin_save_options, parts), |s: &ujoin_save_options| &s.parts);
    field("ujoin_save_options.no_sync", offset_of!(ujoin_save_options, no_sync), |s: &ujoin_save_options| &s.no_sync);
    kind::<ujoin_item_kind>("ujoin_item_kind");
    kind::<ujoin_item_owner>("ujoin_item_owner");
    kind::<ujoin_item>("ujoin_item");
    field("ujoin_item.size", offset_of!(ujoin_item, size), |s: &ujoin_item| &s.size);
    field("ujoin_item.param", offset_of!(ujoin_item, param), |s: &ujoin_item| &s.param);
    field("ujoin_item.key", offset_of!(ujoin_item, key), |s: &ujoin_item| &s.key);
    field("ujoin_item.data", offset_of!(ujoin_item, data), |s: &ujoin_item| &s.data);
    field("ujoin_item.bytes", offset_of!(ujoin_item, bytes), |s: &ujoin_item| &s.bytes);
    field("ujoin_item.shape", offset_of!(ujoin_item, shape), |s: &ujoin_item| &s.shape);
    field("ujoin_item.number", offset_of!(ujoin_item, number), |s: &ujoin_item| &s.number);
    field("ujoin_item.kind", offset_of!(ujoin_item, kind), |s: &ujoin_item| &s.kind);
    field("ujoin_item.dtype", offset_of!(ujoin_item, dtype), |s: &ujoin_item| &s.dtype);
    field("ujoin_item.ndim", offset_of!(ujoin_item, ndim), |s: &ujoin_item| &s.ndim);
    field("ujoin_item.owner", offset_of!(ujoin_item, owner), |s: &ujoin_item| &s.owner);
    field("ujoin_item.group", offset_of!(ujoin_item, group), |s: &ujoin_item| &s.group);
    field("ujoin_item.reserved", offset_of!(ujoin_item, reserved), |s: &ujoin_item| &s.reserved);
    kind::<ujoin_schedule_kind>("ujoin_schedule_kind");
    kind::<ujoin_schedule_options>("ujoin_schedule_options");
    field("ujoin_schedule_options.size", offset_of!(ujoin_schedule_options, size), |s: &ujoin_schedule_options| {
        &s.size
    });
    field("ujoin_schedule_options.base", offset_of!(ujoin_schedule_options, base), |s: &ujoin_schedule_options| {
        &s.base
    });
    field(
        "ujoin_schedule_options.minimum",
        offset_of!(ujoin_schedule_options, minimum),
        |s: &ujoin_schedule_options| &s.minimum,
    );
    field("ujoin_schedule_options.gamma", offset_of!(ujoin_schedule_options, gamma), |s: &ujoin_schedule_options| {
        &s.gamma
    });
    field(
        "ujoin_schedule_options.warmup_steps",
        offset_of!(ujoin_schedule_options, warmup_steps),
        |s: &ujoin_schedule_options| &s.warmup_steps,
    );
    field(
        "ujoin_schedule_options.total_steps",
        offset_of!(ujoin_schedule_options, total_steps),
        |s: &ujoin_schedule_options| &s.total_steps,
    );
    field("ujoin_schedule_options.every", offset_of!(ujoin_schedule_options, every), |s: &ujoin_schedule_options| {
        &s.every
    });
    field("ujoin_schedule_options.kind", offset_of!(ujoin_schedule_options, kind), |s: &ujoin_schedule_options| {
        &s.kind
    });
    field(
        "ujoin_schedule_options.reserved",
        offset_of!(ujoin_schedule_options, reserved),
        |s: &ujoin_schedule_options| &s.reserved,
    );
    kind::<ujoin_scaler_options>("ujoin_scaler_options");
    field("ujoin_scaler_options.size", offset_of!(ujoin_scaler_options, size), |s: &ujoin_scaler_options| &s.size);
    field("ujoin_scaler_options.scale", offset_of!(ujoin_scaler_options, scale), |s: &ujoin_scaler_options| &s.scale);
    field("ujoin_scaler_options.growth", offset_of!(ujoin_scaler_options, growth), |s: &ujoin_scaler_options| {
        &s.growth
    });
    field("ujoin_scaler_options.backoff", offset_of!(ujoin_scaler_options, backoff), |s: &ujoin_scaler_options| {
        &s.backoff
    });
    field("ujoin_scaler_options.interval", offset_of!(ujoin_scaler_options, interval), |s: &ujoin_scaler_options| {
        &s.interval
    });
    field(
        "ujoin_scaler_options.good_steps",
        offset_of!(ujoin_scaler_options, good_steps),
        |s: &ujoin_scaler_options| &s.good_steps,
    );
    field("ujoin_scaler_options.skipped", offset_of!(ujoin_scaler_options, skipped), |s: &ujoin_scaler_options| {
        &s.skipped
    });
    kind::<ujoin_std>("ujoin_std");
    kind::<ujoin_start_method>("ujoin_start_method");
    kind::<ujoin_containment>("ujoin_containment");
    kind::<ujoin_console_policy>("ujoin_console_policy");
    kind::<ujoin_stdin>("ujoin_stdin");
    kind::<ujoin_binding>("ujoin_binding");
    kind::<ujoin_output_fn>("ujoin_output_fn");
    kind::<ujoin_pctx_spec>("ujoin_pctx_spec");
    field("ujoin_pctx_spec.size", offset_of!(ujoin_pctx_spec, size), |s: &ujoin_pctx_spec| &s.size);
    field("ujoin_pctx_spec.name", offset_of!(ujoin_pctx_spec, name), |s: &ujoin_pctx_spec| &s.name);
    field("ujoin_pctx_spec.program", offset_of!(ujoin_pctx_spec, program), |s: &ujoin_pctx_spec| &s.program);
    field("ujoin_pctx_spec.function", offset_of!(ujoin_pctx_spec, function), |s: &ujoin_pctx_spec| &s.function);
    field("ujoin_pctx_spec.args", offset_of!(ujoin_pctx_spec, args), |s: &ujoin_pctx_spec| &s.args);
    field("ujoin_pctx_spec.arg_count", offset_of!(ujoin_pctx_spec, arg_count), |s: &ujoin_pctx_spec| &s.arg_count);
    field("ujoin_pctx_spec.log_dir", offset_of!(ujoin_pctx_spec, log_dir), |s: &ujoin_pctx_spec| &s.log_dir);
    field("ujoin_pctx_spec.run_id", offset_of!(ujoin_pctx_spec, run_id), |s: &ujoin_pctx_spec| &s.run_id);
    field("ujoin_pctx_spec.prefix", offset_of!(ujoin_pctx_spec, prefix), |s: &ujoin_pctx_spec| &s.prefix);
    field("ujoin_pctx_spec.console_ranks", offset_of!(ujoin_pctx_spec, console_ranks), |s: &ujoin_pctx_spec| {
        &s.console_ranks
    });
    field(
        "ujoin_pctx_spec.console_rank_count",
        offset_of!(ujoin_pctx_spec, console_rank_count),
        |s: &ujoin_pctx_spec| &s.console_rank_count,
    );
    field("ujoin_pctx_spec.stdout_filters", offset_of!(ujoin_pctx_spec, stdout_filters), |s: &ujoin_pctx_spec| {
        &s.stdout_filters
    });
    field(
        "ujoin_pctx_spec.stdout_filter_count",
        offset_of!(ujoin_pctx_spec, stdout_filter_count),
        |s: &ujoin_pctx_spec| &s.stdout_filter_count,
    );
    field("ujoin_pctx_spec.stderr_filters", offset_of!(ujoin_pctx_spec, stderr_filters), |s: &ujoin_pctx_spec| {
        &s.stderr_filters
    });
    field(
        "ujoin_pctx_spec.stderr_filter_count",
        offset_of!(ujoin_pctx_spec, stderr_filter_count),
        |s: &ujoin_pctx_spec| &s.stderr_filter_count,
    );
    field("ujoin_pctx_spec.output", offset_of!(ujoin_pctx_spec, output), |s: &ujoin_pctx_spec| &s.output);
    field("ujoin_pctx_spec.user_data", offset_of!(ujoin_pctx_spec, user_data), |s: &ujoin_pctx_spec| &s.user_data);
    field("ujoin_pctx_spec.destroy", offset_of!(ujoin_pctx_spec, destroy), |s: &ujoin_pctx_spec| &s.destroy);
    field("ujoin_pctx_spec.grace_ms", offset_of!(ujoin_pctx_spec, grace_ms), |s: &ujoin_pctx_spec| &s.grace_ms);
    field("ujoin_pctx_spec.drain_ms", offset_of!(ujoin_pctx_spec, drain_ms), |s: &ujoin_pctx_spec| &s.drain_ms);
    field("ujoin_pctx_spec.partial_line_ms", offset_of!(ujoin_pctx_spec, partial_line_ms), |s: &ujoin_pctx_spec| {
        &s.partial_line_ms
    });
    field("ujoin_pctx_spec.rotate_bytes", offset_of!(ujoin_pctx_spec, rotate_bytes), |s: &ujoin_pctx_spec| {
        &s.rotate_bytes
    });
    field("ujoin_pctx_spec.nprocs", offset_of!(ujoin_pctx_spec, nprocs), |s: &ujoin_pctx_spec| &s.nprocs);
    field("ujoin_pctx_spec.first_rank", offset_of!(ujoin_pctx_spec, first_rank), |s: &ujoin_pctx_spec| &s.first_rank);
    field("ujoin_pctx_spec.restart_count", offset_of!(ujoin_pctx_spec, restart_count), |s: &ujoin_pctx_spec| {
        &s.restart_count
    });
    field("ujoin_pctx_spec.redirects", offset_of!(ujoin_pctx_spec, redirects), |s: &ujoin_pctx_spec| &s.redirects);
    field("ujoin_pctx_spec.tee", offset_of!(ujoin_pctx_spec, tee), |s: &ujoin_pctx_spec| &s.tee);
    field("ujoin_pctx_spec.start_method", offset_of!(ujoin_pctx_spec, start_method), |s: &ujoin_pctx_spec| {
        &s.start_method
    });
    field("ujoin_pctx_spec.containment", offset_of!(ujoin_pctx_spec, containment), |s: &ujoin_pctx_spec| {
        &s.containment
    });
    field("ujoin_pctx_spec.console", offset_of!(ujoin_pctx_spec, console), |s: &ujoin_pctx_spec| &s.console);
    field("ujoin_pctx_spec.binding", offset_of!(ujoin_pctx_spec, binding), |s: &ujoin_pctx_spec| &s.binding);
    field("ujoin_pctx_spec.no_error_file", offset_of!(ujoin_pctx_spec, no_error_file), |s: &ujoin_pctx_spec| {
        &s.no_error_file
    });
    field("ujoin_pctx_spec.same_session", offset_of!(ujoin_pctx_spec, same_session), |s: &ujoin_pctx_spec| {
        &s.same_session
    });
    field("ujoin_pctx_spec.no_colour", offset_of!(ujoin_pctx_spec, no_colour), |s: &ujoin_pctx_spec| &s.no_colour);
    field("ujoin_pctx_spec.rotate_keep", offset_of!(ujoin_pctx_spec, rotate_keep), |s: &ujoin_pctx_spec| {
        &s.rotate_keep
    });
    field("ujoin_pctx_spec.status_line", offset_of!(ujoin_pctx_spec, status_line), |s: &ujoin_pctx_spec| {
        &s.status_line
    });
    kind::<ujoin_worker_fd>("ujoin_worker_fd");
    field("ujoin_worker_fd.from", offset_of!(ujoin_worker_fd, from), |s: &ujoin_worker_fd| &s.from);
    field("ujoin_worker_fd.to", offset_of!(ujoin_worker_fd, to), |s: &ujoin_worker_fd| &s.to);
    kind::<ujoin_worker>("ujoin_worker");
    field("ujoin_worker.size", offset_of!(ujoin_worker, size), |s: &ujoin_worker| &s.size);
    field("ujoin_worker.program", offset_of!(ujoin_worker, program), |s: &ujoin_worker| &s.program);
    field("ujoin_worker.args", offset_of!(ujoin_worker, args), |s: &ujoin_worker| &s.args);
    field("ujoin_worker.arg_count", offset_of!(ujoin_worker, arg_count), |s: &ujoin_worker| &s.arg_count);
    field("ujoin_worker.directory", offset_of!(ujoin_worker, directory), |s: &ujoin_worker| &s.directory);
    field("ujoin_worker.input", offset_of!(ujoin_worker, input), |s: &ujoin_worker| &s.input);
    field("ujoin_worker.input_size", offset_of!(ujoin_worker, input_size), |s: &ujoin_worker| &s.input_size);
    field("ujoin_worker.stdin_data", offset_of!(ujoin_worker, stdin_data), |s: &ujoin_worker| &s.stdin_data);
    field("ujoin_worker.stdin_size", offset_of!(ujoin_worker, stdin_size), |s: &ujoin_worker| &s.stdin_size);
    field("ujoin_worker.stdin_path", offset_of!(ujoin_worker, stdin_path), |s: &ujoin_worker| &s.stdin_path);
    field("ujoin_worker.cpus", offset_of!(ujoin_worker, cpus), |s: &ujoin_worker| &s.cpus);
    field("ujoin_worker.cpu_count", offset_of!(ujoin_worker, cpu_count), |s: &ujoin_worker| &s.cpu_count);
    field("ujoin_worker.limits", offset_of!(ujoin_worker, limits), |s: &ujoin_worker| &s.limits);
    field("ujoin_worker.limit_count", offset_of!(ujoin_worker, limit_count), |s: &ujoin_worker| &s.limit_count);
    field("ujoin_worker.redirects", offset_of!(ujoin_worker, redirects), |s: &ujoin_worker| &s.redirects);
    field("ujoin_worker.tee", offset_of!(ujoin_worker, tee), |s: &ujoin_worker| &s.tee);
    field("ujoin_worker.stdin_from", offset_of!(ujoin_worker, stdin_from), |s: &ujoin_worker| &s.stdin_from);
    field("ujoin_worker.umask_set", offset_of!(ujoin_worker, umask_set), |s: &ujoin_worker| &s.umask_set);
    field("ujoin_worker.umask", offset_of!(ujoin_worker, umask), |s: &ujoin_worker| &s.umask);
    field("ujoin_worker.reserved", offset_of!(ujoin_worker, reserved), |s: &ujoin_worker| &s.reserved);
    field("ujoin_worker.fds", offset_of!(ujoin_worker, fds), |s: &ujoin_worker| &s.fds);
    field("ujoin_worker.fd_count", offset_of!(ujoin_worker, fd_count), |s: &ujoin_worker| &s.fd_count);
    kind::<ujoin_worker_state>("ujoin_worker_state");
    kind::<ujoin_worker_result>("ujoin_worker_result");
    field("ujoin_worker_result.size", offset_of!(ujoin_worker_result, size), |s: &ujoin_worker_result| &s.size);
    field("ujoin_worker_result.state", offset_of!(ujoin_worker_result, state), |s: &ujoin_worker_result| &s.state);
    field("ujoin_worker_result.rank", offset_of!(ujoin_worker_result, rank), |s: &ujoin_worker_result| &s.rank);
    field("ujoin_worker_result.pid", offset_of!(ujoin_worker_result, pid), |s: &ujoin_worker_result| &s.pid);
    field("ujoin_worker_result.exit_code", offset_of!(ujoin_worker_result, exit_code), |s: &ujoin_worker_result| {
        &s.exit_code
    });
    field("ujoin_worker_result.signal", offset_of!(ujoin_worker_result, signal), |s: &ujoin_worker_result| &s.signal);
    field("ujoin_worker_result.failed", offset_of!(ujoin_worker_result, failed), |s: &ujoin_worker_result| &s.failed);
    field("ujoin_worker_result.stopped", offset_of!(ujoin_worker_result, stopped), |s: &ujoin_worker_result| {
        &s.stopped
    });
    field(
        "ujoin_worker_result.containment",
        offset_of!(ujoin_worker_result, containment),
        |s: &ujoin_worker_result| &s.containment,
    );
    field("ujoin_worker_result.start_ns", offset_of!(ujoin_worker_result, start_ns), |s: &ujoin_worker_result| {
        &s.start_ns
    });
    field("ujoin_worker_result.end_ns", offset_of!(ujoin_worker_result, end_ns), |s: &ujoin_worker_result| &s.end_ns);
    field("ujoin_worker_result.failed_ns", offset_of!(ujoin_worker_result, failed_ns), |s: &ujoin_worker_result| {
        &s.failed_ns
    });
    field(
        "ujoin_worker_result.last_output_ns",
        offset_of!(ujoin_worker_result, last_output_ns),
        |s: &ujoin_worker_result| &s.last_output_ns,
    );
    field("ujoin_worker_result.user_us", offset_of!(ujoin_worker_result, user_us), |s: &ujoin_worker_result| {
        &s.user_us
    });
    field("ujoin_worker_result.system_us", offset_of!(ujoin_worker_result, system_us), |s: &ujoin_worker_result| {
        &s.system_us
    });
    field("ujoin_worker_result.peak_bytes", offset_of!(ujoin_worker_result, peak_bytes), |s: &ujoin_worker_result| {
        &s.peak_bytes
    });
    field(
        "ujoin_worker_result.stdout_bytes",
        offset_of!(ujoin_worker_result, stdout_bytes),
        |s: &ujoin_worker_result| &s.stdout_bytes,
    );
    field(
        "ujoin_worker_result.stderr_bytes",
        offset_of!(ujoin_worker_result, stderr_bytes),
        |s: &ujoin_worker_result| &s.stderr_bytes,
    );
    field(
        "ujoin_worker_result.dropped_lines",
        offset_of!(ujoin_worker_result, dropped_lines),
        |s: &ujoin_worker_result| &s.dropped_lines,
    );
    field("ujoin_worker_result.value", offset_of!(ujoin_worker_result, value), |s: &ujoin_worker_result| &s.value);
    field("ujoin_worker_result.value_size", offset_of!(ujoin_worker_result, value_size), |s: &ujoin_worker_result| {
        &s.value_size
    });
    field("ujoin_worker_result.message", offset_of!(ujoin_worker_result, message), |s: &ujoin_worker_result| {
        &s.message
    });
    field("ujoin_worker_result.traceback", offset_of!(ujoin_worker_result, traceback), |s: &ujoin_worker_result| {
        &s.traceback
    });
    field(
        "ujoin_worker_result.stdout_path",
        offset_of!(ujoin_worker_result, stdout_path),
        |s: &ujoin_worker_result| &s.stdout_path,
    );
    field(
        "ujoin_worker_result.stderr_path",
        offset_of!(ujoin_worker_result, stderr_path),
        |s: &ujoin_worker_result| &s.stderr_path,
    );
    field("ujoin_worker_result.error_path", offset_of!(ujoin_worker_result, error_path), |s: &ujoin_worker_result| {
        &s.error_path
    });
    kind::<ujoin_worker_health>("ujoin_worker_health");
    field("ujoin_worker_health.size", offset_of!(ujoin_worker_health, size), |s: &ujoin_worker_health| &s.size);
    field("ujoin_worker_health.sequence", offset_of!(ujoin_worker_health, sequence), |s: &ujoin_worker_health| {
        &s.sequence
    });
    field("ujoin_worker_health.round", offset_of!(ujoin_worker_health, round), |s: &ujoin_worker_health| &s.round);
    field("ujoin_worker_health.since_ns", offset_of!(ujoin_worker_health, since_ns), |s: &ujoin_worker_health| {
        &s.since_ns
    });
    field(
        "ujoin_worker_health.last_output_ns",
        offset_of!(ujoin_worker_health, last_output_ns),
        |s: &ujoin_worker_health| &s.last_output_ns,
    );
    field("ujoin_worker_health.missing", offset_of!(ujoin_worker_health, missing), |s: &ujoin_worker_health| {
        &s.missing
    });
    field(
        "ujoin_worker_health.missing_count",
        offset_of!(ujoin_worker_health, missing_count),
        |s: &ujoin_worker_health| &s.missing_count,
    );
    field("ujoin_worker_health.operation", offset_of!(ujoin_worker_health, operation), |s: &ujoin_worker_health| {
        &s.operation
    });
    field(
        "ujoin_worker_health.waiting_for",
        offset_of!(ujoin_worker_health, waiting_for),
        |s: &ujoin_worker_health| &s.waiting_for,
    );
    field("ujoin_worker_health.group", offset_of!(ujoin_worker_health, group), |s: &ujoin_worker_health| &s.group);
    field("ujoin_worker_health.text", offset_of!(ujoin_worker_health, text), |s: &ujoin_worker_health| &s.text);
    field("ujoin_worker_health.state", offset_of!(ujoin_worker_health, state), |s: &ujoin_worker_health| &s.state);
    field("ujoin_worker_health.rank", offset_of!(ujoin_worker_health, rank), |s: &ujoin_worker_health| &s.rank);
    field("ujoin_worker_health.pid", offset_of!(ujoin_worker_health, pid), |s: &ujoin_worker_health| &s.pid);
    field("ujoin_worker_health.group_pid", offset_of!(ujoin_worker_health, group_pid), |s: &ujoin_worker_health| {
        &s.group_pid
    });
    field("ujoin_worker_health.group_rank", offset_of!(ujoin_worker_health, group_rank), |s: &ujoin_worker_health| {
        &s.group_rank
    });
    field("ujoin_worker_health.group_size", offset_of!(ujoin_worker_health, group_size), |s: &ujoin_worker_health| {
        &s.group_size
    });
    field("ujoin_worker_health.groups", offset_of!(ujoin_worker_health, groups), |s: &ujoin_worker_health| &s.groups);
    field(
        "ujoin_worker_health.in_operation",
        offset_of!(ujoin_worker_health, in_operation),
        |s: &ujoin_worker_health| &s.in_operation,
    );
    field("ujoin_worker_health.in_context", offset_of!(ujoin_worker_health, in_context), |s: &ujoin_worker_health| {
        &s.in_context
    });
    field("ujoin_worker_health.joined", offset_of!(ujoin_worker_health, joined), |s: &ujoin_worker_health| &s.joined);
    field("ujoin_worker_health.broken", offset_of!(ujoin_worker_health, broken), |s: &ujoin_worker_health| &s.broken);
    field("ujoin_worker_health.reserved", offset_of!(ujoin_worker_health, reserved), |s: &ujoin_worker_health| {
        &s.reserved
    });
    kind::<ujoin_worker_args>("ujoin_worker_args");
    field("ujoin_worker_args.size", offset_of!(ujoin_worker_args, size), |s: &ujoin_worker_args| &s.size);
    field("ujoin_worker_args.args", offset_of!(ujoin_worker_args, args), |s: &ujoin_worker_args| &s.args);
    field("ujoin_worker_args.arg_count", offset_of!(ujoin_worker_args, arg_count), |s: &ujoin_worker_args| {
        &s.arg_count
    });
    field("ujoin_worker_args.input", offset_of!(ujoin_worker_args, input), |s: &ujoin_worker_args| &s.input);
    field("ujoin_worker_args.input_size", offset_of!(ujoin_worker_args, input_size), |s: &ujoin_worker_args| {
        &s.input_size
    });
    field("ujoin_worker_args.rank", offset_of!(ujoin_worker_args, rank), |s: &ujoin_worker_args| &s.rank);
    field("ujoin_worker_args.nprocs", offset_of!(ujoin_worker_args, nprocs), |s: &ujoin_worker_args| &s.nprocs);
    kind::<ujoin_worker_fn>("ujoin_worker_fn");
    println!("value UJOIN_VERSION_MAJOR {}", UJOIN_VERSION_MAJOR);
    println!("value UJOIN_VERSION_MINOR {}", UJOIN_VERSION_MINOR);
    println!("value UJOIN_VERSION_PATCH {}", UJOIN_VERSION_PATCH);
    println!("value UJOIN_ABI_VERSION {}", UJOIN_ABI_VERSION);
    println!("value UJOIN_OK {}", UJOIN_OK);
    println!("value UJOIN_PENDING {}", UJOIN_PENDING);
    println!("value UJOIN_JOINED {}", UJOIN_JOINED);
    println!("value UJOIN_SKIPPED {}", UJOIN_SKIPPED);
    println!("value UJOIN_DONE {}", UJOIN_DONE);
    println!("value UJOIN_E_INVALID {}", UJOIN_E_INVALID);
    println!("value UJOIN_E_STATE {}", UJOIN_E_STATE);
    println!("value UJOIN_E_UNSUPPORTED {}", UJOIN_E_UNSUPPORTED);
    println!("value UJOIN_E_NO_MEMORY {}", UJOIN_E_NO_MEMORY);
    println!("value UJOIN_E_TIMEOUT {}", UJOIN_E_TIMEOUT);
    println!("value UJOIN_E_ABORTED {}", UJOIN_E_ABORTED);
    println!("value UJOIN_E_PEER_LOST {}", UJOIN_E_PEER_LOST);
    println!("value UJOIN_E_MISMATCH {}", UJOIN_E_MISMATCH);
    println!("value UJOIN_E_EXHAUSTED {}", UJOIN_E_EXHAUSTED);
    println!("value UJOIN_E_SYSTEM {}", UJOIN_E_SYSTEM);
    println!("value UJOIN_E_BACKEND {}", UJOIN_E_BACKEND);
    println!("value UJOIN_E_CALLBACK {}", UJOIN_E_CALLBACK);
    println!("value UJOIN_E_CHILD_FAILED {}", UJOIN_E_CHILD_FAILED);
    println!("value UJOIN_E_INTERNAL {}", UJOIN_E_INTERNAL);
    println!("value UJOIN_NEVER {}", UJOIN_NEVER);
    println!("value UJOIN_NOW {}", UJOIN_NOW);
    println!("value UJOIN_LOG_ERROR {}", UJOIN_LOG_ERROR);
    println!("value UJOIN_LOG_WARNING {}", UJOIN_LOG_WARNING);
    println!("value UJOIN_LOG_INFO {}", UJOIN_LOG_INFO);
    println!("value UJOIN_LOG_DEBUG {}", UJOIN_LOG_DEBUG);
    println!("value UJOIN_F32 {}", UJOIN_F32);
    println!("value UJOIN_F64 {}", UJOIN_F64);
    println!("value UJOIN_F16 {}", UJOIN_F16);
    println!("value UJOIN_BF16 {}", UJOIN_BF16);
    println!("value UJOIN_I32 {}", UJOIN_I32);
    println!("value UJOIN_I64 {}", UJOIN_I64);
    println!("value UJOIN_U8 {}", UJOIN_U8);
    println!("value UJOIN_DEVICE_HOST {}", UJOIN_DEVICE_HOST);
    println!("value UJOIN_DEVICE_CUDA {}", UJOIN_DEVICE_CUDA);
    println!("value UJOIN_PARAM_FROZEN {}", UJOIN_PARAM_FROZEN);
    println!("value UJOIN_PARAM_IGNORED {}", UJOIN_PARAM_IGNORED);
    println!("value UJOIN_SUM {}", UJOIN_SUM);
    println!("value UJOIN_AVG {}", UJOIN_AVG);
    println!("value UJOIN_MIN {}", UJOIN_MIN);
    println!("value UJOIN_MAX {}", UJOIN_MAX);
    println!("value UJOIN_PROD {}", UJOIN_PROD);
    println!("value UJOIN_OP_BARRIER {}", UJOIN_OP_BARRIER);
    println!("value UJOIN_OP_ALL_REDUCE {}", UJOIN_OP_ALL_REDUCE);
    println!("value UJOIN_OP_REDUCE {}", UJOIN_OP_REDUCE);
    println!("value UJOIN_OP_BROADCAST {}", UJOIN_OP_BROADCAST);
    println!("value UJOIN_OP_ALL_GATHER {}", UJOIN_OP_ALL_GATHER);
    println!("value UJOIN_OP_GATHER {}", UJOIN_OP_GATHER);
    println!("value UJOIN_OP_SCATTER {}", UJOIN_OP_SCATTER);
    println!("value UJOIN_OP_REDUCE_SCATTER {}", UJOIN_OP_REDUCE_SCATTER);
    println!("value UJOIN_OP_ALL_TO_ALL {}", UJOIN_OP_ALL_TO_ALL);
    println!("value UJOIN_OP_SEND {}", UJOIN_OP_SEND);
    println!("value UJOIN_OP_RECV {}", UJOIN_OP_RECV);
    println!("value UJOIN_DIVISION_INITIAL {}", UJOIN_DIVISION_INITIAL);
    println!("value UJOIN_DIVISION_ACTIVE {}", UJOIN_DIVISION_ACTIVE);
    println!("value UJOIN_DIVISION_SAMPLES {}", UJOIN_DIVISION_SAMPLES);
    println!("value UJOIN_GRADIENT_MEAN {}", UJOIN_GRADIENT_MEAN);
    println!("value UJOIN_GRADIENT_SUM {}", UJOIN_GRADIENT_SUM);
    println!("value UJOIN_GRADIENT_SYNC_ALL {}", UJOIN_GRADIENT_SYNC_ALL);
    println!("value UJOIN_GRADIENT_SYNC_TO_OWNER {}", UJOIN_GRADIENT_SYNC_TO_OWNER);
    println!("value UJOIN_COMM_HOOK_ALL_REDUCE {}", UJOIN_COMM_HOOK_ALL_REDUCE);
    println!("value UJOIN_COMM_HOOK_F16 {}", UJOIN_COMM_HOOK_F16);
    println!("value UJOIN_COMM_HOOK_BF16 {}", UJOIN_COMM_HOOK_BF16);
    println!("value UJOIN_COMM_HOOK_LOW_RANK {}", UJOIN_COMM_HOOK_LOW_RANK);
    println!("value UJOIN_COMM_HOOK_CUSTOM {}", UJOIN_COMM_HOOK_CUSTOM);
    println!("value UJOIN_BUFFER_AFTER_FORWARD {}", UJOIN_BUFFER_AFTER_FORWARD);
    println!("value UJOIN_BUFFER_BEFORE_FORWARD {}", UJOIN_BUFFER_BEFORE_FORWARD);
    println!("value UJOIN_OPTIMIZER_CUSTOM {}", UJOIN_OPTIMIZER_CUSTOM);
    println!("value UJOIN_OPTIMIZER_SGD {}", UJOIN_OPTIMIZER_SGD);
    println!("value UJOIN_OPTIMIZER_ADAM {}", UJOIN_OPTIMIZER_ADAM);
    println!("value UJOIN_OPTIMIZER_ADAMW {}", UJOIN_OPTIMIZER_ADAMW);
    println!("value UJOIN_OPTIMIZER_ADAGRAD {}", UJOIN_OPTIMIZER_ADAGRAD);
    println!("value UJOIN_OPTIMIZER_RMSPROP {}", UJOIN_OPTIMIZER_RMSPROP);
    println!("value UJOIN_OPTIMIZER_ADADELTA {}", UJOIN_OPTIMIZER_ADADELTA);
    println!("value UJOIN_OPTIMIZER_ADAMAX {}", UJOIN_OPTIMIZER_ADAMAX);
    println!("value UJOIN_OPTIMIZER_NADAM {}", UJOIN_OPTIMIZER_NADAM);
    println!("value UJOIN_OPTIMIZER_RADAM {}", UJOIN_OPTIMIZER_RADAM);
    println!("value UJOIN_OPTIMIZER_RPROP {}", UJOIN_OPTIMIZER_RPROP);
    println!("value UJOIN_OPTIMIZER_LAMB {}", UJOIN_OPTIMIZER_LAMB);
    println!("value UJOIN_OPTIMIZER_LION {}", UJOIN_OPTIMIZER_LION);
    println!("value UJOIN_PARTITION_PARAMETERS {}", UJOIN_PARTITION_PARAMETERS);
    println!("value UJOIN_PARTITION_ELEMENTS {}", UJOIN_PARTITION_ELEMENTS);
    println!("value UJOIN_SAVE_STATE {}", UJOIN_SAVE_STATE);
    println!("value UJOIN_SAVE_PARAMETERS {}", UJOIN_SAVE_PARAMETERS);
    println!("value UJOIN_ITEM_TENSOR {}", UJOIN_ITEM_TENSOR);
    println!("value UJOIN_ITEM_NUMBER {}", UJOIN_ITEM_NUMBER);
    println!("value UJOIN_ITEM_TEXT {}", UJOIN_ITEM_TEXT);
    println!("value UJOIN_ITEM_BYTES {}", UJOIN_ITEM_BYTES);
    println!("value UJOIN_ITEM_OF_PROGRAM {}", UJOIN_ITEM_OF_PROGRAM);
    println!("value UJOIN_ITEM_OF_PARAM {}", UJOIN_ITEM_OF_PARAM);
    println!("value UJOIN_ITEM_OF_GROUP {}", UJOIN_ITEM_OF_GROUP);
    println!("value UJOIN_SCHEDULE_CONSTANT {}", UJOIN_SCHEDULE_CONSTANT);
    println!("value UJOIN_SCHEDULE_COSINE {}", UJOIN_SCHEDULE_COSINE);
    println!("value UJOIN_SCHEDULE_LINEAR {}", UJOIN_SCHEDULE_LINEAR);
    println!("value UJOIN_SCHEDULE_STEP {}", UJOIN_SCHEDULE_STEP);
    println!("value UJOIN_STD_NONE {}", UJOIN_STD_NONE);
    println!("value UJOIN_STD_OUT {}", UJOIN_STD_OUT);
    println!("value UJOIN_STD_ERR {}", UJOIN_STD_ERR);
    println!("value UJOIN_STD_ALL {}", UJOIN_STD_ALL);
    println!("value UJOIN_STD_SET {}", UJOIN_STD_SET);
    println!("value UJOIN_START_SPAWN {}", UJOIN_START_SPAWN);
    println!("value UJOIN_START_FORK {}", UJOIN_START_FORK);
    println!("value UJOIN_START_FORKSERVER {}", UJOIN_START_FORKSERVER);
    println!("value UJOIN_CONTAINMENT_GROUP {}", UJOIN_CONTAINMENT_GROUP);
    println!("value UJOIN_CONTAINMENT_WARDEN {}", UJOIN_CONTAINMENT_WARDEN);
    println!("value UJOIN_CONTAINMENT_CGROUP {}", UJOIN_CONTAINMENT_CGROUP);
    println!("value UJOIN_CONTAINMENT_BEST {}", UJOIN_CONTAINMENT_BEST);
    println!("value UJOIN_CONSOLE_BLOCK {}", UJOIN_CONSOLE_BLOCK);
    println!("value UJOIN_CONSOLE_DROP {}", UJOIN_CONSOLE_DROP);
    println!("value UJOIN_CONSOLE_SPILL {}", UJOIN_CONSOLE_SPILL);
    println!("value UJOIN_STDIN_NULL {}", UJOIN_STDIN_NULL);
    println!("value UJOIN_STDIN_INHERIT {}", UJOIN_STDIN_INHERIT);
    println!("value UJOIN_STDIN_BYTES {}", UJOIN_STDIN_BYTES);
    println!("value UJOIN_STDIN_FILE {}", UJOIN_STDIN_FILE);
    println!("value UJOIN_BINDING_NONE {}", UJOIN_BINDING_NONE);
    println!("value UJOIN_BINDING_SPREAD {}", UJOIN_BINDING_SPREAD);
    println!("value UJOIN_BINDING_COMPACT {}", UJOIN_BINDING_COMPACT);
    println!("value UJOIN_BINDING_LIST {}", UJOIN_BINDING_LIST);
    println!("value UJOIN_WORKER_CREATED {}", UJOIN_WORKER_CREATED);
    println!("value UJOIN_WORKER_RUNNING {}", UJOIN_WORKER_RUNNING);
    println!("value UJOIN_WORKER_EXITED {}", UJOIN_WORKER_EXITED);
    println!("value UJOIN_WORKER_SIGNALED {}", UJOIN_WORKER_SIGNALED);
    println!("value UJOIN_WORKER_UNKNOWN {}", UJOIN_WORKER_UNKNOWN);
    println!("value UJOIN_WORKER_UNKILLABLE {}", UJOIN_WORKER_UNKILLABLE);
    println!("value UJOIN_WORKER_NO_VALUE {}", UJOIN_WORKER_NO_VALUE);
}
