// SPDX-License-Identifier: Apache-2.0
//! Stores, groups, operations and work in flight.
mod common;

use common::{deadline, fresh, local, processes, ranks, ranks_in, until, LONG};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use ujoin::{Bf16, ErrorKind, Group, Reduce, Store, F16};

fn every_operation(group: &Group) {
    let (rank, size) = (group.rank(), group.size());
    let sum: usize = (1..=size).sum();
    let mut data = vec![(rank + 1) as f32; 1000];
    group.all_reduce(&mut data, Reduce::Sum).unwrap();
    assert_eq!(data, vec![sum as f32; 1000]);

    let mut recv = [0i64; 3];
    group.all_reduce_into(&[rank as i64, 5, -(rank as i64)], &mut recv, Reduce::Max).unwrap();
    assert_eq!(recv, [size as i64 - 1, 5, 0]);
    group.all_reduce_into(&[rank as i64, 5, -(rank as i64)], &mut recv, Reduce::Min).unwrap();
    assert_eq!(recv, [0, 5, -(size as i64 - 1)]);

    let mut mean = [rank as f64];
    group.all_reduce(&mut mean, Reduce::Avg).unwrap();
    assert_eq!(mean, [(size - 1) as f64 / 2.0]);

    let mut bytes = *if rank == size - 1 { b"text" } else { b"...." };
    group.broadcast(&mut bytes, size - 1).unwrap();
    assert_eq!(&bytes, b"text");

    let mut products = [2i32, 100_000];
    group.all_reduce(&mut products, Reduce::Prod).unwrap();
    assert_eq!(products, [2i32.pow(size as u32), 100_000i32.wrapping_pow(size as u32)]);
    let mut octets = [100u8];
    group.all_reduce(&mut octets, Reduce::Sum).unwrap();
    assert_eq!(octets, [(100 * size) as u8], "bytes wrap");

    let mut all = vec![0i32; 2 * size];
    group.all_gather(&[rank as i32, -1], &mut all).unwrap();
    let expected: Vec<i32> = (0..size as i32).flat_map(|r| [r, -1]).collect();
    assert_eq!(all, expected);
    let mut own = vec![0i32; 2 * size];
    own[2 * rank..2 * rank + 2].copy_from_slice(&[rank as i32, -1]);
    group.all_gather_in_place(&mut own).unwrap();
    assert_eq!(own, expected);

    let mut part = [0f32; 2];
    let send: Vec<f32> = (0..2 * size).map(|i| i as f32).collect();
    group.reduce_scatter(&send, &mut part, Reduce::Sum).unwrap();
    assert_eq!(part, [(2 * rank * size) as f32, ((2 * rank + 1) * size) as f32]);

    let mut halves = [F16::from(1.5)];
    group.all_reduce(&mut halves, Reduce::Sum).unwrap();
    assert_eq!(f32::from(halves[0]), 1.5 * size as f32);
    let mut brains = [Bf16::from(1.5)];
    group.all_reduce(&mut brains, Reduce::Sum).unwrap();
    assert_eq!(f32::from(brains[0]), 1.5 * size as f32);
    group.barrier().unwrap();
}

fn every_work(group: &Group) {
    let (rank, size) = (group.rank(), group.size());
    let sum = (1..=size).sum::<usize>() as f32;
    let works = [
        group.start_all_reduce(vec![(rank + 1) as f32; 100_000], Reduce::Sum).unwrap(),
        group.start_all_reduce_into(vec![(rank + 1) as f32; 10], vec![0.0; 10], Reduce::Sum).unwrap(),
        group.start_broadcast(vec![if rank == 0 { sum } else { -1.0 }; 10], 0).unwrap(),
    ];
    for work in works {
        work.wait().unwrap();
        assert!(work.test().unwrap(), "done stays done");
        assert!(work.into_inner().unwrap().iter().all(|&v| v == sum));
    }
    let mut place = vec![-1i32; size];
    place[rank] = rank as i32;
    let gathered: Vec<i32> = (0..size as i32).collect();
    assert_eq!(group.start_all_gather(vec![rank as i32], vec![-1; size]).unwrap().into_inner().unwrap(), gathered);
    assert_eq!(group.start_all_gather_in_place(place).unwrap().into_inner().unwrap(), gathered);
    let scattered = group.start_reduce_scatter(vec![1i32; size], vec![0], Reduce::Sum).unwrap();
    assert_eq!(scattered.into_inner().unwrap(), [size as i32]);
}

#[test]
fn operations_of_threads() {
    let _deadline = deadline();
    for size in [1, 2, 3] {
        ranks(size, |group| {
            every_operation(&group);
            every_work(&group);
            assert!(group.close(LONG).unwrap());
        });
    }
}

#[test]
fn operations_of_processes() {
    let _deadline = deadline();
    if let Some(group) = processes("operations_of_processes", 3) {
        let info = group.info().unwrap();
        assert_eq!((info.backend.as_str(), info.world_size, info.local_size), ("shm", 3, 3));
        assert_eq!((info.rank, info.local_rank), (group.rank(), group.rank()));
        every_operation(&group);
        every_work(&group);
        assert!(group.close(LONG).unwrap());
    }
}

#[test]
fn threads_of_a_group() {
    let _deadline = deadline();
    let group = Group::builder().backend("self").rank(0, 1).threads(3).build().unwrap();
    assert_eq!(group.info().unwrap().threads, 3);
    assert!(Group::alone().unwrap().info().unwrap().threads >= 1);
    let error = Group::builder().backend("self").rank(0, 1).threads(5000).build().err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("threads is 5000"), "{error}");
}

#[test]
fn a_group_alone() {
    let _deadline = deadline();
    let group = Group::alone().unwrap();
    assert_eq!((group.rank(), group.size(), group.info().unwrap().backend), (0, 1, "self".to_owned()));
    every_operation(&group);
    assert!(group.close(LONG).unwrap());
    let error = group.barrier().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
}

#[test]
fn what_is_wrong_is_said() {
    let _deadline = deadline();
    let error = Group::builder().backend("carrier pigeon").rank(0, 1).build().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.text().contains("carrier pigeon"), "{error}");
    let error = Group::builder().rendezvous("local://a\0b").rank(0, 1).build().err().unwrap();
    assert_eq!(error.to_string(), "rendezvous has a NUL character at byte 9: \"local://a\\0b\"");
    let error = Group::builder().rank(2, 2).build().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    ranks(2, |group| {
        let error = group.broadcast(&mut [0f32], 7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.text().contains("root"), "{error}");
        let mut data = vec![0f32; 4 + group.rank()];
        let error = group.all_reduce(&mut data, Reduce::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(error.text().contains('4') && error.text().contains('5'), "both counts: {error}");
    });
}

#[test]
fn a_deadline_names_who_is_missing() {
    let _deadline = deadline();
    let name = fresh("missing");
    thread::scope(|scope| {
        let (done, late) = std::sync::mpsc::channel::<()>();
        scope.spawn(|| {
            let group = local(&name, 1, 2);
            let _ = late.recv(); // comes when rank 0 has given up
            drop((group, late));
        });
        let group = local(&name, 0, 2);
        let error = group.timeout(Duration::from_millis(50)).barrier().unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Timeout, &[1][..]), "{error}");
        assert_eq!(error.kind().name(), "UJOIN_E_TIMEOUT");
        drop(done);
    });
}

#[test]
fn waits_run_out_and_works_stay() {
    let _deadline = deadline();
    let name = fresh("wait");
    let came = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let group = local(&name, 1, 2);
            until("rank 0 has waited in vain", || came.load(Ordering::Acquire) == 1);
            assert_eq!(group.start_all_reduce(vec![2f64; 9], Reduce::Sum).unwrap().into_inner().unwrap(), [5.0; 9]);
            assert!(group.close(LONG).unwrap());
        });
        let group = local(&name, 0, 2);
        let work = group.start_all_reduce(vec![3f64; 9], Reduce::Sum).unwrap();
        assert!(!work.test().unwrap());
        assert!(!work.wait_for(Duration::from_millis(20)).unwrap(), "the peer is not there");
        came.store(1, Ordering::Release);
        assert!(work.wait_for(LONG).unwrap());
        assert_eq!(work.into_inner().unwrap(), [5.0; 9]);
        assert!(group.close(LONG).unwrap());
    });
}

/// The buffer of a work that nobody waits for lives on until the operation is done; the peers get its part.
#[test]
fn works_that_are_dropped_go_on() {
    let _deadline = deadline();
    ranks(2, |group| {
        for round in 0..50 {
            let work = group.start_all_reduce(vec![1f32; 10_000], Reduce::Sum).unwrap();
            if group.rank() == 0 {
                drop(work);
            } else {
                assert_eq!(work.into_inner().unwrap()[round], 2.0);
            }
        }
        group.barrier().unwrap();
    });
}

#[test]
fn aborts_wake_whoever_waits() {
    let _deadline = deadline();
    let (name, (sender, aborters)) = (fresh("abort"), std::sync::mpsc::channel());
    let waits = || {
        let group = local(&name, 0, 2);
        sender.send(group.aborter()).unwrap();
        group.barrier().unwrap_err() // rank 1 does not come
    };
    thread::scope(|scope| {
        let thread = scope.spawn(waits);
        let peer = local(&name, 1, 2);
        aborters.recv_timeout(LONG).unwrap().abort("the \"coffee\" is ready");
        let error = thread.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
        assert!(error.text().contains("the \"coffee\" is ready"), "{error}");
        // The barrier that rank 0 was in may still succeed here: its part was done.
        let error = peer.barrier().and_then(|()| peer.barrier()).unwrap_err();
        assert!(error.kind() == ErrorKind::Aborted && error.text().contains("coffee"), "{error}");
    });
    let aborted = AtomicBool::new(false);
    ranks(2, |group| {
        let error = if group.rank() == 0 {
            let work = group.start_all_reduce(vec![1f32], Reduce::Sum).unwrap();
            work.aborter().abort("");
            aborted.store(true, Ordering::Release);
            work.wait().unwrap_err()
        } else {
            until("the work is aborted", || aborted.load(Ordering::Acquire));
            // What rank 0 had brought may still count here; another operation would differ from its.
            group.all_reduce(&mut [1f32], Reduce::Sum).and_then(|()| group.barrier()).unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
    });
}

/// Each thread's failures have its own text, however many threads fail at once.
#[test]
fn errors_of_many_threads() {
    let _deadline = deadline();
    thread::scope(|scope| {
        for t in 0..16 {
            scope.spawn(move || {
                for i in 0..2000 {
                    let name = format!("backend-{t}-{i}");
                    let error = Group::builder().backend(name.as_str()).rank(0, 1).build().err().unwrap();
                    assert!(error.text().contains(&name), "{error}");
                }
            });
        }
    });
}

#[test]
fn groups_move_between_threads_one_call_at_a_time() {
    let _deadline = deadline();
    let group = Group::alone().unwrap();
    let group = thread::spawn(move || group.barrier().map(|()| group)).join().unwrap().unwrap();
    let mut one = [1f32];
    group.all_reduce(&mut one, Reduce::Sum).unwrap();
    assert_eq!(one, [1.0]);
}

#[test]
fn stores() {
    let _deadline = deadline();
    let server = Store::builder("tcp://127.0.0.1:0").secret("s").listen().open().unwrap();
    let client = Store::builder(server.url()).secret("s").timeout(LONG).open().unwrap();
    let big: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    client.set("big", &big).unwrap();
    assert_eq!(server.get("big", LONG).unwrap().unwrap(), big);
    client.set("empty", b"").unwrap();
    assert_eq!(server.get("empty", LONG).unwrap().unwrap(), b"");
    assert_eq!(client.get("absent", Duration::ZERO).unwrap(), None);
    assert_eq!(client.add("count", 5).unwrap(), 5);
    assert_eq!(server.add("count", -2).unwrap(), 3);
    let error = client.add("big", 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let view = client.prefix("job/").unwrap();
    view.set("key", b"v").unwrap();
    assert_eq!(server.get("job/key", LONG).unwrap().unwrap(), b"v");
    assert!(server.wait(["job/key", "count"], LONG).unwrap());
    assert!(!server.wait(["job/key", "never"], Duration::from_millis(5)).unwrap());

    let waiting = Store::builder(server.url()).secret("s").open().unwrap();
    let aborter = waiting.aborter();
    let thread = thread::spawn(move || waiting.get("never", LONG));
    aborter.abort("");
    assert_eq!(thread.join().unwrap().unwrap_err().kind(), ErrorKind::Aborted);
    client.abort();
    assert_eq!(client.get("never", LONG).unwrap_err().kind(), ErrorKind::Aborted);
}

#[test]
fn groups_meet_in_a_store() {
    let _deadline = deadline();
    let name = fresh("store");
    ranks_in(2, |rank| {
        let store = Store::open(format!("memory://{name}")).unwrap();
        assert_eq!(store.url(), "");
        let builder = Group::builder().store(&store).backend("shm").name("g").rank(rank, 2);
        let group = builder.timeout(LONG).rendezvous_timeout(LONG).build().unwrap();
        drop(store); // the group keeps it
        group.barrier().unwrap();
    });
}
