// SPDX-License-Identifier: Apache-2.0
//! What depends on the process around: its standard streams, terminal, session and environment. A test runs itself again as
//! the process that it needs.
mod common;

use common::{deadline, until, TempDir, LONG};
use std::ffi::{c_char, CStr};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ujoin::{Console, ErrorKind, Group, Std, Stdin, WorkerSetup, Workers};

/// Where the test put what its second process needs; `None` in the first one.
fn place() -> Option<PathBuf> {
    let place = std::env::var_os("UJOIN_RUST_PLACE").map(PathBuf::from)?;
    println!(); // libtest has begun a line
    Some(place)
}

fn again(test: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("UJOIN_RUST_PLACE", place);
    command
}

#[test]
fn one_worker_inherits_standard_input() {
    let _deadline = deadline();
    if place().is_some() {
        let workers = Workers::builder("cat").log_dir("/dev/null").build().unwrap(); // its output goes to ours as it is
        workers.set_worker(Some(0), &WorkerSetup::default().stdin(Stdin::Inherit)).unwrap();
        workers.start().unwrap();
        return workers.wait().unwrap();
    }
    let dir = TempDir::new();
    let mut command = again("one_worker_inherits_standard_input", &dir.0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed by hand\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("typed by hand\n"), "{text}");

    let workers = Workers::builder("cat").nprocs(2).build().unwrap();
    workers.set_worker(None, &WorkerSetup::default().stdin(Stdin::Inherit)).unwrap();
    let error = workers.start().unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.text().contains("0, 1"), "who asks for it: {error}");
}

/// The console takes nothing until the worker has written all: what is late is in the file alone.
#[test]
fn late_lines_spill_into_the_file() {
    const LINES: usize = 1_000_000;
    let _deadline = deadline();
    if let Some(place) = place() {
        let script = format!("seq {LINES}; touch '{}'", place.join("written").display());
        let builder = Workers::builder("sh").args(["-c", &script]).log_dir(&place).tee(Std::OUT);
        let workers = builder.console(Console::Spill).build().unwrap();
        workers.start().unwrap();
        workers.wait().unwrap();
        let result = workers.result(0).unwrap();
        let file = fs::read_to_string(result.stdout_path.unwrap()).unwrap();
        assert_eq!(file.lines().count(), LINES, "the file has them all");
        return println!("spilled {}", result.dropped_lines);
    }
    let dir = TempDir::new();
    let mut child = again("late_lines_spill_into_the_file", &dir.0).stdout(Stdio::piped()).spawn().unwrap();
    until("the worker has written all", || dir.0.join("written").exists());
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let (mut shown, mut notes, mut spilled) = (0, 0, 0);
    for line in text.lines() {
        match line.strip_prefix("[worker0]: ") {
            Some(line) if line.contains("the console was too slow") => notes += 1,
            Some(_) => shown += 1,
            None => spilled = line.strip_prefix("spilled ").map_or(spilled, |count| count.parse().unwrap()),
        }
    }
    assert!(notes > 0 && spilled > 0, "{notes} notes, {spilled} lines spilled");
    assert_eq!(shown + spilled, LINES, "every line was shown or counted");
}

unsafe extern "C" {
    fn posix_openpt(flags: i32) -> i32;
    fn grantpt(terminal: i32) -> i32;
    fn unlockpt(terminal: i32) -> i32;
    fn ptsname_r(terminal: i32, name: *mut c_char, size: usize) -> i32;
}

/// Both ends of a terminal.
fn terminal() -> (File, File) {
    const READ_WRITE_NOT_OURS: i32 = 0o2 | 0o400; // O_RDWR | O_NOCTTY
    let mut name = [0 as c_char; 100];
    // SAFETY: a descriptor of our own, and a name of so many characters.
    let outer = unsafe {
        let fd = posix_openpt(READ_WRITE_NOT_OURS);
        assert!(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0 && ptsname_r(fd, name.as_mut_ptr(), name.len()) == 0);
        File::from_raw_fd(fd)
    };
    assert!(outer.as_raw_fd() >= 0);
    // SAFETY: ptsname_r has ended it.
    let path = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap();
    let inner = OpenOptions::new().read(true).write(true).custom_flags(0o400).open(path).unwrap();
    (outer, inner)
}

#[test]
fn prefixes_are_coloured_unless_that_is_not_wanted() {
    let _deadline = deadline();
    if let Some(place) = place() {
        let builder = Workers::builder("echo").args(["hello"]).log_dir("/dev/null").tee(Std::OUT);
        let builder = if place.ends_with("plain") { builder.no_colour() } else { builder };
        let workers = builder.build().unwrap();
        workers.start().unwrap();
        return workers.wait().unwrap();
    }
    for kind in ["coloured", "plain"] {
        let (mut outer, inner) = terminal();
        let mut command = again("prefixes_are_coloured_unless_that_is_not_wanted", Path::new(kind));
        let mut child = command.env_remove("NO_COLOR").stdout(inner).spawn().unwrap();
        drop(command); // it holds the inner end
        let mut bytes = Vec::new();
        let _ = outer.read_to_end(&mut bytes); // ends with an error when the last process has left the terminal
        assert!(child.wait().unwrap().success());
        let text = String::from_utf8_lossy(&bytes);
        let expected = if kind == "plain" { "[worker0]: hello" } else { "\x1b[31m[worker0]: \x1b[0mhello" };
        assert!(text.contains(expected) && text.contains('\x1b') == (kind != "plain"), "{text:?}");
    }
}

/// The sixth number of what the system says of a process.
fn session_in(stat: &str) -> i32 {
    stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
fn a_worker_may_stay_in_the_session() {
    let _deadline = deadline();
    let ours = session_in(&fs::read_to_string("/proc/self/stat").unwrap());
    for stays in [false, true] {
        let dir = TempDir::new();
        let builder = Workers::builder("cat").args(["/proc/self/stat"]).log_dir(&dir.0).redirects(Std::OUT);
        let workers = if stays { builder.same_session() } else { builder }.build().unwrap();
        workers.start().unwrap();
        workers.wait().unwrap();
        let result = workers.result(0).unwrap();
        let session = session_in(&fs::read_to_string(result.stdout_path.unwrap()).unwrap());
        assert_eq!(session, if stays { ours } else { result.pid });
    }
}

#[test]
fn a_group_of_the_environment() {
    let _deadline = deadline();
    if place().is_some() {
        let group = Group::from_env().unwrap();
        assert_eq!((group.rank().to_string(), group.size()), (std::env::var("RANK").unwrap(), 2));
        group.barrier().unwrap();
        assert!(group.close(LONG).unwrap());
        return;
    }
    let dir = TempDir::new();
    let spawn = |rank: &str| {
        let mut command = again("a_group_of_the_environment", &dir.0);
        command.envs([("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")]);
        command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")]); // names a meeting, no port is opened
        command.env("TORCHELASTIC_RUN_ID", &dir.0); // unlike that of any other run
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    for mut child in ["0", "1"].map(spawn) {
        assert!(child.wait().unwrap().success(), "see above");
    }
}
