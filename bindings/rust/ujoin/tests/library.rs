// SPDX-License-Identifier: Apache-2.0
//! What concerns the whole process: version, backends, log lines, the interrupt check.
mod common;

use common::{deadline, fresh, local, panic_of, ranks, until, LONG};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ujoin::{ErrorKind, Join, Joinable, LogLevel};

/// These tests change what the process has once.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_library_says_what_it_is() {
    assert_eq!(ujoin::version(), env!("CARGO_PKG_VERSION"));
    assert!(ujoin::abi_version() >= 1);
    let backends = ujoin::backends();
    let names: Vec<_> = backends.iter().filter(|b| b.available).map(|b| b.name.as_str()).collect();
    assert!(["self", "local", "shm"].iter().all(|name| names.contains(name)), "{backends:?}");
}

/// One warning for each context: rank 0 has joined while rank 1 goes on.
fn provoke_warnings(count: usize) {
    ranks(2, |group| {
        for _ in 0..count {
            let idle = Joinable::builder(&group).build().unwrap();
            let join = Join::builder([idle.clone()]).skew_warning(Some(1)).build().unwrap();
            join.run(|| (0..5 * group.rank()).try_for_each(|_| idle.notify_active().map(|_| ()))).unwrap();
        }
    });
}

#[test]
fn log_lines_reach_the_sink() {
    let (_deadline, _alone) = (deadline(), alone());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let in_sink = Arc::clone(&lines);
    ujoin::set_log_sink(LogLevel::Warning, move |level, text| {
        in_sink.lock().unwrap().push((level, text.to_owned()));
        let error = ujoin::clear_log_sink().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
    })
    .unwrap();
    provoke_warnings(1);
    let seen = lines.lock().unwrap().clone();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].0 == LogLevel::Warning && seen[0].1.contains("ran out of inputs"), "{seen:?}");
    ujoin::set_log_sink(LogLevel::Error, |_, _| ()).unwrap();
    assert_eq!(Arc::strong_count(&lines), 1, "the old sink is dropped when it is replaced");
    ujoin::clear_log_sink().unwrap();
}

/// A sink that panics loses its own lines only.
#[test]
fn panics_in_the_log_sink() {
    let (_deadline, _alone) = (deadline(), alone());
    let calls = Arc::new(AtomicUsize::new(0));
    let in_sink = Arc::clone(&calls);
    ujoin::set_log_sink(LogLevel::Debug, move |_, _| {
        if in_sink.fetch_add(1, Ordering::Relaxed) >= 2 {
            panic!("the third call and later ones");
        }
    })
    .unwrap();
    provoke_warnings(5);
    ujoin::clear_log_sink().unwrap();
    assert!(calls.load(Ordering::Relaxed) >= 5);
    assert_eq!(Arc::strong_count(&calls), 1);
}

#[test]
fn the_sink_is_replaced_while_it_runs() {
    let (_deadline, _alone) = (deadline(), alone());
    let (over, token) = (AtomicBool::new(false), Arc::new(()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let token = Arc::clone(&token);
                ujoin::set_log_sink(LogLevel::Debug, move |_, _| drop(Arc::clone(&token))).unwrap();
            }
        });
        provoke_warnings(50);
        over.store(true, Ordering::Relaxed);
    });
    ujoin::clear_log_sink().unwrap();
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn the_interrupt_check_ends_a_wait() {
    let (_deadline, _alone) = (deadline(), alone());
    let (name, done) = (fresh("interrupt"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let group = local(&name, 1, 2);
            until("rank 0 is done", || done.load(Ordering::Acquire));
            drop(group);
        });
        let group = local(&name, 0, 2);
        let token = Arc::new(());
        let in_check = Arc::clone(&token);
        ujoin::set_interrupt_check(move || {
            let _ = &in_check;
            Err("Ctrl-C was pressed".into())
        })
        .unwrap();
        let work = group.start_all_reduce(vec![1f32], ujoin::Reduce::Sum).unwrap();
        let error = work.wait().unwrap_err();
        assert!(error.kind() == ErrorKind::Callback && error.text().contains("Ctrl-C was pressed"), "{error}");
        ujoin::clear_interrupt_check().unwrap();
        assert_eq!(Arc::strong_count(&token), 1);
        assert!(!work.test().unwrap(), "the work lives on");

        ujoin::set_interrupt_check(|| panic!("in the check")).unwrap();
        assert_eq!(panic_of(|| work.wait()), "in the check");
        ujoin::clear_interrupt_check().unwrap();
        ujoin::set_interrupt_check(|| Ok(ujoin::Group::alone()?.broadcast(&mut [0u8], 9)?)).unwrap();
        let error = group.timeout(LONG).barrier().unwrap_err();
        assert!(error.text().contains("root"), "the text of the check's own error: {error}");
        ujoin::clear_interrupt_check().unwrap();
        done.store(true, Ordering::Release);
    });
}
