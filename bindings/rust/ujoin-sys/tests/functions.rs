// SPDX-License-Identifier: Apache-2.0
// Written by bindings/tools/gen.sh from SWIG's tree of ujoin.h: change the header, not this file.
//! Every function of the header is declared here with the header's types, and the library that is linked exports it.

#[test]
fn every_function_is_exported() {
    let functions: &[(&str, *const ())] = &[
        (
            "ujoin_version",
            ujoin_sys::ujoin_version as unsafe extern "C" fn() -> _ as *const (),
        ),
        (
            "ujoin_abi_version",
            ujoin_sys::ujoin_abi_version as unsafe extern "C" fn() -> _ as *const (),
        ),
        (
            "ujoin_backends",
            ujoin_sys::ujoin_backends as unsafe extern "C" fn() -> _ as *const (),
        ),
        (
            "ujoin_last_error",
            ujoin_sys::ujoin_last_error as unsafe extern "C" fn() -> _ as *const (),
        ),
        (
            "ujoin_last_errno",
            ujoin_sys::ujoin_last_errno as unsafe extern "C" fn() -> _ as *const (),
        ),
        (
            "ujoin_last_missing",
            ujoin_sys::ujoin_last_missing as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_status_name",
            ujoin_sys::ujoin_status_name as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_set_last_error",
            ujoin_sys::ujoin_set_last_error as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_set_interrupt_check",
            ujoin_sys::ujoin_set_interrupt_check as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_set_log_sink",
            ujoin_sys::ujoin_set_log_sink as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_create",
            ujoin_sys::ujoin_store_create as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_prefix",
            ujoin_sys::ujoin_store_prefix as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_url",
            ujoin_sys::ujoin_store_url as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_store_set",
            ujoin_sys::ujoin_store_set as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_get",
            ujoin_sys::ujoin_store_get as unsafe extern "C" fn(_, _, _, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_add",
            ujoin_sys::ujoin_store_add as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_wait",
            ujoin_sys::ujoin_store_wait as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_store_abort",
            ujoin_sys::ujoin_store_abort as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_store_destroy",
            ujoin_sys::ujoin_store_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_group_create",
            ujoin_sys::ujoin_group_create as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_group_rank",
            ujoin_sys::ujoin_group_rank as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_group_size",
            ujoin_sys::ujoin_group_size as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_group_get_info",
            ujoin_sys::ujoin_group_get_info as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_group_close",
            ujoin_sys::ujoin_group_close as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_group_abort",
            ujoin_sys::ujoin_group_abort as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_group_destroy",
            ujoin_sys::ujoin_group_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_all_reduce",
            ujoin_sys::ujoin_all_reduce as unsafe extern "C" fn(_, _, _, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_broadcast",
            ujoin_sys::ujoin_broadcast as unsafe extern "C" fn(_, _, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_all_gather",
            ujoin_sys::ujoin_all_gather as unsafe extern "C" fn(_, _, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_reduce_scatter",
            ujoin_sys::ujoin_reduce_scatter as unsafe extern "C" fn(_, _, _, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_barrier",
            ujoin_sys::ujoin_barrier as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_work_wait",
            ujoin_sys::ujoin_work_wait as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_work_test",
            ujoin_sys::ujoin_work_test as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_work_abort",
            ujoin_sys::ujoin_work_abort as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_work_destroy",
            ujoin_sys::ujoin_work_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_joinable_create",
            ujoin_sys::ujoin_joinable_create as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_joinable_destroy",
            ujoin_sys::ujoin_joinable_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ctx_create",
            ujoin_sys::ujoin_ctx_create as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_ctx_start",
            ujoin_sys::ujoin_ctx_start as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_joinable_notify",
            ujoin_sys::ujoin_joinable_notify as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_ctx_finish",
            ujoin_sys::ujoin_ctx_finish as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ctx_stop",
            ujoin_sys::ujoin_ctx_stop as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ctx_stopped",
            ujoin_sys::ujoin_ctx_stopped as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ctx_abort",
            ujoin_sys::ujoin_ctx_abort as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_ctx_get_report",
            ujoin_sys::ujoin_ctx_get_report as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_ctx_rounds",
            ujoin_sys::ujoin_ctx_rounds as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_ctx_destroy",
            ujoin_sys::ujoin_ctx_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ddp_create",
            ujoin_sys::ujoin_ddp_create as unsafe extern "C" fn(_, _, _, _, _) -> _ as *const (),
        ),
        (
            "ujoin_ddp_joinable",
            ujoin_sys::ujoin_ddp_joinable as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ddp_forward",
            ujoin_sys::ujoin_ddp_forward as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_ddp_ready",
            ujoin_sys::ujoin_ddp_ready as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_ddp_finish",
            ujoin_sys::ujoin_ddp_finish as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_ddp_get_report",
            ujoin_sys::ujoin_ddp_get_report as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_ddp_destroy",
            ujoin_sys::ujoin_ddp_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "zero_create",
            ujoin_sys::zero_create as unsafe extern "C" fn(_, _, _, _, _, _) -> _ as *const (),
        ),
        (
            "zero_joinable",
            ujoin_sys::zero_joinable as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "zero_step",
            ujoin_sys::zero_step as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "zero_add_param_group",
            ujoin_sys::zero_add_param_group as unsafe extern "C" fn(_, _, _, _, _) -> _ as *const (),
        ),
        (
            "zero_group_count",
            ujoin_sys::zero_group_count as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "zero_hyper_name",
            ujoin_sys::zero_hyper_name as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "zero_set_hyper",
            ujoin_sys::zero_set_hyper as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "zero_get_hyper",
            ujoin_sys::zero_get_hyper as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "zero_set_gradient",
            ujoin_sys::zero_set_gradient as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "zero_clear_gradients",
            ujoin_sys::zero_clear_gradients as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "zero_consolidate_state_dict",
            ujoin_sys::zero_consolidate_state_dict as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "zero_state_dict",
            ujoin_sys::zero_state_dict as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "zero_load_state_dict",
            ujoin_sys::zero_load_state_dict as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "zero_save",
            ujoin_sys::zero_save as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "zero_load",
            ujoin_sys::zero_load as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "zero_shard_count",
            ujoin_sys::zero_shard_count as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "zero_get_shard",
            ujoin_sys::zero_get_shard as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "zero_destroy",
            ujoin_sys::zero_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_state_create",
            ujoin_sys::ujoin_state_create as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_state_set",
            ujoin_sys::ujoin_state_set as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "ujoin_state_count",
            ujoin_sys::ujoin_state_count as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "ujoin_state_get",
            ujoin_sys::ujoin_state_get as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_state_find",
            ujoin_sys::ujoin_state_find as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "ujoin_state_destroy",
            ujoin_sys::ujoin_state_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "pctx_parse_std",
            ujoin_sys::pctx_parse_std as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "pctx_create",
            ujoin_sys::pctx_create as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "pctx_set_env",
            ujoin_sys::pctx_set_env as unsafe extern "C" fn(_, _, _, _) -> _ as *const (),
        ),
        (
            "pctx_set_worker",
            ujoin_sys::pctx_set_worker as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "pctx_start",
            ujoin_sys::pctx_start as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "pctx_wait",
            ujoin_sys::pctx_wait as unsafe extern "C" fn(_, _) -> _ as *const (),
        ),
        (
            "pctx_failed",
            ujoin_sys::pctx_failed as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "pctx_first_failure",
            ujoin_sys::pctx_first_failure as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "pctx_get_result",
            ujoin_sys::pctx_get_result as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "pctx_report",
            ujoin_sys::pctx_report as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "pctx_signal",
            ujoin_sys::pctx_signal as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "pctx_close",
            ujoin_sys::pctx_close as unsafe extern "C" fn(_, _, _) -> _ as *const (),
        ),
        (
            "pctx_abort",
            ujoin_sys::pctx_abort as unsafe extern "C" fn(_) -> _ as *const (),
        ),
        (
            "pctx_destroy",
            ujoin_sys::pctx_destroy as unsafe extern "C" fn(_) -> _ as *const (),
        ),
    ];
    for (name, address) in functions {
        assert!(!address.is_null(), "{name} has no address");
    }
    assert_eq!(functions.len(), 92);
}
