// SPDX-License-Identifier: Apache-2.0
//! Join contexts, gradient reduction and the optimizer together.
mod common;

use common::{deadline, panic_of, processes, ranks, small, TempDir, LONG};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use ujoin::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, DType, Ddp, Division, Error, ErrorKind, GradientKind, Group, Hooks, Join,
    Joinable, Lamb, Lion, NAdam, Owner, Params, RAdam, Reduce, RmsProp, Rprop, SaveOptions, Sgd, State, Value, Zero,
};

/// The gradient of batch `b` of rank `r`, for every element.
fn gradient(rank: usize, batch: usize) -> f32 {
    (rank + 1) as f32 * 0.5 + batch as f32 * 0.25
}

/// Rank r has 2 + r batches of r + 1 samples; SGD with rate 0.1 from 1.0.
fn uneven_weight_by_hand(size: usize) -> f32 {
    let mut weight = 1.0f32;
    for batch in 0..size + 1 {
        let active: Vec<usize> = (0..size).filter(|r| batch < 2 + r).collect();
        let samples: f32 = active.iter().map(|r| (r + 1) as f32).sum();
        let sum: f32 = active.iter().map(|&r| (r + 1) as f32 * gradient(r, batch)).sum();
        weight -= 0.1 * (sum / samples);
    }
    weight
}

fn train_uneven(group: &Group) {
    let (rank, size) = (group.rank(), group.size());
    let params = small().build().unwrap();
    if rank > 0 {
        params.value_mut(0).fill(-7.0); // overwritten by rank 0's
    }
    let ddp = Ddp::builder(group).params(&params).division(Division::Samples).build().unwrap();
    assert_eq!(params.value(0)[..], [1.0; 6]);
    let opt = Zero::builder(group, Sgd { lr: 0.1, ..Sgd::default() }).params(&params).build().unwrap();
    let join = Join::new([ddp.joinable(), opt.joinable()]).unwrap();
    join.run(|| {
        for batch in 0..2 + rank {
            ddp.iteration(rank + 1, |ready| {
                params.grad_mut(1).fill(gradient(rank, batch));
                ready(1)?;
                params.grad_mut(0).fill(gradient(rank, batch));
                ready(0)
            })?;
            opt.step()?;
        }
        Ok(())
    })
    .unwrap();
    let expected = uneven_weight_by_hand(size);
    assert!((params.value(0)[0] - expected).abs() < 1e-6, "{} is not {expected}", params.value(0)[0]);
    let report = join.report().unwrap();
    assert_eq!((report.rounds as usize, report.shadow_rounds as usize), (2 + rank, size - 1 - rank));
    assert_eq!((report.is_last_joiner, report.authoritative_rank), (rank == size - 1, Some(size - 1)));
    let rounds: Vec<_> = (0..size).map(|r| Some(2 + r as u64)).collect();
    assert_eq!(join.rounds().unwrap(), rounds);
    let reduced = ddp.report().unwrap();
    assert_eq!(
        (reduced.samples, reduced.divisor),
        (size as f64, size as f64),
        "the last round was the last rank's alone"
    );
    assert!(reduced.joined_uneven == (size > 1));
}

#[test]
fn uneven_inputs_of_threads() {
    let _deadline = deadline();
    for size in [1, 2, 3] {
        ranks(size, |group| train_uneven(&group));
    }
}

#[test]
fn uneven_inputs_of_processes() {
    let _deadline = deadline();
    if let Some(group) = processes("uneven_inputs_of_processes", 2) {
        train_uneven(&group);
        assert!(group.close(LONG).unwrap());
    }
}

#[test]
fn gradient_sums_and_divisions() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = Params::builder().tensor("w", &[1], vec![0f32]).build().unwrap();
        let builder = || Ddp::builder(&group).params(&params).no_initial_broadcast().idle_timeout(LONG);
        let reduce = |ddp: Ddp| {
            params.grad_mut(0)[0] = 6.0 * (group.rank() + 1) as f32;
            ddp.iteration(group.rank() + 2, |ready| ready(0)).unwrap();
            params.grad(0)[0]
        };
        assert_eq!(reduce(builder().build().unwrap()), 9.0);
        assert_eq!(reduce(builder().division(Division::Active).source_rank(1).build().unwrap()), 9.0);
        let sum = builder().division(Division::Samples).gradient_kind(GradientKind::Sum);
        assert_eq!(reduce(sum.build().unwrap()), 18.0 / 5.0);
        let error = Ddp::builder(&group).params(&params).source_rank(2).build().err().unwrap();
        assert!(error.kind() == ErrorKind::Invalid && error.text().contains("source_rank"), "{error}");
    });
}

#[test]
fn a_stop_ends_all_after_the_same_round() {
    let _deadline = deadline();
    let rounds = ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let join = Join::new([ddp.joinable()]).unwrap();
        let stopper = join.stopper();
        join.run(|| {
            for round in 0..100_000 {
                if group.rank() == 1 && round == 3 {
                    thread::scope(|scope| scope.spawn(|| stopper.stop()).join()).unwrap()?;
                }
                ddp.iteration(1, |ready| ready(0).and_then(|()| ready(1)))?;
                if join.stopped()? {
                    return Ok(round);
                }
            }
            Ok(usize::MAX)
        })
        .inspect(|_| assert!(join.report().unwrap().stopped))
        .unwrap()
    });
    assert!(rounds[0] == rounds[1] && (3..1000).contains(&rounds[0]), "{rounds:?}");
}

#[test]
fn throw_mode_ends_all_with_the_same_use() {
    let _deadline = deadline();
    ranks(3, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let join = Join::builder([ddp.joinable()]).throw_on_exhausted().build().unwrap();
        let error = join
            .run(|| {
                for _ in 0..2 + usize::from(group.rank() != 1) * 5 {
                    ddp.iteration(1, |ready| ready(0).and_then(|()| ready(1)))?;
                }
                Ok(())
            })
            .unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Exhausted, &[1][..]), "{error}");
        group.barrier().unwrap(); // the group is whole
    });
}

#[test]
fn contexts_with_options() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let join = Join::builder([ddp.joinable()]).disabled().build().unwrap();
        join.run(|| ddp.iteration(1, |ready| ready(0).and_then(|()| ready(1)))).unwrap();
        assert_eq!(join.report().unwrap().rounds, 0, "a disabled context does nothing");

        let seen = Arc::new(Mutex::new(Vec::new()));
        let (in_main, in_post) = (Arc::clone(&seen), Arc::clone(&seen));
        let metric = Joinable::builder(&group)
            .name("metric")
            .option("depth")
            .main_hook(move |args| {
                in_main.lock().unwrap().push((args.round(), args.active(), args.option("depth")));
                assert!(!args.notify()?, "a rank that has joined publishes nothing");
                args.group()?.all_reduce(&mut [100f32], Reduce::Sum)?;
                Ok(())
            })
            .post_hook(move |args| {
                in_post.lock().unwrap().push((99, args.authoritative_rank().unwrap(), args.option("none")));
                assert_eq!(args.is_last_joiner(), args.group()?.rank() == 1);
                Ok(())
            })
            .build()
            .unwrap();
        let error = Join::builder([metric.clone()]).hook_option("deep", 1.0).build().err().unwrap();
        assert!(error.kind() == ErrorKind::Invalid && error.text().contains("depth"), "the known ones: {error}");
        let join = Join::builder([metric.clone()])
            .hook_option("depth", 3.0)
            .strict()
            .skew_warning(None)
            .idle_timeout(LONG)
            .build()
            .unwrap();
        join.run(|| {
            for round in 0..1 + 2 * group.rank() {
                let active = metric.notify_active()?;
                assert_eq!(active, if round == 0 { 2 } else { 1 });
                let mut sum = [1f32];
                group.all_reduce(&mut sum, Reduce::Sum)?;
                assert_eq!(sum[0], active as f32, "a shadow contributes nothing");
            }
            Ok(())
        })
        .unwrap();
        let post = (99, 1, None);
        let expected = if group.rank() == 1 { vec![post] } else { vec![(1, 1, Some(3.0)), (2, 1, Some(3.0)), post] };
        assert_eq!(*seen.lock().unwrap(), expected);
        assert!(metric.notify().unwrap(), "outside of a context it does nothing");
    });
}

#[test]
fn a_failing_loop_tells_the_peers() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let join = Join::new([ddp.joinable()]).unwrap();
        let result: Result<(), Box<dyn std::error::Error>> = join.try_run(|| {
            if group.rank() == 0 {
                return Err("batch 7 is not UTF-8".into());
            }
            loop {
                ddp.try_iteration(1, |ready| ready(0).and_then(|()| ready(1)))?;
            }
        });
        let text = result.unwrap_err().to_string();
        assert!(text.contains("batch 7 is not UTF-8"), "{text}");
    });
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let join = Join::new([ddp.joinable()]).unwrap();
        if group.rank() == 0 {
            assert_eq!(panic_of(|| join.run(|| -> ujoin::Result<()> { panic!("out of cheese") })), "out of cheese");
            return;
        }
        let error = join.run(|| -> Result<(), Error> {
            loop {
                ddp.iteration(1, |ready| ready(0).and_then(|()| ready(1)))?;
            }
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
    });
}

/// A hook that panics on its third call: the panic goes on in the call that ran it, the peers learn its text, nothing hangs,
/// and the hooks are dropped.
#[test]
fn panics_in_hooks() {
    let _deadline = deadline();
    let dropped = Arc::new(());
    ranks(2, |group| {
        let (mut calls, token) = (0, Arc::clone(&dropped));
        let metric = Joinable::builder(&group)
            .name("metric")
            .main_hook(move |args| {
                let _ = &token;
                calls += 1;
                if calls == 3 {
                    panic!("call {calls} of the hook");
                }
                Ok(args.group()?.barrier()?)
            })
            .build()
            .unwrap();
        let join = Join::new([metric.clone()]).unwrap();
        let round = || metric.notify().and_then(|_| group.barrier());
        if group.rank() == 0 {
            assert_eq!(panic_of(|| join.run(round)), "call 3 of the hook");
            let error = group.barrier().unwrap_err();
            assert!(error.text().contains("call 3 of the hook"), "the group knows why: {error}");
        } else {
            let error = join.run(|| (0..10).try_for_each(|_| round())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
            assert!(
                error.text().contains("metric") && error.text().contains("panicked: call 3 of the hook"),
                "{error}"
            );
        }
    });
    assert_eq!(Arc::strong_count(&dropped), 1, "every closure is dropped");
}

struct Failing(Arc<AtomicUsize>);

impl Hooks for Failing {
    fn main_hook(&mut self, _: &ujoin::HookArgs) -> ujoin::HookResult {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err("the metric is full".into())
    }
}

#[test]
fn errors_of_hooks() {
    let _deadline = deadline();
    let calls = Arc::new(AtomicUsize::new(0));
    ranks(2, |group| {
        let metric = Joinable::builder(&group).build_with(Failing(Arc::clone(&calls))).unwrap();
        let join = Join::new([metric.clone()]).unwrap();
        let body = || (0..3 * group.rank()).try_for_each(|_| metric.notify_active().map(|_| ()));
        let error = join.run(body).unwrap_err();
        let expected = if group.rank() == 0 { ErrorKind::Callback } else { ErrorKind::Aborted };
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.text().contains("the metric is full"), "{error}");
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&calls), 1);
}

/// Between the library's own uses a hook may look at the parameters; what it leaves in use is its error.
#[test]
fn hooks_use_parameters() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let (in_hook, leak) = (params.clone(), params.clone());
        let counts = Joinable::builder(&group).main_hook(move |args| {
            in_hook.value_mut(1)[0] += 1.0;
            Ok(args.group()?.barrier()?)
        });
        let counts = counts.build().unwrap();
        let join = Join::new([ddp.joinable(), counts.clone()]).unwrap();
        join.run(|| {
            for _ in 0..2 * group.rank() {
                ddp.iteration(1, |ready| ready(0).and_then(|()| ready(1)))?;
                counts.notify()?;
                group.barrier()?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(params.value(1)[0], 0.5, "the authoritative rank's, which ran no hook");

        let leaks = Joinable::builder(&group).main_hook(move |_| {
            std::mem::forget(leak.value(1));
            Ok(())
        });
        let leaks = leaks.build().unwrap();
        let join = Join::new([ddp.joinable(), leaks.clone()]).unwrap();
        let error = join.run(|| (0..2 * group.rank()).try_for_each(|_| leaks.notify_active().map(|_| ()))).unwrap_err();
        assert!(error.text().contains("after a hook, parameter \"bias\" is being read"), "{error}");
    });
}

#[test]
fn objects_dropped_in_any_order() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let opt = Zero::builder(&group, Adam::default()).params(&params).build().unwrap();
        let join = Join::new([ddp.joinable(), opt.joinable()]).unwrap();
        drop(params);
        drop(group);
        join.run(|| {
            ddp.iteration(1, |ready| ready(1).and_then(|()| ready(0)))?;
            opt.step()
        })
        .unwrap();
        drop((ddp, opt, join));
    });
}

// -------------------------------------------------------------------------------------------------------- the optimizer

#[test]
fn hyper_parameters_and_groups() {
    let _deadline = deadline();
    ranks(2, |group| {
        let (params, more) =
            (small().build().unwrap(), Params::builder().tensor("late", &[2], vec![4f64; 2]).build().unwrap());
        let opt = Zero::builder(&group, Sgd { lr: 1.0, momentum: 0.5, ..Sgd::default() }).params(&params);
        let opt = opt.idle_timeout(LONG).build().unwrap();
        assert_eq!(opt.hyper_names(), ["lr", "momentum", "dampening", "nesterov", "weight_decay", "maximize"]);
        opt.add_param_group(&more, &[("lr", 2.0)]).unwrap();
        assert_eq!((opt.group_count(), opt.hyper(0, "lr").unwrap(), opt.hyper(1, "lr").unwrap()), (2, 1.0, 2.0));
        assert_eq!(opt.hyper(1, "momentum").unwrap(), 0.5, "as the optimizer was given");
        params.grad_mut(0).fill(0.25);
        more.grad_mut(0).fill(1.0);
        opt.set_gradient(1, false).unwrap();
        params.grad_mut(1).fill(9.0);
        opt.step().unwrap();
        assert_eq!((params.value(0)[0], params.value(1)[0], more.value(0)[0]), (0.75, 0.5, 2.0));
        opt.set_gradient(1, true).unwrap();
        opt.set_hyper(None, "momentum", 0.0).unwrap();
        opt.set_hyper(Some(1), "lr", 0.0).unwrap();
        opt.step().unwrap();
        assert_eq!((params.value(0)[0], params.value(1)[0], more.value(0)[0]), (0.5, -8.5, 2.0));
        opt.clear_gradients().unwrap();
        assert!(params.grad(0).iter().all(|&g| g == 0.0) && more.grad(0).iter().all(|&g| g == 0.0));
        let error = opt.set_hyper(None, "rate", 1.0).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.text().contains("momentum"), "the known ones: {error}");
        assert_eq!(opt.hyper(7, "lr").unwrap_err().kind(), ErrorKind::Invalid);

        let shards = opt.shards().unwrap();
        assert_eq!(shards.iter().map(|s| s.count).sum::<usize>(), 6 + 2 + 2);
        assert_eq!(shards.iter().find(|s| s.param == 2).map(|s| s.group), Some(1));
        assert!(shards.iter().any(|s| s.rank == 0) && shards.iter().any(|s| s.rank == 1));
    });
    let group = Group::alone().unwrap();
    let params = small().build().unwrap();
    for (names, count) in [
        (Zero::builder(&group, Adam { amsgrad: true, ..Adam::default() }).params(&params).build().unwrap(), 7),
        (Zero::builder(&group, AdamW { maximize: true, ..AdamW::default() }).params(&params).build().unwrap(), 7),
    ] {
        assert_eq!(names.hyper_names().len(), count);
    }
}

/// The defaults that this crate writes down are those of the library.
#[test]
fn defaults_are_the_librarys() {
    let _deadline = deadline();
    let group = Group::alone().unwrap();
    let params = small().build().unwrap();
    let ours = [
        Zero::builder(&group, Sgd::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Adam::default()).params(&params).build().unwrap(),
        Zero::builder(&group, AdamW::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Adagrad::default()).params(&params).build().unwrap(),
        Zero::builder(&group, RmsProp::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Adadelta::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Adamax::default()).params(&params).build().unwrap(),
        Zero::builder(&group, NAdam::default()).params(&params).build().unwrap(),
        Zero::builder(&group, RAdam::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Rprop::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Lamb::default()).params(&params).build().unwrap(),
        Zero::builder(&group, Lion::default()).params(&params).build().unwrap(),
    ];
    for (rule, opt) in (2..=13).zip(ours) {
        for name in opt.hyper_names() {
            assert_eq!(opt.hyper(0, &name).unwrap(), default_of(rule, &name), "{name} of rule {rule}");
        }
    }
}

/// What the library takes for a hyper-parameter that it is not given.
fn default_of(rule: i32, name: &str) -> f64 {
    use std::ptr::{null, null_mut};
    let name = std::ffi::CString::new(name).unwrap();
    let options = ujoin_sys::ujoin_group_options { backend: c"self".as_ptr(), world_size: 1, ..Default::default() };
    let mut data = [0f32; 2];
    let param = ujoin_sys::ujoin_param { data: data.as_mut_ptr().cast(), count: 2, dtype: 1, ..Default::default() };
    let (mut group, mut zero, mut value) = (null_mut(), null_mut(), f64::NAN);
    // SAFETY: handles from the library; the memory outlives them.
    unsafe {
        assert_eq!(ujoin_sys::ujoin_group_create(&options, &mut group), 0);
        assert_eq!(ujoin_sys::zero_create(group, rule, &param, 1, null(), &mut zero), 0);
        assert_eq!(ujoin_sys::zero_get_hyper(zero, 0, name.as_ptr(), &mut value), 0);
        ujoin_sys::zero_destroy(zero);
        ujoin_sys::ujoin_group_destroy(group);
    }
    value
}

#[test]
fn steps_with_a_closure() {
    let _deadline = deadline();
    let dropped = Arc::new(());
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let opt = Zero::builder(&group, Sgd { lr: 0.5, ..Sgd::default() }).params(&params).build().unwrap();
        let token = Arc::clone(&dropped);
        let loss = opt.step_with(|| {
            let _ = &token;
            ddp.iteration(1, |ready| {
                params.grad_mut(0).fill(1.0);
                params.grad_mut(1).fill(1.0);
                ready(1)?;
                ready(0)
            })?;
            assert_eq!(opt.step().unwrap_err().kind(), ErrorKind::State, "not from inside of itself");
            Ok(0.125)
        });
        assert_eq!((loss.unwrap(), params.value(0)[0]), (0.125, 0.5));

        let result: Result<(), Box<dyn std::error::Error>> = opt.try_step_with(|| Err("no such batch".into()));
        assert_eq!(result.unwrap_err().to_string(), "no such batch");
        assert_eq!(opt.step_with(|| Err::<(), _>(Error::program("nor such"))).unwrap_err().text(), "nor such");
        assert_eq!(panic_of(|| opt.step_with(|| -> ujoin::Result<()> { panic!("in the closure") })), "in the closure");
        let held = std::cell::RefCell::new(None);
        let result = opt.step_with(|| {
            held.replace(Some(params.value(1)));
            Ok(())
        });
        let error = result.unwrap_err();
        assert!(error.kind() == ErrorKind::Callback && error.text().contains("\"bias\" is being read"), "{error}");
        drop(held);
        assert_eq!(params.value(0)[0], 0.5, "nothing was changed");
        opt.step().unwrap();
        assert_eq!(params.value(0)[0], 0.0);
    });
    assert_eq!(Arc::strong_count(&dropped), 1);
}

fn trained(group: &Group, params: &Params, steps: usize) -> Zero {
    let opt = Zero::builder(group, Adam { lr: 0.1, ..Adam::default() }).params(params).build().unwrap();
    for step in 0..steps {
        params.grad_mut(0).fill(1.0 + step as f32);
        params.grad_mut(1).fill(-1.0);
        opt.step().unwrap();
    }
    opt
}

#[test]
fn state_dicts() {
    let _deadline = deadline();
    let states = ranks(2, |group| {
        let params = small().build().unwrap();
        let opt = trained(&group, &params, 2);
        assert_eq!(opt.state_dict().err().unwrap().kind(), ErrorKind::State);
        opt.consolidate_state_dict(1).unwrap();
        let state = (group.rank() == 1).then(|| opt.state_dict().unwrap());
        params.grad_mut(0).fill(3.0);
        opt.step().unwrap();
        let after = params.value(0).to_vec();
        (state, after)
    });
    let state = states[1].0.as_ref().unwrap();
    let step = state.iter().find(|i| i.key == "step" && i.owner == Owner::Param("weight", 0)).unwrap();
    assert_eq!(step.value, Value::Number(2.0));
    let first = state.iter().find(|i| i.key == "exp_avg" && i.owner == Owner::Param("weight", 0)).unwrap();
    assert!(matches!(first.value, Value::Tensor(DType::F32, [3, 2], bytes) if bytes.len() == 24));
    assert!((first.tensor::<f32>().unwrap()[5] - 0.29).abs() < 1e-6 && first.tensor::<f64>().is_none());
    assert!(state.iter().any(|i| i.owner == Owner::Group(0) && i.key == "lr" && i.value == Value::Number(0.1)));

    // one rank goes on where two have been
    let group = Group::alone().unwrap();
    let params = small().build().unwrap();
    trained(&group, &params, 2);
    let opt = Zero::builder(&group, Adam::default()).params(&params).build().unwrap();
    opt.load_state_dict(state).unwrap();
    assert_eq!(opt.hyper(0, "lr").unwrap(), 0.1);
    params.grad_mut(0).fill(3.0);
    params.grad_mut(1).fill(-1.0);
    opt.step().unwrap();
    assert_eq!(params.value(0).to_vec(), states[0].1);
    let sgd = Zero::builder(&group, Sgd::default()).params(&params).build().unwrap();
    assert_eq!(sgd.load_state_dict(state).unwrap_err().kind(), ErrorKind::Mismatch, "another rule's");
}

#[test]
fn saving_and_loading() {
    let _deadline = deadline();
    let dir = TempDir::new();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let opt = trained(&group, &params, 3);
        let mut extra = State::new().unwrap();
        extra.set_number("step", 3.0).unwrap();
        extra.set_text("text", "grüße").unwrap();
        extra.set_bytes("rng", &[group.rank() as u8, 0, 255]).unwrap();
        let both = SaveOptions::default().state().parameters().extra(&extra).no_sync();
        opt.save_with(dir.0.join("both"), &both).unwrap();
        opt.save_with(dir.0.join("model.safetensors"), &SaveOptions::default().parameters()).unwrap();
        opt.save(dir.0.join("state")).unwrap();
        let after = {
            params.grad_mut(0).fill(2.0);
            opt.step().unwrap();
            params.value(0).to_vec()
        };

        let fresh = small().build().unwrap();
        let again = Zero::builder(&group, Adam::default()).params(&fresh).build().unwrap();
        let own = again.load_with(dir.0.join("both"), &SaveOptions::default().state().parameters()).unwrap();
        assert_eq!(own.find("text").unwrap().unwrap().value, Value::Text("grüße"));
        assert_eq!(own.find("rng").unwrap().unwrap().value, Value::Bytes(&[group.rank() as u8, 0, 255]));
        assert_eq!(own.find("step").unwrap().unwrap().value, Value::Number(3.0));
        assert!(own.find("none").unwrap().is_none());
        fresh.grad_mut(0).fill(2.0);
        fresh.grad_mut(1).fill(-1.0);
        again.step().unwrap();
        assert_eq!(fresh.value(0).to_vec(), after, "it goes on as if nothing had been");
        assert!(again.load(dir.0.join("state")).unwrap().is_empty());
        let error = again.load(dir.0.join("nowhere")).err().unwrap();
        assert!(error.text().contains("nowhere"), "{error}");
    });
    let file = std::fs::read(dir.0.join("model.safetensors")).unwrap();
    assert!(String::from_utf8_lossy(&file).contains("\"weight\""));
}

#[test]
fn states_by_hand() {
    let mut state = State::new().unwrap();
    assert!(state.is_empty());
    state.set_number("n", 1.0).unwrap();
    state.set_number("n", 2.0).unwrap();
    state.set_tensor(Owner::Param("w", 1), "exp_avg", &[2, 1], &[1.5f32, 2.5]).unwrap();
    assert_eq!(state.len(), 2);
    assert_eq!(state.get(0).unwrap().value, Value::Number(2.0), "replaced");
    let tensor = state.get(1).unwrap();
    assert_eq!((tensor.owner, tensor.tensor::<f32>().unwrap()), (Owner::Param("w", 1), vec![1.5, 2.5]));
    assert_eq!(state.get(2).unwrap_err().kind(), ErrorKind::Invalid);
    let error = state.set_text("a\0b", "").unwrap_err();
    assert!(error.text().contains("key has a NUL character"), "{error}");
    let error = state.set_tensor(Owner::Program, "t", &[3], &[1f32]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}
