// SPDX-License-Identifier: Apache-2.0
//! What the tests share: deadlines, ranks as threads, ranks as processes.
#![allow(dead_code)]
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use ujoin::{Group, Params, ParamsBuilder};

/// Nothing here takes a second; this is for a machine that is busy with other things.
pub const LONG: Duration = Duration::from_secs(60);

/// Ends the process with a text when the test is not over in time: a test that hangs must not hang the others.
pub struct Deadline(Sender<()>);

pub fn deadline() -> Deadline {
    let (sender, receiver) = channel::<()>();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    thread::spawn(move || {
        if receiver.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name} is not over after {LONG:?}");
            std::process::abort();
        }
    });
    Deadline(sender)
}

/// A name that no other test or run has.
pub fn fresh(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub fn local(name: &str, rank: usize, size: usize) -> Group {
    let builder = Group::builder().rendezvous(format!("local://{name}")).backend("local");
    builder.rank(rank, size).rendezvous_timeout(LONG).build().expect("a group of threads")
}

/// Runs `body` on as many threads, each a rank of one group; what they returned, by rank.
pub fn ranks<T: Send>(size: usize, body: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let name = fresh("ranks");
    ranks_in(size, |rank| body(local(&name, rank, size)))
}

/// Runs `body` on as many threads, with a rank each.
pub fn ranks_in<T: Send>(size: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let body = &body;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || body(rank))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    })
}

/// Runs the calling test again as processes that meet through shared memory; `None` here, the group there. All must succeed.
pub fn processes(test: &str, size: usize) -> Option<Group> {
    if let Ok(rank) = std::env::var("UJOIN_RUST_RANK") {
        let at = std::env::var("UJOIN_RUST_MEETING").expect("set with the rank");
        let builder = Group::builder().rendezvous(format!("file://{at}")).backend("shm");
        return Some(builder.rank(rank.parse().unwrap(), size).rendezvous_timeout(LONG).build().expect("a group"));
    }
    let dir = TempDir::new();
    let spawn = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("UJOIN_RUST_RANK", rank.to_string())
            .env("UJOIN_RUST_MEETING", dir.0.join("meeting"))
            .stdout(Stdio::null())
            .spawn()
            .expect("the test itself")
    };
    let mut children: Vec<Child> = (0..size).map(spawn).collect();
    for (rank, child) in children.iter_mut().enumerate() {
        assert!(child.wait().unwrap().success(), "the process of rank {rank} failed: see above");
    }
    None
}

pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(fresh("ujoin-rust"));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits for an event that another thread brings.
pub fn until(what: &str, event: impl Fn() -> bool) {
    let begin = Instant::now();
    while !event() {
        assert!(begin.elapsed() < LONG, "{what} does not happen");
        thread::yield_now();
    }
}

/// A weight of 3 x 2 and a bias of 2.
pub fn small() -> ParamsBuilder {
    Params::builder().tensor("weight", &[3, 2], vec![1.0; 6]).tensor("bias", &[2], vec![0.5; 2])
}

/// The text of a panic.
pub fn panic_of<T>(body: impl FnOnce() -> T) -> String {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let payload = result.err().expect("it should panic");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|t| t.to_string())).expect("a text")
}
