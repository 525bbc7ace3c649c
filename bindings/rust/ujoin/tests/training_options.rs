// SPDX-License-Identifier: Apache-2.0
//! What reducers, optimizers and groups can be told beside the usual.
mod common;

use common::{deadline, panic_of, ranks, small};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use ujoin::{
    Adadelta, Adagrad, Adam, Adamax, Bf16, Bucket, BucketHook, BufferTime, CommHook, DType, Ddp, Division, ErrorKind,
    Group, HookWork, Join, Lamb, Lion, NAdam, Params, Partition, RAdam, Reduce, RmsProp, Rprop, Rule, Scaler,
    ScalerState, Schedule, Sgd, StepOptions, Zero, F16,
};

/// One iteration in which every gradient of `params` that is named is this rank's number, from 1.
fn iterate(ddp: &Ddp, params: &Params, group: &Group, which: &[usize]) -> ujoin::Result<()> {
    ddp.iteration(1, |ready| {
        which.iter().try_for_each(|&index| {
            params.grad_mut(index).fill((group.rank() + 1) as f32);
            ready(index)
        })
    })
}

#[test]
fn joined_ranks_shadow_the_programs_collectives() {
    let _deadline = deadline();
    let name = common::fresh("shadow");
    common::ranks_in(2, |rank| {
        let builder = Group::builder().rendezvous(format!("local://{name}")).backend("local").shadow_collectives();
        let group = builder.rank(rank, 2).build().unwrap();
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let seen = Join::new([ddp.joinable()]).unwrap().run(|| {
            let mut seen = Vec::new();
            for _ in 0..1 + rank {
                iterate(&ddp, &params, &group, &[1, 0])?;
                let work = group.start_all_reduce(vec![(rank + 1) as f32], Reduce::Avg)?;
                work.wait()?;
                let ranks = work.contributors();
                seen.push((ranks, work.into_inner()?[0]));
            }
            Ok(seen)
        });
        let both = vec![(vec![0, 1], 1.5)];
        let expected = if rank == 0 { both } else { [both, vec![(vec![1], 2.0)]].concat() };
        assert_eq!(seen.unwrap(), expected);
    });
}

#[test]
fn parameters_without_gradient_in_an_iteration() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().tensor("rare", &[1], vec![0.0]).build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).find_unused().build().unwrap();
        params.grad_mut(2).fill(7.0);
        let own: &[usize] = if group.rank() == 0 { &[0, 1] } else { &[0] };
        let held = params.grad(2);
        let error = iterate(&ddp, &params, &group, own).unwrap_err();
        assert!(error.text().contains("\"rare\" cannot be reduced: it is being read"), "{error}");
        drop(held);
        ddp.finish().unwrap();
        assert_eq!((params.grad(0)[0], params.grad(1)[0], params.grad(2)[0]), (1.5, 0.5, 7.0));
        assert_eq!(ddp.used().unwrap(), [2, 1, 0]);

        let ddp = Ddp::builder(&group).params(&params).static_graph().build().unwrap();
        iterate(&ddp, &params, &group, own).unwrap();
        iterate(&ddp, &params, &group, own).unwrap();
        assert_eq!((params.grad(1)[0], ddp.used().unwrap()), (0.5, vec![2, 1, 0]));
        ddp.forward(1.0).unwrap();
        let error = ddp.ready(2).unwrap_err();
        assert!(error.kind() == ErrorKind::State && error.text().contains("static"), "{error}");
    });
}

#[test]
fn accumulation_and_buckets_in_order_of_use() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).bucket_bytes(8).build().unwrap();
        ddp.set_sync(false).unwrap();
        iterate(&ddp, &params, &group, &[0, 1]).unwrap();
        assert_eq!(params.grad(0)[0], (group.rank() + 1) as f32, "not reduced");
        ddp.set_sync(true).unwrap();
        for _ in 0..3 {
            iterate(&ddp, &params, &group, &[0, 1]).unwrap();
        }
        assert_eq!(params.grad(0)[0], 1.5);
        let report = ddp.report().unwrap();
        assert_eq!((report.iterations, report.rebuilt), (3, true));
    });
}

#[test]
fn ignored_tensors_are_each_ranks_own() {
    let _deadline = deadline();
    ranks(2, |group| {
        let own = vec![group.rank() as f32];
        let params = Params::builder().tensor("w", &[1], own.clone()).ignored("own", &[1], own).build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        params.grad_mut(1).fill(9.0);
        iterate(&ddp, &params, &group, &[0]).unwrap();
        ddp.forward(1.0).unwrap();
        ddp.ready(1).unwrap();
        assert_eq!(params.grad(1)[0], 9.0, "it is not lent");
        assert_eq!((params.value(0)[0], params.value(1)[0]), (0.0, group.rank() as f32));
    });
}

#[test]
fn gradients_in_the_librarys_memory() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        params.grad_mut(0).fill(0.25);
        let before = params.grad(0).as_ptr();
        let ddp = Ddp::builder(&group).params(&params).bucket_view().build().unwrap();
        assert_ne!(params.grad(0).as_ptr(), before);
        assert_eq!(params.grad(0)[..], [0.25; 6], "with what it held");
        let opt = Zero::builder(&group, Sgd { lr: 1.0, ..Sgd::default() }).params(&params).build().unwrap();
        iterate(&ddp, &params, &group, &[1, 0]).unwrap();
        assert_eq!(params.grad(0)[..], [1.5; 6]);
        let held = params.grad(1);
        drop(ddp);
        assert_eq!(held[..], [1.5; 2], "the memory lives on");
        drop(held);
        opt.step().unwrap();
        assert_eq!((params.value(0)[0], params.value(1)[0]), (-0.5, -1.0), "the optimizer keeps it too");
        let error = Ddp::builder(&group).params(&params).bucket_view().build().err().unwrap();
        assert!(error.kind() == ErrorKind::State && error.text().contains("bucket_view comes first"), "{error}");
        drop(opt);
        common::until("gradients are their own again", || params.grad(0)[0] == 0.0);
    });
}

#[test]
fn buffers_are_synchronised() {
    let _deadline = deadline();
    ranks(2, |group| {
        let rank = group.rank() as i64;
        let params = small().build().unwrap();
        let buffers = Params::builder().frozen("count", &[2], vec![rank; 2]).build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).buffers(&buffers).build().unwrap();
        assert_eq!(buffers.value(0)[..], [0, 0], "the source rank's");
        buffers.value_mut(0).fill(5 + rank);
        let held = buffers.value(0);
        let error = ddp.forward(1.0).unwrap_err();
        assert!(error.text().contains("\"count\" is being read"), "{error}");
        drop(held);
        iterate(&ddp, &params, &group, &[0, 1]).unwrap();
        assert_eq!(buffers.value(0)[..], [5, 5], "the lowest rank's");

        let own = Ddp::builder(&group).params(&params).buffers(&buffers).no_buffer_broadcast().build().unwrap();
        buffers.value_mut(0).fill(rank);
        iterate(&own, &params, &group, &[0, 1]).unwrap();
        assert_eq!(buffers.value(0)[..], [rank, rank]);

        let means = Params::builder().frozen("mean", &[1], vec![0f64]).build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).buffers(&means).build().unwrap();
        ddp.set_buffer_hook(BufferTime::BeforeForward, CommHook::all_reduce()).unwrap();
        means.value_mut(0)[0] = rank as f64;
        iterate(&ddp, &params, &group, &[0, 1]).unwrap();
        assert_eq!(means.value(0)[0], 0.5, "the average");

        let ddp = Ddp::builder(&group).params(&params).buffers(&means).build().unwrap();
        let largest = CommHook::closure(|mut bucket| {
            assert!(bucket.params().is_empty() && bucket.is_last() && bucket.source_rank() == 0);
            let mut data = bucket.data::<f64>()?.to_vec();
            bucket.group().all_reduce(&mut data, Reduce::Max)?;
            bucket.data::<f64>()?.copy_from_slice(&data);
            Ok(None)
        });
        ddp.set_buffer_hook(BufferTime::AfterForward, largest).unwrap();
        means.value_mut(0)[0] = rank as f64;
        iterate(&ddp, &params, &group, &[0, 1]).unwrap();
        assert_eq!(means.value(0)[0], 1.0, "the largest");
    });
}

/// Sums halves, and divides when they are there.
struct Halves(Arc<AtomicUsize>);

impl BucketHook for Halves {
    fn start(&mut self, mut bucket: Bucket<'_>) -> HookWork {
        let halves: Vec<F16> = bucket.data::<f32>()?.iter().map(|&g| F16::from(g)).collect();
        assert!(bucket.data::<f64>().is_err() && bucket.dtype() == DType::F32);
        Ok(Some(bucket.group().start_all_reduce(halves, Reduce::Sum)?.into()))
    }

    fn then(&mut self, mut bucket: Bucket<'_>) -> HookWork {
        let sums = bucket.take_result::<F16>().ok_or("no result")?;
        let divisor = bucket.divisor() as f32;
        for (gradient, sum) in bucket.data::<f32>()?.iter_mut().zip(sums) {
            *gradient = f32::from(sum) / divisor;
        }
        self.0.fetch_add(usize::from(bucket.is_shadow()), Ordering::Relaxed);
        Ok(None)
    }
}

#[test]
fn hooks_reduce_buckets() {
    let _deadline = deadline();
    let shadows = Arc::new(AtomicUsize::new(0));
    ranks(2, |group| {
        let params = small().build().unwrap();
        let reduced = |hook: CommHook| {
            let ddp = Ddp::builder(&group).params(&params).build().unwrap();
            ddp.set_comm_hook(hook).unwrap();
            iterate(&ddp, &params, &group, &[1, 0]).unwrap();
            let error = ddp.set_comm_hook(CommHook::f16()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::State, "too late: {error}");
            (params.grad(0)[0], params.grad(1)[0])
        };
        for hook in [CommHook::all_reduce(), CommHook::f16(), CommHook::bf16(), CommHook::low_rank(1, None)] {
            assert_eq!(reduced(hook), (1.5, 1.5));
        }
        let (weight, bias) = reduced(CommHook::low_rank(1, Some(0)));
        assert!((weight - 1.5).abs() < 1e-4 && bias == 1.5, "a constant matrix has rank 1: {weight}");
        assert_eq!(reduced(CommHook::closure(|bucket| bucket.start_all_reduce(Reduce::Max))), (2.0, 2.0));
        assert_eq!(reduced(CommHook::closure(|bucket| bucket.start_broadcast(0))), (1.0, 1.0));
        let places = CommHook::closure(|bucket| {
            assert_eq!((bucket.params().len(), bucket.offsets()[0], bucket.index()), (2, 0, 0));
            assert!(bucket.iteration() == 0 && bucket.is_last() && !bucket.is_shadow());
            Ok(None)
        });
        let own = (group.rank() + 1) as f32;
        assert_eq!(reduced(places), (own, own), "not reduced at all");

        let ddp = Ddp::builder(&group).params(&params).division(Division::Active).build().unwrap();
        ddp.set_comm_hook(CommHook::custom(Halves(Arc::clone(&shadows)))).unwrap();
        let join = Join::new([ddp.joinable()]).unwrap();
        join.run(|| (0..1 + group.rank()).try_for_each(|_| iterate(&ddp, &params, &group, &[1, 0]))).unwrap();
        assert_eq!(params.grad(0)[0], 2.0, "rank 1's alone at last");
    });
    assert_eq!(shadows.load(Ordering::Relaxed), 1);
    common::until("the hooks are dropped", || Arc::strong_count(&shadows) == 1);
}

#[test]
fn failing_hooks() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        ddp.set_comm_hook(CommHook::closure(|_| Err("no bandwidth today".into()))).unwrap();
        let error = iterate(&ddp, &params, &group, &[1, 0]).unwrap_err();
        assert!(error.text().contains("no bandwidth today"), "{error}");
    });
    let group = Group::alone().unwrap();
    let params = small().build().unwrap();
    let ddp = Ddp::builder(&group).params(&params).build().unwrap();
    ddp.set_comm_hook(CommHook::closure(|_| panic!("in the hook"))).unwrap();
    assert_eq!(panic_of(|| iterate(&ddp, &params, &group, &[1, 0])), "in the hook");
}

// -------------------------------------------------------------------------------------------------------- the optimizer

#[test]
fn rules_of_the_programs_own() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let rule = Rule::new("count", |args| {
            assert_eq!((args.dtype(), args.offset(), args.group()), (DType::F32, 0, 0));
            assert!(args.parts::<f64>().is_err());
            let (lr, shape) = (args.hyper("lr") as f32, args.shape().to_vec());
            assert_eq!(shape, if args.name() == "weight" { vec![3, 2] } else { vec![2] });
            assert_eq!(args.param(), usize::from(args.name() == "bias"));
            let step = args.step() as f32;
            let parts = args.parts::<f32>()?;
            assert_eq!(parts.state[0][0], 10.0 + step - 1.0);
            parts.state[0].iter().for_each(|s| assert!(*s >= 10.0));
            for (i, value) in parts.data.iter_mut().enumerate() {
                *value -= lr * parts.grad[i];
            }
            for state in parts.state {
                state.iter_mut().for_each(|s| *s += 1.0);
            }
            Ok(())
        });
        let rule = rule.state("calls").hyper("lr", 0.5).init(|args| {
            args.parts::<f32>()?.state[0].fill(10.0);
            Ok(())
        });
        let opt = Zero::builder(&group, rule).params(&params).build().unwrap();
        assert_eq!((opt.hyper_names(), opt.hyper(0, "lr").unwrap()), (vec!["lr".to_owned()], 0.5));
        params.grad_mut(0).fill(1.0);
        params.grad_mut(1).fill(2.0);
        opt.step().unwrap();
        opt.step().unwrap();
        assert_eq!((params.value(0)[0], params.value(1)[1]), (0.0, -1.5));
        opt.consolidate_state_dict(0).unwrap();
        if group.rank() == 0 {
            let state = opt.state_dict().unwrap();
            assert!(state.iter().any(|i| i.key == "calls" && i.tensor::<f32>() == Some(vec![12.0; 6])));
        }
    });
    let (group, params) = (Group::alone().unwrap(), small().build().unwrap());
    let opt = Zero::builder(&group, Rule::new("bad", |_| Err("no gradient today".into()))).params(&params);
    let error = opt.build().unwrap().step().unwrap_err();
    assert!(error.kind() == ErrorKind::Callback && error.text().contains("no gradient today"), "{error}");
    let opt = Zero::builder(&group, Rule::new("panics", |_| panic!("in the rule"))).params(&params).build().unwrap();
    assert_eq!(panic_of(|| opt.step()), "in the rule");
    let error = Zero::builder(&group, Rule::new("a/b", |_| Ok(()))).params(&params).build().err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("slash"), "{error}");
}

#[test]
fn every_rule_goes_downhill() {
    let _deadline = deadline();
    fn one_step(group: &Group, rule: impl ujoin::Hyper) -> f32 {
        let params = Params::builder().tensor("w", &[4], vec![1f32; 4]).build().unwrap();
        let opt = Zero::builder(group, rule).params(&params).build().unwrap();
        params.grad_mut(0).fill(0.5);
        opt.step().unwrap();
        let value = params.value(0)[0];
        value
    }
    let group = Group::alone().unwrap();
    let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-4, "{found} is not {expected}");
    close(one_step(&group, Adagrad { lr: 0.1, ..Adagrad::default() }), 0.9);
    close(one_step(&group, RmsProp { lr: 0.1, alpha: 0.75, ..RmsProp::default() }), 0.8);
    close(one_step(&group, Adamax { lr: 0.1, ..Adamax::default() }), 0.9);
    close(one_step(&group, Rprop { lr: 0.1, ..Rprop::default() }), 0.9);
    close(one_step(&group, Lion { lr: 0.1, ..Lion::default() }), 0.9);
    close(one_step(&group, Lamb { lr: 0.1, weight_decay: 0.0, ..Lamb::default() }), 0.9);
    close(one_step(&group, RAdam { lr: 0.1, ..RAdam::default() }), 0.95);
    for value in [one_step(&group, NAdam { lr: 0.1, ..NAdam::default() }), one_step(&group, Adadelta::default())] {
        assert!(value < 1.0 && value > 0.8, "{value}");
    }
}

#[test]
fn frozen_for_a_while() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().untrained("later", &[1], vec![1f32]).build().unwrap();
        let rule = Sgd { lr: 1.0, ..Sgd::default() };
        let opt = Zero::builder(&group, rule).params(&params).balance_trainable().build().unwrap();
        (0..3).for_each(|index| params.grad_mut(index).fill(0.5));
        opt.set_frozen(1, true).unwrap();
        opt.step().unwrap();
        assert_eq!((params.value(0)[0], params.value(1)[0], params.value(2)[0]), (0.5, 0.5, 1.0));
        opt.set_frozen(2, false).unwrap();
        opt.step().unwrap();
        assert_eq!((params.value(0)[0], params.value(1)[0], params.value(2)[0]), (0.0, 0.5, 0.5));
        assert_eq!(opt.set_frozen(3, true).unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn clipped_and_skipped_steps() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = Params::builder().tensor("a", &[1], vec![0f32]).tensor("b", &[1], vec![0f32]).build().unwrap();
        let opt = Zero::builder(&group, Sgd { lr: 1.0, ..Sgd::default() }).params(&params).build().unwrap();
        let fill = |a: f32, b: f32| {
            params.grad_mut(0)[0] = a;
            params.grad_mut(1)[0] = b;
        };
        fill(3.0, 4.0);
        let step = opt.step_by(&StepOptions::default().max_norm(1.0)).unwrap();
        assert_eq!((step.skipped, step.norm), (false, Some(5.0)));
        assert!((params.value(0)[0] + 0.6).abs() < 1e-5 && params.grad(0)[0] == 3.0, "as they are used");
        let step = opt.step_by(&StepOptions::default().max_norm(100.0).norm_type(f64::INFINITY)).unwrap();
        assert_eq!(step.norm, Some(4.0));
        assert_eq!(opt.clip_grad_norm(0.5, 2.0).unwrap(), Some(5.0));
        assert!((params.grad(0)[0] - 0.3).abs() < 1e-5);
        fill(f32::NAN, 1.0);
        let before = params.value(1)[0];
        assert_eq!(opt.clip_grad_norm(0.5, 2.0).unwrap(), None);
        let step = opt.step_by(&StepOptions::default().skip_nonfinite()).unwrap();
        assert!(step.skipped && step.norm.is_none() && params.value(1)[0] == before);
    });
}

#[test]
fn loss_scales() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = Params::builder().tensor("a", &[2], vec![0f32; 2]).build().unwrap();
        let opt = Zero::builder(&group, Sgd { lr: 1.0, ..Sgd::default() }).params(&params).build().unwrap();
        let scaler = Scaler::new(ScalerState { scale: 8.0, interval: 2, ..ScalerState::default() }).unwrap();
        let options = StepOptions::default().scaler(&scaler);
        let step = |gradient: f32| {
            let closure = || {
                params.grad_mut(0).fill(gradient * scaler.scale()? as f32);
                Ok::<_, ujoin::Error>(gradient)
            };
            opt.try_step_by_with(&options, closure).unwrap()
        };
        assert_eq!((step(1.0).1.skipped, params.value(0)[0], scaler.scale().unwrap()), (false, -1.0, 8.0));
        assert!(step(f32::INFINITY).1.skipped);
        assert_eq!((params.value(0)[0], scaler.scale().unwrap()), (-1.0, 4.0));
        let join = Join::new([opt.joinable()]).unwrap();
        join.run(|| (0..1 + group.rank()).try_for_each(|_| step(1.0).1.skipped.then_some(()).map_or(Ok(()), Ok)))
            .unwrap();
        let state = scaler.state().unwrap();
        assert_eq!((state.scale, state.skipped, state.good_steps), (8.0, 1, 0), "on the joined rank too");
        assert_eq!(Scaler::new(state).unwrap().state().unwrap(), state);
    });
    let error = Scaler::new(ScalerState { growth: 0.5, ..ScalerState::default() }).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("growth"), "{error}");
    assert_eq!(Scaler::new(ScalerState::default()).unwrap().state().unwrap(), ScalerState::default());
}

#[test]
fn schedules() {
    let at = |schedule: &Schedule, step| (schedule.at(step).unwrap() * 1e6).round() / 1e6;
    let cosine = Schedule::cosine(1.0, 10).warmup(2).minimum(0.2);
    assert_eq!([0, 1, 6, 10, 99].map(|step| at(&cosine, step)), [0.5, 1.0, 0.6, 0.2, 0.2]);
    assert_eq!([0, 5, 10].map(|step| at(&Schedule::linear(2.0, 10), step)), [2.0, 1.0, 0.0]);
    assert_eq!([2, 3, 6].map(|step| at(&Schedule::steps(1.0, 3, 0.5), step)), [1.0, 0.5, 0.25]);
    assert_eq!(at(&Schedule::constant(3.0), 7), 3.0);
    assert_eq!(Schedule::cosine(1.0, 0).at(1).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn sixteen_bits() {
    let _deadline = deadline();
    ranks(2, |group| {
        let tiny = Bf16::from(2f32.powi(-10));
        let trained = |builder: fn(ujoin::ZeroBuilder) -> ujoin::ZeroBuilder| {
            let params = Params::builder().tensor("w", &[1000], vec![Bf16::from(1.0); 1000]).build().unwrap();
            let rule = Sgd { lr: 1.0, ..Sgd::default() };
            let opt = builder(Zero::builder(&group, rule).params(&params)).build().unwrap();
            params.grad_mut(0).fill(tiny);
            (0..8).for_each(|_| opt.step().unwrap());
            let mean = params.value(0).iter().map(|&v| f32::from(v)).sum::<f32>() / 1000.0;
            (mean, opt.memory().unwrap())
        };
        let (with_copy, memory) = trained(|b| b);
        assert_eq!(with_copy, 1.0 - 8.0 * 2f32.powi(-10), "small steps add up");
        assert_eq!((memory.parameters, memory.gradients, memory.full_state), (2000, 2000, 4000));
        let owner = memory.state > 0;
        assert!(memory.state == if owner { 4000 } else { 0 }, "{memory:?}");
        let (without, memory) = trained(|b| b.no_master_copy());
        assert_eq!((without, memory.full_state), (1.0, 0), "they are lost");
        let (random, _) = trained(|b| b.no_master_copy().stochastic_rounding().seed(3));
        assert!((random - with_copy).abs() < 2e-3, "right on average: {random}");
    });
}

#[test]
fn the_partition_by_elements_gives_the_same_bits() {
    let _deadline = deadline();
    ranks(2, |group| {
        let train = |partition| {
            let params = Params::<f32>::builder().tensor("w", &[1000], vec![1.0; 1000]).build().unwrap();
            let builder = Zero::builder(&group, Adam { lr: 0.1, ..Adam::default() }).params(&params);
            let opt = builder.partition(partition).build().unwrap();
            for step in 0..3 {
                for (i, grad) in params.grad_mut(0).iter_mut().enumerate() {
                    *grad = (i % 7) as f32 - step as f32;
                }
                opt.step_by(&StepOptions::default().max_norm(1.0)).unwrap();
            }
            let values = params.value(0).to_vec();
            (opt, values)
        };
        let (whole, expected) = train(Partition::Parameters);
        let (parts, got) = train(Partition::Elements);
        assert_eq!(got, expected);
        assert_eq!(whole.shards().unwrap().len(), 1);
        let shards = parts.shards().unwrap();
        assert_eq!((shards[0].count, shards[1].offset, shards[1].rank), (496, 496, 1));
        let params = small().build().unwrap();
        let own = Rule::new("own", |_| Ok(())).per_tensor();
        for builder in [Zero::builder(&group, Lamb::default()), Zero::builder(&group, own)] {
            let error = builder.params(&params).partition(Partition::Elements).build().err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.text().contains("needs whole parameters"), "{error}");
        }
    });
}

#[test]
fn parameters_move_into_the_librarys_memory() {
    let _deadline = deadline();
    let (group, params) = (Group::alone().unwrap(), small().build().unwrap());
    let builder = Zero::builder(&group, Sgd { lr: 0.5, ..Sgd::default() }).params(&params);
    let opt = builder.bucket_view().consolidate_timeout(common::LONG).build().unwrap();
    let place = |index| opt.with_value(index, |value: &mut [f32]| value.as_ptr() as usize).unwrap();
    assert_eq!(place(1), place(0) + 24); // side by side
    params.grad_mut(0).fill(1.0);
    params.grad_mut(1).fill(1.0);
    opt.step().unwrap();
    assert_eq!(opt.with_value(0, |value: &mut [f32]| value.to_vec()).unwrap(), [0.5; 6]);
    assert_eq!(params.value(0)[0], 1.0);
    {
        let _reading = params.value(0);
        assert_eq!(opt.set_frozen(0, true).unwrap_err().kind(), ErrorKind::State);
        // it would be written
    }
    opt.set_frozen(0, true).unwrap();
    assert_eq!(params.value(0).to_vec(), [0.5; 6]);
    opt.with_value(0, |value: &mut [f32]| value.fill(3.0)).unwrap();
    assert_eq!(params.value(0)[5], 3.0);
    opt.set_frozen(0, false).unwrap();
    opt.step().unwrap();
    assert_eq!(opt.with_value(0, |value: &mut [f32]| value[5]).unwrap(), 2.5);
    assert_eq!(opt.with_value(0, |_: &mut [f64]| ()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(opt.with_value(2, |_: &mut [f32]| ()).unwrap_err().kind(), ErrorKind::Invalid);
    opt.consolidate_state_dict(0).unwrap();
    opt.state_dict().unwrap();
    opt.step().unwrap();
    let error = opt.state_dict().err().unwrap();
    assert!(error.kind() == ErrorKind::State && error.text().contains("outdated"), "{error}");
}

#[test]
fn a_reducer_makes_the_steps() {
    let _deadline = deadline();
    ranks(2, |group| {
        let train = |overlap: bool| {
            let params = small().build().unwrap();
            let ddp = Ddp::builder(&group).params(&params).build().unwrap();
            let builder = Zero::builder(&group, Adam::default()).params(&params);
            let opt = if overlap { builder.ddp(&ddp) } else { builder }.build().unwrap();
            for step in 0..3 {
                let backward = |ready: &ujoin::Ready| {
                    for index in 0..2 {
                        let value = params.value(index)[0];
                        params.grad_mut(index).fill(value + (step + group.rank()) as f32);
                        ready(index)?;
                    }
                    Ok(())
                };
                ddp.iteration(1, backward).unwrap();
                if !overlap {
                    opt.step().unwrap();
                }
            }
            if overlap {
                let error = opt.step().unwrap_err();
                assert!(error.kind() == ErrorKind::State && error.text().contains("options.ddp"), "{error}");
                ddp.forward(1.0).unwrap();
                (0..2).for_each(|index| ddp.ready(index).unwrap());
                let reading = params.value(0);
                let error = ddp.finish().unwrap_err(); // it would be written
                assert!(error.kind() == ErrorKind::State && error.text().contains("cannot be updated"), "{error}");
                drop(reading);
                let before = params.value(0).to_vec();
                ddp.finish().unwrap();
                assert_ne!(params.value(0).to_vec(), before);
                return before;
            }
            let values = params.value(0).to_vec();
            values
        };
        assert_eq!(train(true), train(false));
    });
}
