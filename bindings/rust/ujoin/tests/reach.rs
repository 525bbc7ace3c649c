// SPDX-License-Identifier: Apache-2.0
//! Where each public function of the header is in this crate. The left side is compared with the list that is made from the
//! header; the right side must compile.
use ujoin::*;

struct NoHooks;
impl Hooks for NoHooks {}

/// Takes anything with a type: a path to a function, a method, a trait's implementation.
fn here<T>(_: T) {}

macro_rules! reach {
    ($($function:ident => $($path:expr),+;)*) => {
        fn reached() -> Vec<&'static str> {
            $($(here($path);)+)*
            vec![$(stringify!($function)),*]
        }
    };
}

reach! {
    ujoin_version => version;
    ujoin_abi_version => abi_version;
    ujoin_backends => backends;
    ujoin_last_error => Error::text;
    ujoin_last_errno => Error::errno;
    ujoin_last_missing => Error::ranks;
    ujoin_status_name => ErrorKind::name;
    ujoin_set_last_error => |b: JoinableBuilder| drop(b.main_hook(|_| Err("a hook's error".into())));
    ujoin_set_interrupt_check => || set_interrupt_check(|| Ok(())), clear_interrupt_check;
    ujoin_set_log_sink => || set_log_sink(LogLevel::Debug, |_, _| ()), clear_log_sink;
    ujoin_store_create => StoreBuilder::open, || Store::open("");
    ujoin_store_prefix => Store::prefix;
    ujoin_store_url => Store::url;
    ujoin_store_set => Store::set;
    ujoin_store_get => Store::get;
    ujoin_store_add => Store::add;
    ujoin_store_wait => |s: &Store| s.wait([""], std::time::Duration::ZERO);
    ujoin_store_abort => Store::abort, Store::aborter;
    ujoin_store_destroy => drop::<Store>;
    ujoin_group_create => Group::from_env, GroupBuilder::build;
    ujoin_group_split => Group::split, GroupBuilder::split;
    ujoin_group_rank => Group::rank;
    ujoin_group_size => Group::size;
    ujoin_group_get_info => Group::info;
    ujoin_group_close => Group::close;
    ujoin_group_abort => Group::abort, Group::aborter;
    ujoin_group_destroy => drop::<Group>;
    ujoin_all_reduce => Group::all_reduce::<f32>, Group::all_reduce_into::<f32>, Group::start_all_reduce::<f32>;
    ujoin_broadcast => Group::broadcast::<f32>, Group::start_broadcast::<f32>;
    ujoin_all_gather => Group::all_gather::<f32>, Group::all_gather_in_place::<f32>, Group::start_all_gather::<f32>;
    ujoin_reduce_scatter => Group::reduce_scatter::<f32>, Group::start_reduce_scatter::<f32>;
    ujoin_submit => |g: &Group| g.submit([Op::barrier()]), |g: &Group| g.start_submit([Op::barrier()]),
        Group::reduce::<f32>, Group::gather::<u8>, Group::scatter::<i32>, Group::all_to_all::<i64>, Group::send::<f64>,
        Group::recv::<F16>;
    ujoin_barrier => Group::barrier;
    ujoin_work_wait => Work::<f32>::wait, Work::<f32>::wait_for, Work::<f32>::into_inner;
    ujoin_work_test => Work::<f32>::test;
    ujoin_work_contributors => Work::<f32>::contributors;
    ujoin_work_abort => Work::<f32>::abort, Work::<f32>::aborter;
    ujoin_work_destroy => drop::<Work<f32>>;
    ujoin_memory_create => SharedMemory::new, SharedMemory::one_per_host;
    ujoin_memory_data => SharedMemory::as_ptr;
    ujoin_memory_size => SharedMemory::size;
    ujoin_memory_destroy => drop::<SharedMemory>;
    ujoin_joinable_create => JoinableBuilder::build, |b: JoinableBuilder| b.build_with(NoHooks);
    ujoin_joinable_destroy => drop::<Joinable>;
    ujoin_ctx_create => |j: Joinable| Join::new([j]), JoinBuilder::build;
    ujoin_ctx_start => Join::start, |j: &Join| j.run(|| Ok(()));
    ujoin_joinable_notify => Joinable::notify, Joinable::notify_active, HookArgs::notify;
    ujoin_ctx_finish => Join::finish;
    ujoin_ctx_stop => Join::stop, Join::stopper;
    ujoin_ctx_stopped => Join::stopped;
    ujoin_ctx_abort => Join::abort, Join::aborter;
    ujoin_ctx_get_report => Join::report;
    ujoin_ctx_rounds => Join::rounds;
    ujoin_ctx_destroy => drop::<Join>;
    ujoin_ddp_create => DdpBuilder::build;
    ujoin_ddp_joinable => Ddp::joinable;
    ujoin_ddp_forward => Ddp::forward, |d: &Ddp| d.iteration(0, |ready| ready(0));
    ujoin_ddp_ready => Ddp::ready;
    ujoin_ddp_finish => Ddp::finish;
    ujoin_ddp_set_sync => Ddp::set_sync;
    ujoin_ddp_set_comm_hook => Ddp::set_comm_hook;
    ujoin_ddp_set_buffer_hook => Ddp::set_buffer_hook;
    ujoin_ddp_gradient => DdpBuilder::bucket_view, Params::<f32>::grad;
    ujoin_ddp_used => Ddp::used;
    ujoin_ddp_get_report => Ddp::report;
    ujoin_ddp_destroy => drop::<Ddp>;
    zero_create => ZeroBuilder::build;
    zero_joinable => Zero::joinable;
    zero_step => Zero::step, |z: &Zero| z.step_by(&StepOptions::default()), |z: &Zero| z.step_with(|| Ok(()));
    zero_add_param_group => Zero::add_param_group::<f32>;
    zero_group_count => Zero::group_count;
    zero_hyper_name => Zero::hyper_names;
    zero_set_hyper => Zero::set_hyper;
    zero_get_hyper => Zero::hyper;
    zero_param_data => |z: &Zero| z.with_value(0, |_: &mut [f32]| ());
    zero_set_gradient => Zero::set_gradient;
    zero_set_frozen => Zero::set_frozen;
    zero_clip_grad_norm => Zero::clip_grad_norm;
    zero_clear_gradients => Zero::clear_gradients;
    zero_consolidate_state_dict => Zero::consolidate_state_dict;
    zero_state_dict => Zero::state_dict;
    zero_load_state_dict => Zero::load_state_dict;
    zero_save => |z: &Zero| z.save(""), |z: &Zero| z.save_with("", &SaveOptions::default());
    zero_load => |z: &Zero| z.load(""), |z: &Zero| z.load_with("", &SaveOptions::default());
    zero_shard_count => Zero::shards;
    zero_get_shard => Zero::shards;
    zero_get_memory => Zero::memory;
    zero_destroy => drop::<Zero>;
    ujoin_state_create => State::new;
    ujoin_state_set => State::set, State::set_tensor::<f32>;
    ujoin_state_count => State::len;
    ujoin_state_get => State::get;
    ujoin_state_find => State::find;
    ujoin_state_destroy => drop::<State>;
    zero_schedule => Schedule::at;
    zero_scaler_create => Scaler::new;
    zero_scaler_scale => Scaler::scale;
    zero_scaler_get => Scaler::state;
    zero_scaler_destroy => drop::<Scaler>;
    pctx_parse_std => Std::parse;
    pctx_create => WorkersBuilder::build;
    pctx_set_env => Workers::set_env, Workers::remove_env;
    pctx_set_worker => Workers::set_worker;
    pctx_start => Workers::start;
    pctx_wait => Workers::wait, Workers::wait_for;
    pctx_failed => Workers::failed;
    pctx_first_failure => Workers::first_failure;
    pctx_get_result => Workers::result;
    pctx_health => Workers::health;
    pctx_report => Workers::report;
    pctx_report_json => Workers::report_json;
    pctx_signal => Workers::signal, Workers::signaller;
    pctx_stop => Workers::ask_stop;
    pctx_close => Workers::close;
    pctx_abort => Workers::abort, Workers::aborter;
    pctx_destroy => drop::<Workers>;
    pctx_register => |name: &str| register_worker(name, |_| Ok(()));
    pctx_worker_main => worker_main;
    pctx_return => return_value;
    pctx_record => || record(|| Ok(()));
    pctx_record_error => record_error;
    pctx_record_crashes => record_crashes;
}

#[test]
fn every_function_of_the_header_is_here() {
    let path = std::env::var("UJOIN_FUNCTIONS");
    let path =
        path.unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/generated/functions.txt").to_owned());
    let list = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert_eq!(reached(), list.lines().collect::<Vec<_>>());
}
