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
    field("ujoin_group_info.reserved", offset_of!(ujoin_group_info, reserved), |s: &ujoin_group_info| &s.reserved);
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
    kind::<ujoin_ddp_options>("ujoin_ddp_options");
    field("ujoin_ddp_options.size", offset_of!(ujoin_ddp_options, size), |s: &ujoin_ddp_options| &s.size);
    field("ujoin_ddp_options.division", offset_of!(ujoin_ddp_options, division), |s: &ujoin_ddp_options| &s.division);
    field("ujoin_ddp_options.gradient_kind", offset_of!(ujoin_ddp_options, gradient_kind), |s: &ujoin_ddp_options| {
        &s.gradient_kind
    });
    field(
        "ujoin_ddp_options.no_initial_broadcast",
        offset_of!(ujoin_ddp_options, no_initial_broadcast),
        |s: &ujoin_ddp_options| &s.no_initial_broadcast,
    );
    field("ujoin_ddp_options.source_rank", offset_of!(ujoin_ddp_options, source_rank), |s: &ujoin_ddp_options| {
        &s.source_rank
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
    field("ujoin_ddp_report.joined_uneven", offset_of!(ujoin_ddp_report, joined_uneven), |s: &ujoin_ddp_report| {
        &s.joined_uneven
    });
    field("ujoin_ddp_report.reserved", offset_of!(ujoin_ddp_report, reserved), |s: &ujoin_ddp_report| &s.reserved);
    kind::<ujoin_optimizer>("ujoin_optimizer");
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
    kind::<ujoin_step_options>("ujoin_step_options");
    field("ujoin_step_options.size", offset_of!(ujoin_step_options, size), |s: &ujoin_step_options| &s.size);
    field("ujoin_step_options.closure", offset_of!(ujoin_step_options, closure), |s: &ujoin_step_options| &s.closure);
    field("ujoin_step_options.closure_data", offset_of!(ujoin_step_options, closure_data), |s: &ujoin_step_options| {
        &s.closure_data
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
    kind::<ujoin_std>("ujoin_std");
    kind::<ujoin_containment>("ujoin_containment");
    kind::<ujoin_pctx_spec>("ujoin_pctx_spec");
    field("ujoin_pctx_spec.size", offset_of!(ujoin_pctx_spec, size), |s: &ujoin_pctx_spec| &s.size);
    field("ujoin_pctx_spec.name", offset_of!(ujoin_pctx_spec, name), |s: &ujoin_pctx_spec| &s.name);
    field("ujoin_pctx_spec.program", offset_of!(ujoin_pctx_spec, program), |s: &ujoin_pctx_spec| &s.program);
    field("ujoin_pctx_spec.args", offset_of!(ujoin_pctx_spec, args), |s: &ujoin_pctx_spec| &s.args);
    field("ujoin_pctx_spec.arg_count", offset_of!(ujoin_pctx_spec, arg_count), |s: &ujoin_pctx_spec| &s.arg_count);
    field("ujoin_pctx_spec.log_dir", offset_of!(ujoin_pctx_spec, log_dir), |s: &ujoin_pctx_spec| &s.log_dir);
    field("ujoin_pctx_spec.run_id", offset_of!(ujoin_pctx_spec, run_id), |s: &ujoin_pctx_spec| &s.run_id);
    field("ujoin_pctx_spec.prefix", offset_of!(ujoin_pctx_spec, prefix), |s: &ujoin_pctx_spec| &s.prefix);
    field("ujoin_pctx_spec.grace_ms", offset_of!(ujoin_pctx_spec, grace_ms), |s: &ujoin_pctx_spec| &s.grace_ms);
    field("ujoin_pctx_spec.drain_ms", offset_of!(ujoin_pctx_spec, drain_ms), |s: &ujoin_pctx_spec| &s.drain_ms);
    field("ujoin_pctx_spec.partial_line_ms", offset_of!(ujoin_pctx_spec, partial_line_ms), |s: &ujoin_pctx_spec| {
        &s.partial_line_ms
    });
    field("ujoin_pctx_spec.nprocs", offset_of!(ujoin_pctx_spec, nprocs), |s: &ujoin_pctx_spec| &s.nprocs);
    field("ujoin_pctx_spec.first_rank", offset_of!(ujoin_pctx_spec, first_rank), |s: &ujoin_pctx_spec| &s.first_rank);
    field("ujoin_pctx_spec.restart_count", offset_of!(ujoin_pctx_spec, restart_count), |s: &ujoin_pctx_spec| {
        &s.restart_count
    });
    field("ujoin_pctx_spec.redirects", offset_of!(ujoin_pctx_spec, redirects), |s: &ujoin_pctx_spec| &s.redirects);
    field("ujoin_pctx_spec.tee", offset_of!(ujoin_pctx_spec, tee), |s: &ujoin_pctx_spec| &s.tee);
    field("ujoin_pctx_spec.containment", offset_of!(ujoin_pctx_spec, containment), |s: &ujoin_pctx_spec| {
        &s.containment
    });
    field("ujoin_pctx_spec.same_session", offset_of!(ujoin_pctx_spec, same_session), |s: &ujoin_pctx_spec| {
        &s.same_session
    });
    field("ujoin_pctx_spec.reserved", offset_of!(ujoin_pctx_spec, reserved), |s: &ujoin_pctx_spec| &s.reserved);
    kind::<ujoin_worker>("ujoin_worker");
    field("ujoin_worker.size", offset_of!(ujoin_worker, size), |s: &ujoin_worker| &s.size);
    field("ujoin_worker.program", offset_of!(ujoin_worker, program), |s: &ujoin_worker| &s.program);
    field("ujoin_worker.args", offset_of!(ujoin_worker, args), |s: &ujoin_worker| &s.args);
    field("ujoin_worker.arg_count", offset_of!(ujoin_worker, arg_count), |s: &ujoin_worker| &s.arg_count);
    field("ujoin_worker.directory", offset_of!(ujoin_worker, directory), |s: &ujoin_worker| &s.directory);
    field("ujoin_worker.redirects", offset_of!(ujoin_worker, redirects), |s: &ujoin_worker| &s.redirects);
    field("ujoin_worker.tee", offset_of!(ujoin_worker, tee), |s: &ujoin_worker| &s.tee);
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
        "ujoin_worker_result.stdout_path",
        offset_of!(ujoin_worker_result, stdout_path),
        |s: &ujoin_worker_result| &s.stdout_path,
    );
    field(
        "ujoin_worker_result.stderr_path",
        offset_of!(ujoin_worker_result, stderr_path),
        |s: &ujoin_worker_result| &s.stderr_path,
    );
    println!("value UJOIN_VERSION_MAJOR {}", UJOIN_VERSION_MAJOR);
    println!("value UJOIN_VERSION_MINOR {}", UJOIN_VERSION_MINOR);
    println!("value UJOIN_VERSION_PATCH {}", UJOIN_VERSION_PATCH);
    println!("value UJOIN_ABI_VERSION {}", UJOIN_ABI_VERSION);
    println!("value UJOIN_OK {}", UJOIN_OK);
    println!("value UJOIN_PENDING {}", UJOIN_PENDING);
    println!("value UJOIN_JOINED {}", UJOIN_JOINED);
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
    println!("value UJOIN_SUM {}", UJOIN_SUM);
    println!("value UJOIN_AVG {}", UJOIN_AVG);
    println!("value UJOIN_MIN {}", UJOIN_MIN);
    println!("value UJOIN_MAX {}", UJOIN_MAX);
    println!("value UJOIN_DIVISION_INITIAL {}", UJOIN_DIVISION_INITIAL);
    println!("value UJOIN_DIVISION_ACTIVE {}", UJOIN_DIVISION_ACTIVE);
    println!("value UJOIN_DIVISION_SAMPLES {}", UJOIN_DIVISION_SAMPLES);
    println!("value UJOIN_GRADIENT_MEAN {}", UJOIN_GRADIENT_MEAN);
    println!("value UJOIN_GRADIENT_SUM {}", UJOIN_GRADIENT_SUM);
    println!("value UJOIN_OPTIMIZER_SGD {}", UJOIN_OPTIMIZER_SGD);
    println!("value UJOIN_OPTIMIZER_ADAM {}", UJOIN_OPTIMIZER_ADAM);
    println!("value UJOIN_OPTIMIZER_ADAMW {}", UJOIN_OPTIMIZER_ADAMW);
    println!("value UJOIN_SAVE_STATE {}", UJOIN_SAVE_STATE);
    println!("value UJOIN_SAVE_PARAMETERS {}", UJOIN_SAVE_PARAMETERS);
    println!("value UJOIN_ITEM_TENSOR {}", UJOIN_ITEM_TENSOR);
    println!("value UJOIN_ITEM_NUMBER {}", UJOIN_ITEM_NUMBER);
    println!("value UJOIN_ITEM_TEXT {}", UJOIN_ITEM_TEXT);
    println!("value UJOIN_ITEM_BYTES {}", UJOIN_ITEM_BYTES);
    println!("value UJOIN_ITEM_OF_PROGRAM {}", UJOIN_ITEM_OF_PROGRAM);
    println!("value UJOIN_ITEM_OF_PARAM {}", UJOIN_ITEM_OF_PARAM);
    println!("value UJOIN_ITEM_OF_GROUP {}", UJOIN_ITEM_OF_GROUP);
    println!("value UJOIN_STD_NONE {}", UJOIN_STD_NONE);
    println!("value UJOIN_STD_OUT {}", UJOIN_STD_OUT);
    println!("value UJOIN_STD_ERR {}", UJOIN_STD_ERR);
    println!("value UJOIN_STD_ALL {}", UJOIN_STD_ALL);
    println!("value UJOIN_STD_SET {}", UJOIN_STD_SET);
    println!("value UJOIN_CONTAINMENT_GROUP {}", UJOIN_CONTAINMENT_GROUP);
    println!("value UJOIN_CONTAINMENT_WARDEN {}", UJOIN_CONTAINMENT_WARDEN);
    println!("value UJOIN_WORKER_CREATED {}", UJOIN_WORKER_CREATED);
    println!("value UJOIN_WORKER_RUNNING {}", UJOIN_WORKER_RUNNING);
    println!("value UJOIN_WORKER_EXITED {}", UJOIN_WORKER_EXITED);
    println!("value UJOIN_WORKER_SIGNALED {}", UJOIN_WORKER_SIGNALED);
    println!("value UJOIN_WORKER_UNKNOWN {}", UJOIN_WORKER_UNKNOWN);
    println!("value UJOIN_WORKER_UNKILLABLE {}", UJOIN_WORKER_UNKILLABLE);
}
