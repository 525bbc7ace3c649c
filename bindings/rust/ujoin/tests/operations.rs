// SPDX-License-Identifier: Apache-2.0
//! Rooted operations, parts of unequal length, messages, lists of operations, groups that are split off.
mod common;

use common::{deadline, fresh, local, processes, ranks, until, LONG};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use ujoin::{Bf16, ErrorKind, Group, Op, Reduce, Work};

/// What rank `from` has for rank `to`: as many elements as both together, which tell where they come from.
fn letter(from: usize, to: usize) -> Vec<i32> {
    vec![(100 * from + to) as i32; from + to]
}

fn rooted(group: &Group, root: usize) {
    let (rank, size) = (group.rank(), group.size());
    let mut data = [rank as f32, 1.0];
    group.reduce(&mut data, root, Reduce::Sum).unwrap();
    let sum = (0..size).sum::<usize>() as f32;
    assert_eq!(data, if rank == root { [sum, size as f32] } else { [rank as f32, 1.0] }, "others' memory is only read");
    let mut product = [-1i64];
    group.reduce_into(&[rank as i64 + 1], &mut product, root, Reduce::Prod).unwrap();
    assert_eq!(product, [if rank == root { (1..=size as i64).product() } else { -1 }]);

    let mut all = vec![-1i32; if rank == root { 2 * size } else { 0 }];
    group.gather(&[rank as i32, 7], &mut all, root).unwrap();
    if rank == root {
        assert_eq!(all, (0..size as i32).flat_map(|r| [r, 7]).collect::<Vec<_>>());
    }
    let mut own = vec![-1i32; size];
    own[rank] = rank as i32;
    let gather =
        if rank == root { Op::gather_in_place(&mut own, root) } else { Op::gather(vec![rank as i32], vec![], root) };
    group.submit([gather]).unwrap();
    if rank == root {
        assert_eq!(own, (0..size as i32).collect::<Vec<_>>());
    }

    let send: Vec<u8> = (0..2 * size as u8).collect();
    let mut part = [0u8; 2];
    group.scatter(if rank == root { &send } else { &[] }, &mut part, root).unwrap();
    assert_eq!(part, [2 * rank as u8, 2 * rank as u8 + 1]);
    let mut other = [9u8; 2];
    group
        .submit([if rank == root { Op::scatter_in_place(&send, root) } else { Op::scatter(&[], &mut other, root) }])
        .unwrap();
    assert_eq!(other, if rank == root { [9, 9] } else { part });
}

fn unequal(group: &Group) {
    let (rank, size) = (group.rank(), group.size());
    let letters = |of: &dyn Fn(usize) -> Vec<i32>| -> Vec<i32> { (0..size).flat_map(of).collect() };
    let lengths: Vec<usize> = (0..size).map(|k| k + 1).collect();
    let total: usize = lengths.iter().sum();

    let mut all = vec![-1i32; total];
    let expected = letters(&|k| letter(k, 1));
    let gather = |recv| Op::all_gather(letter(rank, 1), recv).recv_counts(lengths.clone());
    group.submit([gather(&mut all[..])]).unwrap();
    assert_eq!(all, expected);
    let root = size - 1;
    let mut at_root = vec![-1i32; if rank == root { total } else { 0 }];
    let op = Op::gather(letter(rank, 1), &mut at_root, root);
    group.submit([if rank == root { op.recv_counts(lengths.clone()) } else { op }]).unwrap();
    assert_eq!(at_root, if rank == root { expected.clone() } else { vec![] });
    let mut part = vec![-1i32; rank + 1];
    let op = Op::scatter(at_root, &mut part, root);
    group.submit([if rank == root { op.send_counts(lengths.clone()) } else { op }]).unwrap();
    assert_eq!(part, letter(rank, 1));

    let mut sums = vec![-1i32; rank + 1];
    group.submit([Op::reduce_scatter(&expected, &mut sums, Reduce::Sum).recv_counts(lengths)]).unwrap();
    assert_eq!(sums, vec![(size * (100 * rank + 1)) as i32; rank + 1]);

    let counts: Vec<usize> = (0..size).map(|k| k + rank).collect();
    let mut came = vec![-1i32; counts.iter().sum()];
    let op = Op::all_to_all(letters(&|k| letter(rank, k)), &mut came);
    group.submit([op.send_counts(counts.clone()).recv_counts(counts)]).unwrap();
    assert_eq!(came, letters(&|k| letter(k, rank)));
    let mut swapped: Vec<i64> = (0..size).map(|k| (10 * rank + k) as i64).collect();
    group.all_to_all_in_place(&mut swapped).unwrap();
    let expected: Vec<i64> = (0..size).map(|k| (10 * k + rank) as i64).collect();
    assert_eq!(swapped, expected);
    let mut equal = vec![0i64; size];
    group.all_to_all(&swapped, &mut equal).unwrap();
    assert_eq!(equal, (0..size).map(|k| (10 * rank + k) as i64).collect::<Vec<_>>(), "there and back");
}

fn messages(group: &Group) {
    let (rank, size) = (group.rank(), group.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let (first, second) = ([rank as f64; 3], vec![rank as f32; 50_000]);
    let (mut one, mut two) = ([-1f64; 3], vec![-1f32; 50_000]);
    let ring =
        [Op::send(&first, next), Op::send(&second, next), Op::recv(&mut one, previous), Op::recv(&mut two, previous)];
    group.submit(ring).unwrap();
    assert_eq!((one, two), ([previous as f64; 3], vec![previous as f32; 50_000]));
    match rank {
        0 if size > 1 => group.send(&[Bf16::from(2.5)], 1).unwrap(),
        1 => {
            let mut got = [Bf16::default()];
            group.recv(&mut got, 0).unwrap();
            assert_eq!(got, [Bf16::from(2.5)]);
        }
        _ => (),
    }
}

fn lists(group: &Group) {
    let (rank, size) = (group.rank(), group.size());
    let sum = (1..=size).sum::<usize>();
    let (mut a, mut b, mut c) = ([rank as f32 + 1.0], vec![rank as f32 + 1.0; 1000], [rank as i64 + 1]);
    let into = [rank as i64 + 1];
    let mut from = [0i64];
    let mut root = [if rank == 0 { 3u8 } else { 0 }];
    group
        .submit([
            Op::all_reduce(&mut a, Reduce::Sum),
            Op::all_reduce(&mut b, Reduce::Sum),
            Op::reduce(&mut c, 0, Reduce::Sum),
            Op::all_reduce_into(&into, &mut from, Reduce::Max),
            Op::broadcast(&mut root, 0),
            Op::barrier(),
        ])
        .unwrap();
    assert_eq!((a, b), ([sum as f32], vec![sum as f32; 1000]));
    assert_eq!(c, [if rank == 0 { sum as i64 } else { rank as i64 + 1 }]);
    assert_eq!((from, root), ([size as i64], [3]));

    let next = (rank + 1) % size;
    let works: Vec<Work<_>> = (0..2)
        .map(|k| {
            let ops = [
                Op::send(vec![(rank + k) as i32; 70_000], next),
                Op::recv(vec![0i32; 70_000], (rank + size - 1) % size),
                Op::reduce(vec![1f64], 0, Reduce::Sum),
            ];
            group.start_submit(ops).unwrap()
        })
        .collect();
    for (k, work) in works.into_iter().enumerate() {
        work.wait().unwrap();
        assert!(work.test().unwrap());
        let mut done = work.into_inner().unwrap();
        assert_eq!(done.len(), 3);
        assert_eq!(done[1].recv::<f32>(), None, "of another type");
        assert_eq!(done[1].recv::<i32>().unwrap(), vec![((rank + size - 1) % size + k) as i32; 70_000]);
        assert_eq!(done[1].recv::<i32>(), None, "taken already");
        assert_eq!(done[0].send::<i32>().unwrap()[..2], [(rank + k) as i32; 2]);
        assert_eq!(done[2].recv::<f64>().unwrap(), [if rank == 0 { size as f64 } else { 1.0 }]);
    }
}

fn all_of_it(group: &Group) {
    for root in 0..group.size() {
        rooted(group, root);
    }
    unequal(group);
    messages(group);
    lists(group);
}

#[test]
fn operations_of_threads() {
    let _deadline = deadline();
    for size in [1, 2, 3] {
        ranks(size, |group| {
            all_of_it(&group);
            assert!(group.close(LONG).unwrap());
        });
    }
}

#[test]
fn operations_of_processes() {
    let _deadline = deadline();
    if let Some(group) = processes("operations_of_processes", 3) {
        all_of_it(&group);
        let odd = group.split(Some(group.rank() % 2), 0).unwrap().unwrap();
        assert_eq!((odd.rank(), odd.size()), (group.rank() / 2, if group.rank() == 1 { 1 } else { 2 }));
        all_of_it(&odd);
        assert!(odd.close(LONG).unwrap() && group.close(LONG).unwrap());
    }
}

#[test]
fn groups_are_split_by_color_and_key() {
    let _deadline = deadline();
    ranks(4, |group| {
        let rank = group.rank();
        let color = if rank == 3 { None } else { Some(rank / 2) };
        let part = group.split(color, -(rank as i32)).unwrap();
        let Some(part) = part else {
            assert_eq!(rank, 3);
            return group.barrier().unwrap();
        };
        assert_eq!((part.rank(), part.size()), [(1, 2), (0, 2), (0, 1)][rank], "the higher rank has the lower key");
        let mut sum = [rank as i32];
        part.all_reduce(&mut sum, Reduce::Sum).unwrap();
        assert_eq!(sum, [[1, 1, 2][rank]]);
        part.abort("on its own");
        group.barrier().unwrap();
    });
    let group = Group::alone().unwrap();
    let part = Group::builder().backend("shm").timeout(LONG).split(&group, Some(7), 0).unwrap().unwrap();
    assert_eq!(part.info().unwrap().backend, "shm");
    drop(group);
    part.barrier().unwrap();
    let error = Group::builder().rank(0, 1).split(&part, Some(0), 0).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("follow from the group"), "{error}");
}

#[test]
fn what_is_wrong_is_said() {
    let _deadline = deadline();
    let group = Group::alone().unwrap();
    let invalid = |op: Op, text: &str| {
        let error = group.submit([op]).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.text().contains(text), "{error}");
    };
    let (send, mut recv) = ([1f32, 2.0], [0f32]);
    invalid(Op::send(&send, 1), "ops[0].peer is 1; expected 0 to 0");
    invalid(Op::send(&send, 0), "each send needs its recv");
    invalid(Op::all_gather(&send, &mut recv), "count is 2; expected 1");
    invalid(Op::gather(&send, &mut recv, 0).recv_counts([1, 1]), "ops[0].recv_counts has 2 elements; expected 1");
    invalid(Op::all_to_all(&send, &mut recv).send_counts([1]), "ops[0].send_counts add up to 1");
    let error = group.submit([]).unwrap_err();
    assert!(error.text().contains("no operations are given"), "{error}");
    let error = group.start_submit([Op::broadcast(vec![1u8], 3)]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    let errors = ranks(2, |group| {
        let mut data = [0f32; 3];
        match group.rank() {
            0 => group.send(&data, 1),
            _ => group.recv(&mut data[..2], 0),
        }
        .unwrap_err()
    });
    for error in errors {
        assert!(error.kind() == ErrorKind::Mismatch && error.text().contains("f32"), "{error}");
    }
}

#[test]
fn a_message_that_nobody_receives_runs_out_of_time() {
    let _deadline = deadline();
    let (name, done) = (fresh("message"), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _group = local(&name, 1, 2);
            until("rank 0 has given up", || done.load(Ordering::Acquire));
        });
        let group = local(&name, 0, 2);
        let error = group.timeout(Duration::from_millis(50)).send(&[1f32], 1).unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Timeout, &[1][..]), "{error}");
        done.store(true, Ordering::Release);
    });
}

/// The buffers of a list that nobody waits for live on until it is done.
#[test]
fn lists_that_are_dropped_go_on() {
    let _deadline = deadline();
    ranks(2, |group| {
        for _ in 0..20 {
            let peer = 1 - group.rank();
            let ops = [Op::send(vec![7f32; 10_000], peer), Op::recv(vec![0f32; 10_000], peer)];
            let work = group.start_submit(ops).unwrap();
            if group.rank() == 1 {
                assert_eq!(work.into_inner().unwrap()[1].recv::<f32>().unwrap(), vec![7.0; 10_000]);
            }
        }
        group.barrier().unwrap();
    });
}
