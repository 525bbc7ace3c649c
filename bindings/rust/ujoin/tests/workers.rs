// SPDX-License-Identifier: Apache-2.0
//! Worker processes.
mod common;

use common::{deadline, until, TempDir, LONG};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;
use ujoin::{Binding, Containment, ErrorKind, Std, WorkerSetup, WorkerState, Workers, WorkersBuilder};

fn shell(script: &str) -> WorkersBuilder {
    Workers::builder("sh").args(["-c", script]).name("w").grace(Duration::from_millis(200)).partial_line(LONG)
}

#[test]
fn workers_end_well() {
    let _deadline = deadline();
    let dir = TempDir::new();
    let script = "echo \"$SHARED $OWN $0 [$HOME] $PWD\"; echo oops >&2";
    let workers = shell(script).nprocs(2).log_dir(&dir.0).run_id("id").redirects(Std::ALL).drain(LONG).build().unwrap();
    workers.set_env(None, "SHARED", "both").unwrap();
    workers.set_env(Some(1), "OWN", "one's").unwrap();
    workers.remove_env(None, "HOME").unwrap();
    let quiet = script.split(';').next().unwrap();
    let setup = WorkerSetup::default().args(["-c", quiet, "other"]).directory("/").redirects(Std::OUT).tee(Std::NONE);
    workers.set_worker(Some(1), &setup).unwrap();
    assert_eq!(workers.result(0).unwrap().state, WorkerState::Created);
    workers.start().unwrap();
    assert_eq!(workers.start().unwrap_err().kind(), ErrorKind::State);
    assert!(workers.wait_for(LONG).unwrap());
    workers.wait().unwrap();
    assert!(!workers.failed() && workers.first_failure().is_none());
    assert_eq!(workers.report().unwrap(), "");

    let (first, second) = (workers.result(0).unwrap(), workers.result(1).unwrap());
    assert_eq!((first.rank, first.state, second.state), (0, WorkerState::Exited(0), WorkerState::Exited(0)));
    assert!(first.pid > 0 && first.start.unwrap() <= first.end.unwrap() && !first.failed && !first.stopped);
    assert_eq!(first.containment, Some(Containment::Group));
    let text = fs::read_to_string(first.stdout_path.unwrap()).unwrap();
    assert!(text.starts_with("both  sh [] "), "{text}");
    assert_eq!(fs::read_to_string(first.stderr_path.unwrap()).unwrap(), "oops\n");
    assert_eq!(fs::read_to_string(second.stdout_path.unwrap()).unwrap(), "both one's other [] /\n");
    assert_eq!((second.stderr_path, first.stderr_bytes), (None, 5));
    assert!(workers.result(2).is_err());
}

#[test]
fn the_first_failure_ends_the_others() {
    let _deadline = deadline();
    let dir = TempDir::new();
    let script = "if [ ${local_rank} = 1 ]; then echo 'token 7 is bad' >&2; exit 3; fi; exec sleep 600";
    let workers = shell(script).nprocs(3).log_dir(&dir.0).redirects(Std::ALL).first_rank(4).build().unwrap();
    workers.start().unwrap();
    let error = workers.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChildFailed, "{error}");
    assert!(workers.failed());
    assert_eq!(workers.first_failure(), Some(1));
    let failed = workers.result(1).unwrap();
    assert_eq!((failed.state, failed.failed), (WorkerState::Exited(3), true));
    let victim = workers.result(0).unwrap();
    assert_eq!((victim.state, victim.failed, victim.stopped), (WorkerState::Signaled(15), false, true));
    let report = workers.report().unwrap();
    assert!(report.contains("(local_rank: 1)") && report.contains("token 7 is bad"), "{report}");
}

#[test]
fn signals_close_and_abort() {
    let _deadline = deadline();
    let running = || {
        let workers = shell("exec sleep 600").nprocs(2).build().unwrap();
        workers.start().unwrap();
        assert!(!workers.wait_for(Duration::from_millis(5)).unwrap());
        assert_eq!(workers.result(1).unwrap().state, WorkerState::Running);
        workers
    };
    let workers = running();
    let signaller = workers.signaller();
    thread::spawn(move || signaller.signal(Some(0), 9)).join().unwrap().unwrap();
    assert_eq!(workers.wait().unwrap_err().kind(), ErrorKind::ChildFailed);
    assert_eq!(workers.result(0).unwrap().state, WorkerState::Signaled(9));

    let workers = running();
    workers.signal(None, 18).unwrap(); // SIGCONT: harmless
    workers.ask_stop().unwrap(); // they do not listen
    let health = workers.health(1).unwrap();
    assert_eq!((health.rank, health.running, health.group), (1, true, None));
    assert_eq!(health.text, format!("rank 1 (pid {}): no group", workers.result(1).unwrap().pid));
    assert_eq!(workers.health(2).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(!workers.wait_for(Duration::ZERO).unwrap());
    assert!(workers.close(Some(1), LONG).unwrap());
    assert_eq!(workers.result(0).unwrap().state, WorkerState::Signaled(1));
    assert!(workers.result(0).unwrap().stopped);

    let workers = running();
    let aborter = workers.aborter();
    let waiting = thread::spawn(move || (workers.wait().unwrap_err().kind(), workers));
    aborter.abort("");
    let (kind, workers) = waiting.join().unwrap();
    assert_eq!(kind, ErrorKind::Aborted);
    until("the workers are gone", || workers.result(1).unwrap().state == WorkerState::Signaled(9));
}

#[test]
fn dropped_workers_are_ended_in_the_background() {
    let _deadline = deadline();
    let workers = shell("exec sleep 600").build().unwrap();
    workers.start().unwrap();
    let pid = workers.result(0).unwrap().pid;
    drop(workers);
    until("the worker is gone", || !fs::exists(format!("/proc/{pid}")).unwrap());
}

#[test]
fn jobs_that_cannot_be() {
    let _deadline = deadline();
    let error = Workers::builder("sh").nprocs(0).build().err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("nprocs"), "{error}");
    let workers = Workers::of_programs().nprocs(2).build().unwrap();
    workers.set_worker(Some(0), &WorkerSetup::default().program("true")).unwrap();
    let error = workers.start().unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains('1'), "who has none: {error}");
    let workers = Workers::builder("/no/such/program").build().unwrap();
    let error = workers.start().unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::System, Some(2)), "{error}");
    assert!(error.text().contains("/no/such/program"), "{error}");
    let error = Workers::builder("sh").args(["a\0b"]).build().err().unwrap();
    assert!(error.text().contains("argument has a NUL"), "{error}");

    assert_eq!(Std::parse("0:1,2:3", 3).unwrap(), [Std::OUT, Std::NONE, Std::ALL]);
    assert_eq!(Std::parse("3", 2).unwrap(), [Std::OUT | Std::ERR; 2]);
    assert!(Std::ALL.contains(Std::ERR) && !Std::OUT.contains(Std::ERR));
    assert_eq!(Std::parse("9", 1).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn workers_under_a_warden() {
    let _deadline = deadline();
    let builder = shell("exec sleep 600").containment(Containment::Warden).restart_count(1).prefix("${rank} ");
    let workers = builder.tee(Std::NONE).build().unwrap();
    match workers.start() {
        Ok(()) => {
            assert_eq!(workers.result(0).unwrap().containment, Some(Containment::Warden));
            assert!(workers.close(None, LONG).unwrap());
            assert_eq!(workers.result(0).unwrap().state, WorkerState::Signaled(15));
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn workers_inherit_descriptors() {
    let _deadline = deadline();
    let dir = TempDir::new();
    let path = dir.0.join("given");
    fs::write(&path, "a file").unwrap();
    let script = "cat <&7; ls /proc/self/fd";
    let workers = shell(script).nprocs(2).log_dir(&dir.0).redirects(Std::OUT).build().unwrap();
    workers.set_worker(Some(1), &WorkerSetup::default().fd(7, fs::File::open(&path).unwrap())).unwrap();
    workers.set_worker(Some(0), &WorkerSetup::default().args(["-c", "ls /proc/self/fd"])).unwrap();
    workers.start().unwrap();
    workers.wait().unwrap();
    let text = |rank| fs::read_to_string(workers.result(rank).unwrap().stdout_path.unwrap()).unwrap();
    assert_eq!(text(1), "a file0\n1\n2\n3\n7\n"); // 3 is the directory that ls reads
    assert_eq!(text(0), "0\n1\n2\n3\n");
    let other = shell("true").build().unwrap();
    let error = other.set_worker(None, &WorkerSetup::default().fd(1, fs::File::open(&path).unwrap())).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("standard streams"), "{error}");
}

#[test]
fn own_children_are_left_alone() {
    let _deadline = deadline();
    for containment in [Containment::Group, Containment::Warden, Containment::Best] {
        let workers = shell("sleep 0.${local_rank}").nprocs(3).containment(containment).build().unwrap();
        workers.start().unwrap();
        for code in 0..20 {
            let exit = |code: i32| ["-c".to_owned(), format!("exit {code}")];
            let mut beside = Command::new("sh").args(exit(code)).spawn().unwrap();
            assert_eq!(Command::new("sh").args(exit(code + 30)).status().unwrap().code(), Some(code + 30));
            assert_eq!(beside.wait().unwrap().code(), Some(code));
        }
        workers.wait().unwrap();
        for rank in 0..3 {
            assert_eq!(workers.result(rank).unwrap().state, WorkerState::Exited(0));
        }
        let held = workers.result(0).unwrap().containment;
        assert!(held == Some(containment) || (containment == Containment::Best && held.is_some()), "{held:?}");
    }
}

/// "0-2,5" in what the system says of a process.
fn processors(status: &str) -> BTreeSet<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("Linux says it");
    let number = |text: &str| text.parse::<usize>().unwrap();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    list.trim().split(',').flat_map(range).collect()
}

#[test]
fn workers_are_placed_apart() {
    let _deadline = deadline();
    let all = processors(&fs::read_to_string("/proc/thread-self/status").unwrap());
    for binding in [Binding::None, Binding::Spread, Binding::Compact] {
        let dir = TempDir::new();
        let builder = Workers::builder("cat").args(["/proc/self/status"]).nprocs(2).binding(binding);
        let workers = builder.log_dir(&dir.0).redirects(Std::OUT).build().unwrap();
        workers.start().unwrap();
        workers.wait().unwrap();
        let of = |rank| {
            let path = workers.result(rank).unwrap().stdout_path.unwrap();
            processors(&fs::read_to_string(path).unwrap())
        };
        let (first, second) = (of(0), of(1));
        if binding == Binding::None || all.len() < 2 {
            assert_eq!((&first, &second), (&all, &all));
        } else {
            assert!(!first.is_empty() && !second.is_empty() && first.is_disjoint(&second), "{first:?} {second:?}");
            assert!(first.union(&second).all(|cpu| all.contains(cpu)), "{first:?} {second:?} of {all:?}");
        }
    }
}
