// SPDX-License-Identifier: Apache-2.0
//! Who may use parameters when, and what is Send and Sync.
mod common;

use common::{deadline, panic_of, ranks, small};
use std::thread;
use ujoin::{AdamW, Ddp, Element, ErrorKind, Group, Join, Params, Sgd, Zero};

#[test]
fn references_are_checked() {
    let params = small().build().unwrap();
    assert_eq!((params.len(), params.index("bias"), params.index("b")), (2, Some(1), None));
    assert_eq!((params.name(0), params.shape(0)), ("weight", vec![3, 2]));
    let (one, two) = (params.value(0), params.value(0));
    assert_eq!((&one[..], &two[..]), (&[1.0f32; 6][..], &[1.0; 6][..]));
    let text = panic_of(|| params.value_mut(0));
    assert_eq!(text, "parameter \"weight\" cannot be used now: it is being read through a Ref");
    params.grad_mut(0)[3] = 7.0; // the gradient is apart from the values, and other tensors are
    params.value_mut(1)[0] = 2.0;
    drop((one, two));
    let mut all = params.value_mut(0);
    all[5] = 3.0;
    let text = panic_of(|| params.value(0));
    assert_eq!(text, "parameter \"weight\" cannot be used now: it is being written through a RefMut");
    drop(all);
    assert_eq!(params.clone().value(0)[5], 3.0, "a clone is the same parameters");
    assert_eq!(params.value(0).as_ptr() as usize % 64, 0);
}

#[test]
fn wrong_parameters_are_refused() {
    let error = Params::builder().tensor("w", &[2, 3], vec![0f32; 5]).build().err().unwrap();
    assert_eq!(error.to_string(), "parameter \"w\" of shape [2, 3] has 5 values");
    let error = Params::builder().tensor("w", &[usize::MAX, 3], vec![0f32]).build().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let frozen = Params::builder().frozen("f", &[], vec![1f32]).build().unwrap();
    assert!(panic_of(|| frozen.grad(0)).contains("frozen"));

    let group = Group::alone().unwrap();
    let twice = Params::builder().tensor("w", &[1], vec![0f32]).tensor("w", &[1], vec![0f32]).build().unwrap();
    let error = Ddp::builder(&group).params(&twice).build().err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("\"w\""), "{error}");
    let error = Zero::builder(&group, Sgd::default()).build().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "nothing to train: {error}");
    drop(twice.value_mut(0)); // the failed calls have given all back
}

#[test]
fn the_library_waits_for_no_reference() {
    let _deadline = deadline();
    let group = Group::alone().unwrap();
    let params = small().build().unwrap();
    let opt = Zero::builder(&group, AdamW::default()).params(&params).build().unwrap();
    let held = params.grad_mut(1);
    let error = opt.step().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
    assert_eq!(
        error.to_string(),
        "the gradient of parameter \"bias\" is being written through a RefMut: drop it first"
    );
    drop(held);
    opt.step().unwrap();

    let held = params.value(0);
    let error = Join::new([opt.joinable()]).unwrap().finish().unwrap_err();
    assert_eq!(error.to_string(), "parameter \"weight\" is being read through a Ref: drop it first");
    assert!(Ddp::builder(&group).params(&params).build().is_err());
    drop(held);
}

/// From `ready` to the end of the iteration a gradient is the library's, on every thread.
#[test]
fn gradients_in_flight_are_not_lent() {
    let _deadline = deadline();
    ranks(2, |group| {
        let params = small().build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).build().unwrap();
        let opt = Zero::builder(&group, Sgd { lr: 1.0, ..Sgd::default() }).params(&params).build().unwrap();
        ddp.iteration(1, |ready| {
            params.grad_mut(1).fill(group.rank() as f32);
            let held = params.grad(1);
            let error = ready(1).unwrap_err();
            assert!(error.text().contains("\"bias\" cannot be reduced: it is being read"), "{error}");
            drop(held);
            ready(1)?;
            let text = panic_of(|| params.grad(1));
            assert!(text.contains("it is being reduced"), "{text}");
            assert_eq!(ready(1).unwrap_err().kind(), ErrorKind::State, "ready twice");
            assert_eq!(ready(2).unwrap_err().kind(), ErrorKind::Invalid, "no such parameter");
            let error = opt.step().unwrap_err();
            assert!(error.text().contains("is being reduced"), "{error}");
            let error = ddp.finish().unwrap_err();
            assert!(error.text().contains("weight"), "the missing one is named: {error}");
            assert!(panic_of(|| params.grad(1)).contains("being reduced"), "still in flight");
            thread::scope(|scope| scope.spawn(|| params.grad_mut(0).fill(2.0)).join()).unwrap();
            assert_eq!(params.value(1)[0], 0.5, "values are free meanwhile");
            ready(0)
        })
        .unwrap();
        assert_eq!((params.grad(0)[0], params.grad(1)[0]), (2.0, 0.5));
        assert!(ddp.ready(0).unwrap_err().text().contains("outside of an iteration"));
        params.grad_mut(0).fill(0.0); // and given back at once
        opt.step().unwrap();
        assert_eq!(params.value(1)[..], [0.0, 0.0]);
    });
}

/// What an iteration that never ended had comes back when the library lets go of it.
#[test]
fn a_dropped_reducer_gives_gradients_back() {
    let _deadline = deadline();
    let group = Group::alone().unwrap();
    let params = small().build().unwrap();
    let ddp = Ddp::builder(&group).params(&params).build().unwrap();
    ddp.forward(1.0).unwrap();
    ddp.ready(0).unwrap();
    assert!(panic_of(|| params.grad(0)).contains("being reduced"));
    drop(ddp);
    common::until("the gradient is free", || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(params.grad(0)))).is_ok()
    });
}

/// `ready` may be called from several threads at once.
#[test]
fn gradients_from_several_threads() {
    let _deadline = deadline();
    ranks(2, |group| {
        let tensors = (0..16).fold(Params::builder(), |b, i| b.tensor(format!("t{i}"), &[1000], vec![0f32; 1000]));
        let params = tensors.build().unwrap();
        let ddp = Ddp::builder(&group).params(&params).first_bucket_bytes(4000).bucket_bytes(8000).build().unwrap();
        for _ in 0..20 {
            ddp.iteration(1, |ready| {
                thread::scope(|scope| {
                    for first in 0..4 {
                        let params = &params;
                        scope.spawn(move || {
                            for i in (first..16).step_by(4) {
                                params.grad_mut(i).fill(i as f32);
                                ready(i).unwrap();
                            }
                        });
                    }
                });
                Ok(())
            })
            .unwrap();
            assert!((0..16).all(|i| params.grad(i).iter().all(|&g| g == i as f32)));
        }
        assert_eq!(ddp.report().unwrap().iterations, 20);
        assert!(ddp.report().unwrap().buckets > 4);
    });
}

#[test]
fn other_element_types() {
    let _deadline = deadline();
    fn reduced<E: Element + PartialEq + std::fmt::Debug>(group: &Group, three: E, two: E) {
        let params = Params::builder().tensor("p", &[2], vec![three; 2]).build().unwrap();
        let ddp = Ddp::builder(group).params(&params).build().unwrap();
        params.grad_mut(0).fill(if group.rank() == 0 { three } else { E::default() });
        ddp.iteration(1, |ready| ready(0)).unwrap();
        assert_eq!(params.grad(0)[..], [two; 2]);
    }
    ranks(2, |group| {
        reduced(&group, 4f64, 2f64);
        reduced(&group, ujoin::F16::from(4.0), ujoin::F16::from(2.0));
        reduced(&group, ujoin::Bf16::from(4.0), ujoin::Bf16::from(2.0));
    });
    let error = Zero::builder(&Group::alone().unwrap(), Sgd::default())
        .params(&Params::builder().tensor("p", &[1], vec![1i32]).build().unwrap())
        .build()
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// Answers whether a type has a marker: the inherent constant is taken if it applies, else that of the trait.
macro_rules! has {
    ($type:ty: $marker:path) => {{
        #[allow(dead_code)]
        trait Fallback {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Fallback for T {}
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        impl<T: ?Sized + $marker> Probe<T> {
            const HAS: bool = true;
        }
        <Probe<$type>>::HAS
    }};
}

#[test]
fn send_and_sync_are_honest() {
    macro_rules! moves_but_is_not_shared {
        ($($type:ty),*) => { $(assert!(has!($type: Send) && !has!($type: Sync), stringify!($type));)* };
    }
    macro_rules! any_thread {
        ($($type:ty),*) => { $(assert!(has!($type: Send) && has!($type: Sync), stringify!($type));)* };
    }
    moves_but_is_not_shared!(
        ujoin::Store,
        Group,
        Ddp,
        Zero,
        Join,
        ujoin::Joinable,
        ujoin::Work<f32>,
        ujoin::State,
        ujoin::Workers
    );
    any_thread!(Params, ujoin::Error, ujoin::Aborter, ujoin::Stopper, ujoin::Signaller);
    any_thread!(ujoin::Ref<'static, f32>, ujoin::RefMut<'static, f32>);
}
