//! watch.rs - the stopwatch, checks, and the line of JSON.

use std::fs;
use std::time::{Duration, Instant};

pub struct Watch {
    name: &'static str,
    began: Instant,
    began_cpu: u64,
    pub took: Duration,
    pub cpu_ns: u64,
    operations: u64,
    value: f64,
    unit: &'static str,
    extra: String,
}

impl Watch {
    pub fn new(name: &'static str) -> Watch {
        Watch {
            name,
            began: Instant::now(),
            began_cpu: 0,
            took: Duration::ZERO,
            cpu_ns: 0,
            operations: 0,
            value: 0.0,
            unit: "",
            extra: String::new(),
        }
    }

    pub fn begin(&mut self) {
        self.began_cpu = cpu_ns();
        self.began = Instant::now();
    }

    pub fn end(&mut self, operations: u64) {
        self.took = self.began.elapsed();
        self.cpu_ns = cpu_ns() - self.began_cpu;
        self.operations = operations;
        self.value(self.took.as_nanos() as f64 / operations as f64, "ns/op");
    }

    pub fn value(&mut self, value: f64, unit: &'static str) {
        (self.value, self.unit) = (value, unit);
    }

    pub fn expect(&self, what: &str, got: u64, want: u64) {
        if got != want {
            fail(1, &format!("{}: {what} is {got}, not {want}", self.name));
        }
    }

    /// Adds p50, p99 and max to the line, and returns the median in us.
    pub fn percentiles(&mut self, mut samples_ns: Vec<u64>) -> f64 {
        samples_ns.sort_unstable();
        let last = (samples_ns.len() - 1) as f64;
        for (name, share) in [("p50_us", 0.5), ("p99_us", 0.99), ("max_us", 1.0)] {
            let us = samples_ns[(share * last) as usize] as f64 / 1000.0;
            self.extra += &format!(",\"{name}\":{us:.3}");
        }
        samples_ns[samples_ns.len() / 2] as f64 / 1000.0
    }

    pub fn extra(&mut self, name: &str, value: f64) {
        self.extra += &format!(",\"{name}\":{value:.3}");
    }

    pub fn print(&self, run: u64, size: u64) {
        println!(
            "{{\"system\":\"tokio\",\"bench\":\"{}\",\"run\":{run},\"value\":{:.3},\"unit\":\"{}\",\"cpu_ms\":{:.1},\
             \"rss_mb\":{:.1},\"workers\":{},\"size\":{size},\"operations\":{}{}}}",
            self.name,
            self.value,
            self.unit,
            self.cpu_ns as f64 / 1e6,
            peak_kib() as f64 / 1024.0,
            crate::WORKERS,
            self.operations,
            self.extra
        );
    }
}

pub fn fail(code: i32, text: &str) -> ! {
    eprintln!("tokio: {text}");
    std::process::exit(code)
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// CPU time of all threads, also of those that have ended.
fn cpu_ns() -> u64 {
    const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
    let mut time = [0; 2];
    // Safe: `time` has the layout of a timespec of 64-bit Linux.
    if unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut time) } != 0 {
        fail(1, "there is no clock of CPU time");
    }
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("resident pages") * 4096
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Waits until the tasks that were just started have become idle.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(100));
}

/// xorshift64*, the generator of the other benchmarks.
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(2685821657736338717)
}
