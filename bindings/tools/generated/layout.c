/* SPDX-License-Identifier: Apache-2.0 */
/* Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file. */
#include <stdio.h>
#include <ujoin.h>

/* offsetof in a struct of a char and the type is its alignment, in C99 too. */
#define TYPE(name, type)                                               \
    do {                                                               \
        struct probe {                                                 \
            char c;                                                    \
            type t;                                                    \
        };                                                             \
        size_t alignment = offsetof(struct probe, t);                  \
        printf("type %s %zu %zu\n", name, sizeof(type), alignment); \
    } while (0)
#define FIELD(type, field) \
    printf("field " #type "." #field " %zu %zu\n", offsetof(type, field), sizeof(((type *)0)->field))
#define VALUE(name) printf("value " #name " %lld\n", (long long)(name))
#define TEXT(name) printf("text " #name " %s\n", name)

static void print_ujoin_status(void) {
    TYPE("ujoin_status", ujoin_status);
}
static void print_ujoin_destroy_fn(void) {
    TYPE("ujoin_destroy_fn", ujoin_destroy_fn);
}
static void print_ujoin_call_fn(void) {
    TYPE("ujoin_call_fn", ujoin_call_fn);
}
static void print_ujoin_log_level(void) {
    TYPE("ujoin_log_level", ujoin_log_level);
}
static void print_ujoin_log_fn(void) {
    TYPE("ujoin_log_fn", ujoin_log_fn);
}
static void print_ujoin_store_options(void) {
    TYPE("ujoin_store_options", ujoin_store_options);
    FIELD(ujoin_store_options, size);
    FIELD(ujoin_store_options, secret);
    FIELD(ujoin_store_options, timeout_ms);
    FIELD(ujoin_store_options, listen);
    FIELD(ujoin_store_options, reserved);
}
static void print_ujoin_dtype(void) {
    TYPE("ujoin_dtype", ujoin_dtype);
}
static void print_ujoin_device(void) {
    TYPE("ujoin_device", ujoin_device);
}
static void print_ujoin_buffer(void) {
    TYPE("ujoin_buffer", ujoin_buffer);
    FIELD(ujoin_buffer, data);
    FIELD(ujoin_buffer, count);
    FIELD(ujoin_buffer, dtype);
    FIELD(ujoin_buffer, device);
    FIELD(ujoin_buffer, device_index);
    FIELD(ujoin_buffer, reserved);
}
static void print_ujoin_const_buffer(void) {
    TYPE("ujoin_const_buffer", ujoin_const_buffer);
    FIELD(ujoin_const_buffer, data);
    FIELD(ujoin_const_buffer, count);
    FIELD(ujoin_const_buffer, dtype);
    FIELD(ujoin_const_buffer, device);
    FIELD(ujoin_const_buffer, device_index);
    FIELD(ujoin_const_buffer, reserved);
}
static void print_ujoin_hyper(void) {
    TYPE("ujoin_hyper", ujoin_hyper);
    FIELD(ujoin_hyper, name);
    FIELD(ujoin_hyper, value);
}
static void print_ujoin_param(void) {
    TYPE("ujoin_param", ujoin_param);
    FIELD(ujoin_param, name);
    FIELD(ujoin_param, data);
    FIELD(ujoin_param, grad);
    FIELD(ujoin_param, count);
    FIELD(ujoin_param, dtype);
    FIELD(ujoin_param, grad_dtype);
    FIELD(ujoin_param, device);
    FIELD(ujoin_param, device_index);
    FIELD(ujoin_param, shape);
    FIELD(ujoin_param, ndim);
    FIELD(ujoin_param, flags);
    FIELD(ujoin_param, reserved);
}
static void print_ujoin_reduce(void) {
    TYPE("ujoin_reduce", ujoin_reduce);
}
static void print_ujoin_op_kind(void) {
    TYPE("ujoin_op_kind", ujoin_op_kind);
}
static void print_ujoin_op(void) {
    TYPE("ujoin_op", ujoin_op);
    FIELD(ujoin_op, size);
    FIELD(ujoin_op, kind);
    FIELD(ujoin_op, reduce);
    FIELD(ujoin_op, peer);
    FIELD(ujoin_op, reserved);
    FIELD(ujoin_op, send);
    FIELD(ujoin_op, recv);
    FIELD(ujoin_op, send_counts);
    FIELD(ujoin_op, recv_counts);
}
static void print_ujoin_op_options(void) {
    TYPE("ujoin_op_options", ujoin_op_options);
    FIELD(ujoin_op_options, size);
    FIELD(ujoin_op_options, timeout_ms);
    FIELD(ujoin_op_options, stream);
    FIELD(ujoin_op_options, release);
    FIELD(ujoin_op_options, release_data);
}
static void print_ujoin_group_options(void) {
    TYPE("ujoin_group_options", ujoin_group_options);
    FIELD(ujoin_group_options, size);
    FIELD(ujoin_group_options, rendezvous);
    FIELD(ujoin_group_options, backend);
    FIELD(ujoin_group_options, name);
    FIELD(ujoin_group_options, store);
    FIELD(ujoin_group_options, rank);
    FIELD(ujoin_group_options, world_size);
    FIELD(ujoin_group_options, timeout_ms);
    FIELD(ujoin_group_options, rendezvous_timeout_ms);
    FIELD(ujoin_group_options, shadow_collectives);
    FIELD(ujoin_group_options, threads);
}
static void print_ujoin_group_info(void) {
    TYPE("ujoin_group_info", ujoin_group_info);
    FIELD(ujoin_group_info, size);
    FIELD(ujoin_group_info, backend);
    FIELD(ujoin_group_info, rank);
    FIELD(ujoin_group_info, world_size);
    FIELD(ujoin_group_info, local_rank);
    FIELD(ujoin_group_info, local_size);
    FIELD(ujoin_group_info, progress);
    FIELD(ujoin_group_info, threads);
}
static void print_ujoin_memory_options(void) {
    TYPE("ujoin_memory_options", ujoin_memory_options);
    FIELD(ujoin_memory_options, size);
    FIELD(ujoin_memory_options, device);
    FIELD(ujoin_memory_options, device_index);
    FIELD(ujoin_memory_options, one_per_host);
    FIELD(ujoin_memory_options, reserved);
}
static void print_ujoin_hook_args(void) {
    TYPE("ujoin_hook_args", ujoin_hook_args);
    FIELD(ujoin_hook_args, size);
    FIELD(ujoin_hook_args, joinable);
    FIELD(ujoin_hook_args, round);
    FIELD(ujoin_hook_args, active);
    FIELD(ujoin_hook_args, is_last_joiner);
    FIELD(ujoin_hook_args, authoritative_rank);
    FIELD(ujoin_hook_args, reserved);
    FIELD(ujoin_hook_args, options);
    FIELD(ujoin_hook_args, option_count);
}
static void print_ujoin_hook_fn(void) {
    TYPE("ujoin_hook_fn", ujoin_hook_fn);
}
static void print_ujoin_hooks(void) {
    TYPE("ujoin_hooks", ujoin_hooks);
    FIELD(ujoin_hooks, size);
    FIELD(ujoin_hooks, main_hook);
    FIELD(ujoin_hooks, post_hook);
    FIELD(ujoin_hooks, user_data);
    FIELD(ujoin_hooks, destroy);
    FIELD(ujoin_hooks, name);
    FIELD(ujoin_hooks, options);
    FIELD(ujoin_hooks, option_count);
    FIELD(ujoin_hooks, device);
    FIELD(ujoin_hooks, device_index);
}
static void print_ujoin_ctx_options(void) {
    TYPE("ujoin_ctx_options", ujoin_ctx_options);
    FIELD(ujoin_ctx_options, size);
    FIELD(ujoin_ctx_options, idle_timeout_ms);
    FIELD(ujoin_ctx_options, skew_warning_rounds);
    FIELD(ujoin_ctx_options, hook_options);
    FIELD(ujoin_ctx_options, hook_option_count);
    FIELD(ujoin_ctx_options, disabled);
    FIELD(ujoin_ctx_options, throw_on_exhausted);
    FIELD(ujoin_ctx_options, strict);
    FIELD(ujoin_ctx_options, reserved);
}
static void print_ujoin_ctx_report(void) {
    TYPE("ujoin_ctx_report", ujoin_ctx_report);
    FIELD(ujoin_ctx_report, size);
    FIELD(ujoin_ctx_report, rounds);
    FIELD(ujoin_ctx_report, shadow_rounds);
    FIELD(ujoin_ctx_report, shadow_uses);
    FIELD(ujoin_ctx_report, shadow_us);
    FIELD(ujoin_ctx_report, wait_us);
    FIELD(ujoin_ctx_report, is_last_joiner);
    FIELD(ujoin_ctx_report, authoritative_rank);
    FIELD(ujoin_ctx_report, joined);
    FIELD(ujoin_ctx_report, stopped);
}
static void print_ujoin_division(void) {
    TYPE("ujoin_division", ujoin_division);
}
static void print_ujoin_gradient_kind(void) {
    TYPE("ujoin_gradient_kind", ujoin_gradient_kind);
}
static void print_ujoin_gradient_sync(void) {
    TYPE("ujoin_gradient_sync", ujoin_gradient_sync);
}
static void print_ujoin_comm_hook_kind(void) {
    TYPE("ujoin_comm_hook_kind", ujoin_comm_hook_kind);
}
static void print_ujoin_buffer_time(void) {
    TYPE("ujoin_buffer_time", ujoin_buffer_time);
}
static void print_ujoin_ddp_options(void) {
    TYPE("ujoin_ddp_options", ujoin_ddp_options);
    FIELD(ujoin_ddp_options, size);
    FIELD(ujoin_ddp_options, division);
    FIELD(ujoin_ddp_options, gradient_kind);
    FIELD(ujoin_ddp_options, find_unused);
    FIELD(ujoin_ddp_options, static_graph);
    FIELD(ujoin_ddp_options, bucket_view);
    FIELD(ujoin_ddp_options, no_buffer_broadcast);
    FIELD(ujoin_ddp_options, no_initial_broadcast);
    FIELD(ujoin_ddp_options, source_rank);
    FIELD(ujoin_ddp_options, buffers);
    FIELD(ujoin_ddp_options, buffer_count);
    FIELD(ujoin_ddp_options, first_bucket_bytes);
    FIELD(ujoin_ddp_options, bucket_bytes);
    FIELD(ujoin_ddp_options, idle_timeout_ms);
    FIELD(ujoin_ddp_options, release);
    FIELD(ujoin_ddp_options, release_data);
    FIELD(ujoin_ddp_options, gradient_sync);
    FIELD(ujoin_ddp_options, params_released_on_ready);
}
static void print_ujoin_bucket(void) {
    TYPE("ujoin_bucket", ujoin_bucket);
    FIELD(ujoin_bucket, size);
    FIELD(ujoin_bucket, group);
    FIELD(ujoin_bucket, buffer);
    FIELD(ujoin_bucket, params);
    FIELD(ujoin_bucket, offsets);
    FIELD(ujoin_bucket, param_count);
    FIELD(ujoin_bucket, divisor);
    FIELD(ujoin_bucket, iteration);
    FIELD(ujoin_bucket, index);
    FIELD(ujoin_bucket, is_last);
    FIELD(ujoin_bucket, is_shadow);
    FIELD(ujoin_bucket, source_rank);
}
static void print_ujoin_bucket_fn(void) {
    TYPE("ujoin_bucket_fn", ujoin_bucket_fn);
}
static void print_ujoin_comm_hook(void) {
    TYPE("ujoin_comm_hook", ujoin_comm_hook);
    FIELD(ujoin_comm_hook, size);
    FIELD(ujoin_comm_hook, start);
    FIELD(ujoin_comm_hook, then);
    FIELD(ujoin_comm_hook, user_data);
    FIELD(ujoin_comm_hook, destroy);
    FIELD(ujoin_comm_hook, start_iteration);
    FIELD(ujoin_comm_hook, kind);
    FIELD(ujoin_comm_hook, rank);
}
static void print_ujoin_ddp_report(void) {
    TYPE("ujoin_ddp_report", ujoin_ddp_report);
    FIELD(ujoin_ddp_report, size);
    FIELD(ujoin_ddp_report, iterations);
    FIELD(ujoin_ddp_report, divisor);
    FIELD(ujoin_ddp_report, samples);
    FIELD(ujoin_ddp_report, reduce_us);
    FIELD(ujoin_ddp_report, exposed_us);
    FIELD(ujoin_ddp_report, bucket_count);
    FIELD(ujoin_ddp_report, rebuilt);
    FIELD(ujoin_ddp_report, joined_uneven);
}
static void print_ujoin_optimizer(void) {
    TYPE("ujoin_optimizer", ujoin_optimizer);
}
static void print_ujoin_partition(void) {
    TYPE("ujoin_partition", ujoin_partition);
}
static void print_ujoin_rule_args(void) {
    TYPE("ujoin_rule_args", ujoin_rule_args);
    FIELD(ujoin_rule_args, size);
    FIELD(ujoin_rule_args, name);
    FIELD(ujoin_rule_args, data);
    FIELD(ujoin_rule_args, grad);
    FIELD(ujoin_rule_args, state);
    FIELD(ujoin_rule_args, hyper);
    FIELD(ujoin_rule_args, shape);
    FIELD(ujoin_rule_args, count);
    FIELD(ujoin_rule_args, offset);
    FIELD(ujoin_rule_args, param);
    FIELD(ujoin_rule_args, step);
    FIELD(ujoin_rule_args, ndim);
    FIELD(ujoin_rule_args, group);
    FIELD(ujoin_rule_args, dtype);
    FIELD(ujoin_rule_args, reserved);
}
static void print_ujoin_rule_fn(void) {
    TYPE("ujoin_rule_fn", ujoin_rule_fn);
}
static void print_ujoin_rule(void) {
    TYPE("ujoin_rule", ujoin_rule);
    FIELD(ujoin_rule, size);
    FIELD(ujoin_rule, name);
    FIELD(ujoin_rule, step);
    FIELD(ujoin_rule, init);
    FIELD(ujoin_rule, state_names);
    FIELD(ujoin_rule, state_count);
    FIELD(ujoin_rule, hyper);
    FIELD(ujoin_rule, hyper_count);
    FIELD(ujoin_rule, user_data);
    FIELD(ujoin_rule, destroy);
    FIELD(ujoin_rule, per_tensor);
    FIELD(ujoin_rule, reserved);
}
static void print_ujoin_zero_options(void) {
    TYPE("ujoin_zero_options", ujoin_zero_options);
    FIELD(ujoin_zero_options, size);
    FIELD(ujoin_zero_options, hyper);
    FIELD(ujoin_zero_options, hyper_count);
    FIELD(ujoin_zero_options, idle_timeout_ms);
    FIELD(ujoin_zero_options, release);
    FIELD(ujoin_zero_options, release_data);
    FIELD(ujoin_zero_options, rule);
    FIELD(ujoin_zero_options, seed);
    FIELD(ujoin_zero_options, balance_trainable);
    FIELD(ujoin_zero_options, no_master_copy);
    FIELD(ujoin_zero_options, stochastic_rounding);
    FIELD(ujoin_zero_options, partition);
    FIELD(ujoin_zero_options, consolidate_timeout_ms);
    FIELD(ujoin_zero_options, bucket_view);
    FIELD(ujoin_zero_options, reserved);
    FIELD(ujoin_zero_options, ddp);
}
static void print_ujoin_step_options(void) {
    TYPE("ujoin_step_options", ujoin_step_options);
    FIELD(ujoin_step_options, size);
    FIELD(ujoin_step_options, closure);
    FIELD(ujoin_step_options, closure_data);
    FIELD(ujoin_step_options, scaler);
    FIELD(ujoin_step_options, out_norm);
    FIELD(ujoin_step_options, max_norm);
    FIELD(ujoin_step_options, norm_type);
    FIELD(ujoin_step_options, skip_nonfinite);
    FIELD(ujoin_step_options, reserved);
}
static void print_ujoin_zero_memory(void) {
    TYPE("ujoin_zero_memory", ujoin_zero_memory);
    FIELD(ujoin_zero_memory, size);
    FIELD(ujoin_zero_memory, parameters);
    FIELD(ujoin_zero_memory, gradients);
    FIELD(ujoin_zero_memory, state);
    FIELD(ujoin_zero_memory, buffers);
    FIELD(ujoin_zero_memory, full_state);
}
static void print_ujoin_shard(void) {
    TYPE("ujoin_shard", ujoin_shard);
    FIELD(ujoin_shard, size);
    FIELD(ujoin_shard, param);
    FIELD(ujoin_shard, offset);
    FIELD(ujoin_shard, count);
    FIELD(ujoin_shard, rank);
    FIELD(ujoin_shard, group);
}
static void print_ujoin_save_options(void) {
    TYPE("ujoin_save_options", ujoin_save_options);
    FIELD(ujoin_save_options, size);
    FIELD(ujoin_save_options, extra);
    FIELD(ujoin_save_options, parts);
    FIELD(ujoin_save_options, no_sync);
}
static void print_ujoin_item_kind(void) {
    TYPE("ujoin_item_kind", ujoin_item_kind);
}
static void print_ujoin_item_owner(void) {
    TYPE("ujoin_item_owner", ujoin_item_owner);
}
static void print_ujoin_item(void) {
    TYPE("ujoin_item", ujoin_item);
    FIELD(ujoin_item, size);
    FIELD(ujoin_item, param);
    FIELD(ujoin_item, key);
    FIELD(ujoin_item, data);
    FIELD(ujoin_item, bytes);
    FIELD(ujoin_item, shape);
    FIELD(ujoin_item, number);
    FIELD(ujoin_item, kind);
    FIELD(ujoin_item, dtype);
    FIELD(ujoin_item, ndim);
    FIELD(ujoin_item, owner);
    FIELD(ujoin_item, group);
    FIELD(ujoin_item, reserved);
}
static void print_ujoin_schedule_kind(void) {
    TYPE("ujoin_schedule_kind", ujoin_schedule_kind);
}
static void print_ujoin_schedule_options(void) {
    TYPE("ujoin_schedule_options", ujoin_schedule_options);
    FIELD(ujoin_schedule_options, size);
    FIELD(ujoin_schedule_options, base);
    FIELD(ujoin_schedule_options, minimum);
    FIELD(ujoin_schedule_options, gamma);
    FIELD(ujoin_schedule_options, warmup_steps);
    FIELD(ujoin_schedule_options, total_steps);
    FIELD(ujoin_schedule_options, every);
    FIELD(ujoin_schedule_options, kind);
    FIELD(ujoin_schedule_options, reserved);
}
static void print_ujoin_scaler_options(void) {
    TYPE("ujoin_scaler_options", ujoin_scaler_options);
    FIELD(ujoin_scaler_options, size);
    FIELD(ujoin_scaler_options, scale);
    FIELD(ujoin_scaler_options, growth);
    FIELD(ujoin_scaler_options, backoff);
    FIELD(ujoin_scaler_options, interval);
    FIELD(ujoin_scaler_options, good_steps);
    FIELD(ujoin_scaler_options, skipped);
}
static void print_ujoin_std(void) {
    TYPE("ujoin_std", ujoin_std);
}
static void print_ujoin_start_method(void) {
    TYPE("ujoin_start_method", ujoin_start_method);
}
static void print_ujoin_containment(void) {
    TYPE("ujoin_containment", ujoin_containment);
}
static void print_ujoin_console_policy(void) {
    TYPE("ujoin_console_policy", ujoin_console_policy);
}
static void print_ujoin_stdin(void) {
    TYPE("ujoin_stdin", ujoin_stdin);
}
static void print_ujoin_binding(void) {
    TYPE("ujoin_binding", ujoin_binding);
}
static void print_ujoin_output_fn(void) {
    TYPE("ujoin_output_fn", ujoin_output_fn);
}
static void print_ujoin_pctx_spec(void) {
    TYPE("ujoin_pctx_spec", ujoin_pctx_spec);
    FIELD(ujoin_pctx_spec, size);
    FIELD(ujoin_pctx_spec, name);
    FIELD(ujoin_pctx_spec, program);
    FIELD(ujoin_pctx_spec, function);
    FIELD(ujoin_pctx_spec, args);
    FIELD(ujoin_pctx_spec, arg_count);
    FIELD(ujoin_pctx_spec, log_dir);
    FIELD(ujoin_pctx_spec, run_id);
    FIELD(ujoin_pctx_spec, prefix);
    FIELD(ujoin_pctx_spec, console_ranks);
    FIELD(ujoin_pctx_spec, console_rank_count);
    FIELD(ujoin_pctx_spec, stdout_filters);
    FIELD(ujoin_pctx_spec, stdout_filter_count);
    FIELD(ujoin_pctx_spec, stderr_filters);
    FIELD(ujoin_pctx_spec, stderr_filter_count);
    FIELD(ujoin_pctx_spec, output);
    FIELD(ujoin_pctx_spec, user_data);
    FIELD(ujoin_pctx_spec, destroy);
    FIELD(ujoin_pctx_spec, grace_ms);
    FIELD(ujoin_pctx_spec, drain_ms);
    FIELD(ujoin_pctx_spec, partial_line_ms);
    FIELD(ujoin_pctx_spec, rotate_bytes);
    FIELD(ujoin_pctx_spec, nprocs);
    FIELD(ujoin_pctx_spec, first_rank);
    FIELD(ujoin_pctx_spec, restart_count);
    FIELD(ujoin_pctx_spec, redirects);
    FIELD(ujoin_pctx_spec, tee);
    FIELD(ujoin_pctx_spec, start_method);
    FIELD(ujoin_pctx_spec, containment);
    FIELD(ujoin_pctx_spec, console);
    FIELD(ujoin_pctx_spec, binding);
    FIELD(ujoin_pctx_spec, no_error_file);
    FIELD(ujoin_pctx_spec, same_session);
    FIELD(ujoin_pctx_spec, no_colour);
    FIELD(ujoin_pctx_spec, rotate_keep);
    FIELD(ujoin_pctx_spec, status_line);
}
static void print_ujoin_worker_fd(void) {
    TYPE("ujoin_worker_fd", ujoin_worker_fd);
    FIELD(ujoin_worker_fd, from);
    FIELD(ujoin_worker_fd, to);
}
static void print_ujoin_worker(void) {
    TYPE("ujoin_worker", ujoin_worker);
    FIELD(ujoin_worker, size);
    FIELD(ujoin_worker, program);
    FIELD(ujoin_worker, args);
    FIELD(ujoin_worker, arg_count);
    FIELD(ujoin_worker, directory);
    FIELD(ujoin_worker, input);
    FIELD(ujoin_worker, input_size);
    FIELD(ujoin_worker, stdin_data);
    FIELD(ujoin_worker, stdin_size);
    FIELD(ujoin_worker, stdin_path);
    FIELD(ujoin_worker, cpus);
    FIELD(ujoin_worker, cpu_count);
    FIELD(ujoin_worker, limits);
    FIELD(ujoin_worker, limit_count);
    FIELD(ujoin_worker, redirects);
    FIELD(ujoin_worker, tee);
    FIELD(ujoin_worker, stdin_from);
    FIELD(ujoin_worker, umask_set);
    FIELD(ujoin_worker, umask);
    FIELD(ujoin_worker, reserved);
    FIELD(ujoin_worker, fds);
    FIELD(ujoin_worker, fd_count);
}
static void print_ujoin_worker_state(void) {
    TYPE("ujoin_worker_state", ujoin_worker_state);
}
static void print_ujoin_worker_result(void) {
    TYPE("ujoin_worker_result", ujoin_worker_result);
    FIELD(ujoin_worker_result, size);
    FIELD(ujoin_worker_result, state);
    FIELD(ujoin_worker_result, rank);
    FIELD(ujoin_worker_result, pid);
    FIELD(ujoin_worker_result, exit_code);
    FIELD(ujoin_worker_result, signal);
    FIELD(ujoin_worker_result, failed);
    FIELD(ujoin_worker_result, stopped);
    FIELD(ujoin_worker_result, containment);
    FIELD(ujoin_worker_result, start_ns);
    FIELD(ujoin_worker_result, end_ns);
    FIELD(ujoin_worker_result, failed_ns);
    FIELD(ujoin_worker_result, last_output_ns);
    FIELD(ujoin_worker_result, user_us);
    FIELD(ujoin_worker_result, system_us);
    FIELD(ujoin_worker_result, peak_bytes);
    FIELD(ujoin_worker_result, stdout_bytes);
    FIELD(ujoin_worker_result, stderr_bytes);
    FIELD(ujoin_worker_result, dropped_lines);
    FIELD(ujoin_worker_result, value);
    FIELD(ujoin_worker_result, value_size);
    FIELD(ujoin_worker_result, message);
    FIELD(ujoin_worker_result, traceback);
    FIELD(ujoin_worker_result, stdout_path);
    FIELD(ujoin_worker_result, stderr_path);
    FIELD(ujoin_worker_result, error_path);
}
static void print_ujoin_worker_health(void) {
    TYPE("ujoin_worker_health", ujoin_worker_health);
    FIELD(ujoin_worker_health, size);
    FIELD(ujoin_worker_health, sequence);
    FIELD(ujoin_worker_health, round);
    FIELD(ujoin_worker_health, since_ns);
    FIELD(ujoin_worker_health, last_output_ns);
    FIELD(ujoin_worker_health, missing);
    FIELD(ujoin_worker_health, missing_count);
    FIELD(ujoin_worker_health, operation);
    FIELD(ujoin_worker_health, waiting_for);
    FIELD(ujoin_worker_health, group);
    FIELD(ujoin_worker_health, text);
    FIELD(ujoin_worker_health, state);
    FIELD(ujoin_worker_health, rank);
    FIELD(ujoin_worker_health, pid);
    FIELD(ujoin_worker_health, group_pid);
    FIELD(ujoin_worker_health, group_rank);
    FIELD(ujoin_worker_health, group_size);
    FIELD(ujoin_worker_health, groups);
    FIELD(ujoin_worker_health, in_operation);
    FIELD(ujoin_worker_health, in_context);
    FIELD(ujoin_worker_health, joined);
    FIELD(ujoin_worker_health, broken);
    FIELD(ujoin_worker_health, reserved);
}
static void print_ujoin_worker_args(void) {
    TYPE("ujoin_worker_args", ujoin_worker_args);
    FIELD(ujoin_worker_args, size);
    FIELD(ujoin_worker_args, args);
    FIELD(ujoin_worker_args, arg_count);
    FIELD(ujoin_worker_args, input);
    FIELD(ujoin_worker_args, input_size);
    FIELD(ujoin_worker_args, rank);
    FIELD(ujoin_worker_args, nprocs);
}
static void print_ujoin_worker_fn(void) {
    TYPE("ujoin_worker_fn", ujoin_worker_fn);
}
static void print_macros(void) {
    VALUE(UJOIN_VERSION_MAJOR);
    VALUE(UJOIN_VERSION_MINOR);
    VALUE(UJOIN_VERSION_PATCH);
    VALUE(UJOIN_ABI_VERSION);
}
static void print_ujoin_status_value(void) {
    VALUE(UJOIN_OK);
    VALUE(UJOIN_PENDING);
    VALUE(UJOIN_JOINED);
    VALUE(UJOIN_SKIPPED);
    VALUE(UJOIN_DONE);
    VALUE(UJOIN_E_INVALID);
    VALUE(UJOIN_E_STATE);
    VALUE(UJOIN_E_UNSUPPORTED);
    VALUE(UJOIN_E_NO_MEMORY);
    VALUE(UJOIN_E_TIMEOUT);
    VALUE(UJOIN_E_ABORTED);
    VALUE(UJOIN_E_PEER_LOST);
    VALUE(UJOIN_E_MISMATCH);
    VALUE(UJOIN_E_EXHAUSTED);
    VALUE(UJOIN_E_SYSTEM);
    VALUE(UJOIN_E_BACKEND);
    VALUE(UJOIN_E_CALLBACK);
    VALUE(UJOIN_E_CHILD_FAILED);
    VALUE(UJOIN_E_INTERNAL);
}
static void print_ujoin_time_value(void) {
    VALUE(UJOIN_NEVER);
    VALUE(UJOIN_NOW);
}
static void print_ujoin_log_level_value(void) {
    VALUE(UJOIN_LOG_ERROR);
    VALUE(UJOIN_LOG_WARNING);
    VALUE(UJOIN_LOG_INFO);
    VALUE(UJOIN_LOG_DEBUG);
}
static void print_ujoin_dtype_value(void) {
    VALUE(UJOIN_F32);
    VALUE(UJOIN_F64);
    VALUE(UJOIN_F16);
    VALUE(UJOIN_BF16);
    VALUE(UJOIN_I32);
    VALUE(UJOIN_I64);
    VALUE(UJOIN_U8);
}
static void print_ujoin_device_value(void) {
    VALUE(UJOIN_DEVICE_HOST);
    VALUE(UJOIN_DEVICE_CUDA);
}
static void print_ujoin_param_flag(void) {
    VALUE(UJOIN_PARAM_FROZEN);
    VALUE(UJOIN_PARAM_IGNORED);
}
static void print_ujoin_reduce_value(void) {
    VALUE(UJOIN_SUM);
    VALUE(UJOIN_AVG);
    VALUE(UJOIN_MIN);
    VALUE(UJOIN_MAX);
    VALUE(UJOIN_PROD);
}
static void print_ujoin_op_kind_value(void) {
    VALUE(UJOIN_OP_BARRIER);
    VALUE(UJOIN_OP_ALL_REDUCE);
    VALUE(UJOIN_OP_REDUCE);
    VALUE(UJOIN_OP_BROADCAST);
    VALUE(UJOIN_OP_ALL_GATHER);
    VALUE(UJOIN_OP_GATHER);
    VALUE(UJOIN_OP_SCATTER);
    VALUE(UJOIN_OP_REDUCE_SCATTER);
    VALUE(UJOIN_OP_ALL_TO_ALL);
    VALUE(UJOIN_OP_SEND);
    VALUE(UJOIN_OP_RECV);
}
static void print_ujoin_division_value(void) {
    VALUE(UJOIN_DIVISION_INITIAL);
    VALUE(UJOIN_DIVISION_ACTIVE);
    VALUE(UJOIN_DIVISION_SAMPLES);
}
static void print_ujoin_gradient_kind_value(void) {
    VALUE(UJOIN_GRADIENT_MEAN);
    VALUE(UJOIN_GRADIENT_SUM);
}
static void print_ujoin_gradient_sync_value(void) {
    VALUE(UJOIN_GRADIENT_SYNC_ALL);
    VALUE(UJOIN_GRADIENT_SYNC_TO_OWNER);
}
static void print_ujoin_comm_hook_kind_value(void) {
    VALUE(UJOIN_COMM_HOOK_ALL_REDUCE);
    VALUE(UJOIN_COMM_HOOK_F16);
    VALUE(UJOIN_COMM_HOOK_BF16);
    VALUE(UJOIN_COMM_HOOK_LOW_RANK);
    VALUE(UJOIN_COMM_HOOK_CUSTOM);
}
static void print_ujoin_buffer_time_value(void) {
    VALUE(UJOIN_BUFFER_AFTER_FORWARD);
    VALUE(UJOIN_BUFFER_BEFORE_FORWARD);
}
static void print_ujoin_optimizer_value(void) {
    VALUE(UJOIN_OPTIMIZER_CUSTOM);
    VALUE(UJOIN_OPTIMIZER_SGD);
    VALUE(UJOIN_OPTIMIZER_ADAM);
    VALUE(UJOIN_OPTIMIZER_ADAMW);
    VALUE(UJOIN_OPTIMIZER_ADAGRAD);
    VALUE(UJOIN_OPTIMIZER_RMSPROP);
    VALUE(UJOIN_OPTIMIZER_ADADELTA);
    VALUE(UJOIN_OPTIMIZER_ADAMAX);
    VALUE(UJOIN_OPTIMIZER_NADAM);
    VALUE(UJOIN_OPTIMIZER_RADAM);
    VALUE(UJOIN_OPTIMIZER_RPROP);
    VALUE(UJOIN_OPTIMIZER_LAMB);
    VALUE(UJOIN_OPTIMIZER_LION);
}
static void print_ujoin_partition_value(void) {
    VALUE(UJOIN_PARTITION_PARAMETERS);
    VALUE(UJOIN_PARTITION_ELEMENTS);
}
static void print_ujoin_save_part(void) {
    VALUE(UJOIN_SAVE_STATE);
    VALUE(UJOIN_SAVE_PARAMETERS);
}
static void print_ujoin_item_kind_value(void) {
    VALUE(UJOIN_ITEM_TENSOR);
    VALUE(UJOIN_ITEM_NUMBER);
    VALUE(UJOIN_ITEM_TEXT);
    VALUE(UJOIN_ITEM_BYTES);
}
static void print_ujoin_item_owner_value(void) {
    VALUE(UJOIN_ITEM_OF_PROGRAM);
    VALUE(UJOIN_ITEM_OF_PARAM);
    VALUE(UJOIN_ITEM_OF_GROUP);
}
static void print_ujoin_schedule_kind_value(void) {
    VALUE(UJOIN_SCHEDULE_CONSTANT);
    VALUE(UJOIN_SCHEDULE_COSINE);
    VALUE(UJOIN_SCHEDULE_LINEAR);
    VALUE(UJOIN_SCHEDULE_STEP);
}
static void print_ujoin_std_value(void) {
    VALUE(UJOIN_STD_NONE);
    VALUE(UJOIN_STD_OUT);
    VALUE(UJOIN_STD_ERR);
    VALUE(UJOIN_STD_ALL);
    VALUE(UJOIN_STD_SET);
}
static void print_ujoin_start_method_value(void) {
    VALUE(UJOIN_START_SPAWN);
    VALUE(UJOIN_START_FORK);
    VALUE(UJOIN_START_FORKSERVER);
}
static void print_ujoin_containment_value(void) {
    VALUE(UJOIN_CONTAINMENT_GROUP);
    VALUE(UJOIN_CONTAINMENT_WARDEN);
    VALUE(UJOIN_CONTAINMENT_CGROUP);
    VALUE(UJOIN_CONTAINMENT_BEST);
}
static void print_ujoin_console_policy_value(void) {
    VALUE(UJOIN_CONSOLE_BLOCK);
    VALUE(UJOIN_CONSOLE_DROP);
    VALUE(UJOIN_CONSOLE_SPILL);
}
static void print_ujoin_stdin_value(void) {
    VALUE(UJOIN_STDIN_NULL);
    VALUE(UJOIN_STDIN_INHERIT);
    VALUE(UJOIN_STDIN_BYTES);
    VALUE(UJOIN_STDIN_FILE);
}
static void print_ujoin_binding_value(void) {
    VALUE(UJOIN_BINDING_NONE);
    VALUE(UJOIN_BINDING_SPREAD);
    VALUE(UJOIN_BINDING_COMPACT);
    VALUE(UJOIN_BINDING_LIST);
}
static void print_ujoin_worker_state_value(void) {
    VALUE(UJOIN_WORKER_CREATED);
    VALUE(UJOIN_WORKER_RUNNING);
    VALUE(UJOIN_WORKER_EXITED);
    VALUE(UJOIN_WORKER_SIGNALED);
    VALUE(UJOIN_WORKER_UNKNOWN);
    VALUE(UJOIN_WORKER_UNKILLABLE);
    VALUE(UJOIN_WORKER_NO_VALUE);
}

int main(void) {
    print_ujoin_status();
    print_ujoin_destroy_fn();
    print_ujoin_call_fn();
    print_ujoin_log_level();
    print_ujoin_log_fn();
    print_ujoin_store_options();
    print_ujoin_dtype();
    print_ujoin_device();
    print_ujoin_buffer();
    print_ujoin_const_buffer();
    print_ujoin_hyper();
    print_ujoin_param();
    print_ujoin_reduce();
    print_ujoin_op_kind();
    print_ujoin_op();
    print_ujoin_op_options();
    print_ujoin_group_options();
    print_ujoin_group_info();
    print_ujoin_memory_options();
    print_ujoin_hook_args();
    print_ujoin_hook_fn();
    print_ujoin_hooks();
    print_ujoin_ctx_options();
    print_ujoin_ctx_report();
    print_ujoin_division();
    print_ujoin_gradient_kind();
    print_ujoin_gradient_sync();
    print_ujoin_comm_hook_kind();
    print_ujoin_buffer_time();
    print_ujoin_ddp_options();
    print_ujoin_bucket();
    print_ujoin_bucket_fn();
    print_ujoin_comm_hook();
    print_ujoin_ddp_report();
    print_ujoin_optimizer();
    print_ujoin_partition();
    print_ujoin_rule_args();
    print_ujoin_rule_fn();
    print_ujoin_rule();
    print_ujoin_zero_options();
    print_ujoin_step_options();
    print_ujoin_zero_memory();
    print_ujoin_shard();
    print_ujoin_save_options();
    print_ujoin_item_kind();
    print_ujoin_item_owner();
    print_ujoin_item();
    print_ujoin_schedule_kind();
    print_ujoin_schedule_options();
    print_ujoin_scaler_options();
    print_ujoin_std();
    print_ujoin_start_method();
    print_ujoin_containment();
    print_ujoin_console_policy();
    print_ujoin_stdin();
    print_ujoin_binding();
    print_ujoin_output_fn();
    print_ujoin_pctx_spec();
    print_ujoin_worker_fd();
    print_ujoin_worker();
    print_ujoin_worker_state();
    print_ujoin_worker_result();
    print_ujoin_worker_health();
    print_ujoin_worker_args();
    print_ujoin_worker_fn();
    print_macros();
    print_ujoin_status_value();
    print_ujoin_time_value();
    print_ujoin_log_level_value();
    print_ujoin_dtype_value();
    print_ujoin_device_value();
    print_ujoin_param_flag();
    print_ujoin_reduce_value();
    print_ujoin_op_kind_value();
    print_ujoin_division_value();
    print_ujoin_gradient_kind_value();
    print_ujoin_gradient_sync_value();
    print_ujoin_comm_hook_kind_value();
    print_ujoin_buffer_time_value();
    print_ujoin_optimizer_value();
    print_ujoin_partition_value();
    print_ujoin_save_part();
    print_ujoin_item_kind_value();
    print_ujoin_item_owner_value();
    print_ujoin_schedule_kind_value();
    print_ujoin_std_value();
    print_ujoin_start_method_value();
    print_ujoin_containment_value();
    print_ujoin_console_policy_value();
    print_ujoin_stdin_value();
    print_ujoin_binding_value();
    print_ujoin_worker_state_value();
    return 0;
}
