// SPDX-License-Identifier: Apache-2.0
//! Functions of a program as workers: it has a `main` of its own, as such a program must, and says what libtest says.
mod common;

use common::{deadline, TempDir, LONG};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use ujoin::{Binding, Console, ErrorKind, StartMethod, Std, Stdin, WorkerArgs, WorkerSetup, WorkerState, Workers};

fn echo(args: &WorkerArgs) -> ujoin::HookResult {
    let mut answer = format!("{}/{} {:?} ", args.rank, args.nprocs, args.args).into_bytes();
    answer.extend(&args.input);
    ujoin::return_value(&answer)?;
    assert_eq!(ujoin::return_value(b"again").unwrap_err().kind(), ErrorKind::State);
    Ok(())
}

fn functions_return_values() {
    let _deadline = deadline();
    for method in [StartMethod::Spawn, StartMethod::Fork, StartMethod::ForkServer] {
        let workers = Workers::function("echo").nprocs(2).args(["a b"]).start_method(method).build().unwrap();
        workers.set_worker(Some(1), &WorkerSetup::default().input([0u8, 255])).unwrap();
        workers.start().unwrap();
        workers.wait().unwrap();
        assert_eq!(workers.result(0).unwrap().value.unwrap(), b"0/2 [\"a b\"] ");
        assert_eq!(workers.result(1).unwrap().value.unwrap(), b"1/2 [\"a b\"] \x00\xff");
        assert_eq!(workers.result(1).unwrap().message, "");
    }
    assert_eq!(ujoin::return_value(b"").unwrap_err().kind(), ErrorKind::State, "this is no worker");
    let error = ujoin::register_worker("echo", echo).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("taken"), "{error}");
}

fn failures_are_recorded() {
    let _deadline = deadline();
    for (name, why) in [("fails", "batch 7 is bad"), ("panics", "panicked: batch 8 is worse"), ("unknown", "unknown")] {
        let dir = TempDir::new();
        let workers = Workers::function(name).log_dir(&dir.0).redirects(Std::ALL).build().unwrap();
        workers.start().unwrap();
        assert_eq!(workers.wait().unwrap_err().kind(), ErrorKind::ChildFailed);
        let result = workers.result(0).unwrap();
        assert_eq!((result.state, result.failed, result.value), (WorkerState::Exited(1), true, None));
        assert!(result.message.contains(why), "{}", result.message);
        let second = std::time::Duration::from_secs(1); // an error file has no finer time
        assert!(result.failed_at.unwrap() + second >= result.start.unwrap());
        assert!(result.error_path.unwrap().starts_with(&dir.0));
        assert!(workers.report().unwrap().contains(why));
        let json = workers.report_json().unwrap();
        assert!(json.contains("\"first_failure\":0") || json.contains("\"first_failure\": 0"), "{json}");
    }
    let workers = Workers::function("leaves").build().unwrap();
    workers.start().unwrap();
    assert!(workers.wait().is_err());
    assert_eq!(workers.result(0).unwrap().state, WorkerState::NoValue);
}

fn records_of_programs() {
    let _deadline = deadline();
    let message_of = |name: &str| {
        let dir = TempDir::new();
        let workers = Workers::function(name).args([dir.0.to_str().unwrap()]); // where a worker's own workers write
        let workers = workers.log_dir(&dir.0).redirects(Std::ALL).build().unwrap();
        workers.start().unwrap();
        workers.wait().unwrap_err();
        let result = workers.result(0).unwrap();
        (result.message, result.traceback)
    };
    assert_eq!(message_of("by_hand"), ("the loss is NaN".to_owned(), "in step 9".to_owned()));
    assert!(message_of("recorded").0.contains("no such file of mine"));
    assert!(message_of("nested").0.contains("batch 7 is bad"), "the first cause becomes one's own");
    let (message, _) = message_of("crashes");
    assert!(message.contains("SIGABRT"), "{message}");
    let value = ujoin::record(|| Ok(5)).unwrap();
    assert_eq!((value, common::panic_of(|| ujoin::record::<()>(|| panic!("in record")))), (5, "in record".to_owned()));
}

fn what_workers_are_given() {
    let _deadline = deadline();
    let dir = TempDir::new();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let script = "cat; ulimit -n; ulimit -c; umask; grep Cpus_allowed_list /proc/self/status; echo oops >&2";
    let workers = Workers::builder("sh").args(["-c", script]).nprocs(2).log_dir("/dev/null").binding(Binding::List);
    let workers = workers.output(move |rank, stream, bytes| {
        sink.lock().unwrap().push((rank, stream, String::from_utf8(bytes.to_vec())?));
        Ok(())
    });
    let workers = workers.no_error_file().console(Console::Drop).build().unwrap();
    std::fs::write(dir.0.join("in"), "from a file\n").unwrap();
    let setup = WorkerSetup::default().cpus([0]).limit("nofile", Some(77)).limit("core", Some(0)).umask(0o27);
    workers.set_worker(Some(0), &setup.clone().stdin(Stdin::Bytes(b"from here\n".to_vec()))).unwrap();
    workers.set_worker(Some(1), &setup.stdin(Stdin::File(dir.0.join("in")))).unwrap();
    workers.start().unwrap();
    workers.wait().unwrap();
    let lines = lines.lock().unwrap();
    for (rank, first) in ["from here\n", "from a file\n"].into_iter().enumerate() {
        let of = |stream| -> String {
            lines.iter().filter(|(r, s, _)| (*r, *s) == (rank, stream)).map(|(_, _, text)| text.as_str()).collect()
        };
        assert_eq!(of(Std::OUT), format!("{first}77\n0\n0027\nCpus_allowed_list:\t0\n"));
        assert_eq!(of(Std::ERR), "oops\n");
        assert_eq!(workers.result(rank).unwrap().dropped_lines, 0);
    }
    let workers = Workers::builder("echo").args(["x"]).output(|_, _, _| panic!("in the callback")).build().unwrap();
    workers.start().unwrap();
    assert_eq!(common::panic_of(|| workers.wait()), "in the callback");
}

fn files_of_output() {
    let _deadline = deadline();
    let dir = TempDir::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do printf 'line %s %01000d\\n' $i 0; done; echo 'warning: late' >&2";
    let builder = Workers::builder("sh").args(["-c", script]).log_dir(&dir.0).run_id("id").tee(Std::ALL);
    let builder = builder.stdout_filters(["line 3"]).stderr_filters(["warning"]).no_colour().prefix("${time} ");
    let workers = builder.rotate(4096, Some(1)).console_ranks([0]).nprocs(2).drain(LONG).build().unwrap();
    workers.start().unwrap();
    workers.wait().unwrap();
    let path = workers.result(1).unwrap().stdout_path.unwrap();
    assert!(path.with_extension("log.1").exists(), "rotated: {path:?}");
    let attempt = path.parent().unwrap().parent().unwrap();
    let filtered = std::fs::read_to_string(attempt.join("filtered_stdout.log")).unwrap();
    assert!(filtered.contains("line 3") && !filtered.contains("line 4"), "{filtered}");
    assert!(std::fs::read_to_string(attempt.join("filtered_stderr.log")).unwrap().contains("warning: late"));
}

fn register() -> ujoin::Result<()> {
    ujoin::register_worker("echo", echo)?;
    ujoin::register_worker("fails", |_| Err("batch 7 is bad".into()))?;
    ujoin::register_worker("panics", |_| panic!("batch {} is worse", 8))?;
    ujoin::register_worker("leaves", |_| std::process::exit(0))?;
    ujoin::register_worker("by_hand", |_| {
        ujoin::record_error("the loss is NaN", Some("in step 9"), Some(3))?;
        std::process::exit(3)
    })?;
    ujoin::register_worker("recorded", |_| {
        let result = ujoin::record::<()>(|| Err("no such file of mine".into()));
        std::process::exit(result.is_err().into())
    })?;
    ujoin::register_worker("nested", |args| {
        let result = ujoin::record(|| {
            let inner = Workers::function("fails").log_dir(&args.args[0]).redirects(Std::ALL).build()?;
            inner.start()?;
            Ok(inner.wait()?)
        });
        std::process::exit(result.is_err().into())
    })?;
    ujoin::register_worker("crashes", |_| {
        ujoin::record_crashes()?;
        std::process::abort()
    })
}

fn main() -> ujoin::Result<ExitCode> {
    register()?;
    if let Some(code) = ujoin::worker_main()? {
        return Ok(code);
    }
    let tests: [(&str, fn()); 5] = [
        ("functions_return_values", functions_return_values),
        ("failures_are_recorded", failures_are_recorded),
        ("records_of_programs", records_of_programs),
        ("what_workers_are_given", what_workers_are_given),
        ("files_of_output", files_of_output),
    ];
    let mut failed = false;
    for (name, test) in tests {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed |= !ok;
    }
    Ok(ExitCode::from(u8::from(failed)))
}
