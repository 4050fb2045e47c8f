//! main.rs - the twelve benchmarks on Tokio: arguments, and which benchmark is which.
//!
//!     peer NAME [--run K] [--size N]
//!     peer NAME.IDIOM [--run K] --size N     a program of the second suite: suite.rs
//!     peer programs                          prints the names of those
//!
//! A process is a task, its mailbox an unbounded mpsc channel unless a comment says otherwise. Two worker threads; the
//! main thread only starts tasks and waits.

mod messages;
mod processes;
mod suite;
mod suite_flow;
mod suite_talk;
mod suite_time;
mod watch;

use tokio::runtime::{Builder, Runtime};
use watch::{fail, Watch};

pub const WORKERS: usize = 2;

type Bench = fn(&Runtime, &mut Watch, u64);

/// Name, default of --size, and function of each benchmark.
const BENCHES: [(&str, u64, Bench); 12] = [
    ("pingpong", 1_000_000, messages::pingpong),
    ("ring", 2_000_000, messages::ring),
    ("spawn", 1_000_000, processes::spawn),
    ("skynet", 1_000_000, processes::skynet),
    ("counting", 5_000_000, messages::counting),
    ("fanin", 50_000, messages::fanin),
    ("big", 5_000, messages::big),
    ("forkjoin", 100, messages::forkjoin),
    ("idle", 1_000_000, processes::idle),
    ("wake", 5_000, processes::wake),
    ("yield", 100, processes::yields),
    ("timers", 100_000, processes::timers),
];

fn usage() -> ! {
    fail(2, "usage: peer NAME [--run K] [--size N]")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() % 2 == 0 {
        usage();
    }
    if arguments[0] == "programs" {
        return suite::list();
    }
    let program = suite::find(&arguments[0]);
    let known = BENCHES.into_iter().find(|b| b.0 == arguments[0]).map(|b| (b.0, b.1)).or(program.map(|p| (p.0, 0)));
    let Some((name, default_size)) = known else { fail(2, &format!("there is no benchmark '{}'", arguments[0])) };
    let (mut run, mut size) = (1, default_size);
    for pair in arguments[1..].chunks(2) {
        match (pair[0].as_str(), pair[1].parse::<u64>()) {
            ("--run", Ok(number)) if number > 0 => run = number,
            ("--size", Ok(number)) if number > 0 => size = number,
            _ => usage(),
        }
    }
    if size == 0 {
        usage();
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKERS).enable_time();
    let mut watch = Watch::new(name);
    if let Some((_, _, variant, function)) = program {
        function(&builder.enable_all().build().expect("a runtime"), &mut watch, size, variant);
    } else if let Some((_, _, bench)) = BENCHES.into_iter().find(|b| b.0 == name) {
        bench(&builder.build().expect("a runtime"), &mut watch, size);
    }
    watch.print(run, size);
    std::process::exit(0) // without dropping a million tasks one by one
}
