//! processes.rs - the benchmarks of starting, waking and sleeping processes.

use crate::watch::{fail, random, resident_bytes, settle, Watch};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc as outside;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::yield_now;

/// Number of tasks spawned before the spawning task yields.
const PER_STEP: u64 = 256;

pub fn spawn(rt: &Runtime, watch: &mut Watch, size: u64) {
    static RAN: AtomicU64 = AtomicU64::new(0);
    let (over, result) = outside::channel();
    settle();
    watch.begin();
    rt.spawn(async move {
        for made in 1..=size {
            let over = over.clone();
            tokio::spawn(async move {
                if RAN.fetch_add(1, Relaxed) + 1 == size {
                    over.send(()).unwrap();
                }
            });
            if made % PER_STEP == 0 {
                yield_now().await;
            }
        }
    });
    result.recv().unwrap();
    watch.end(size);
    watch.expect("processes", RAN.load(Relaxed), size);
}

/// A leaf sends its number to its parent `up`; any other node sends the sum of its ten children. Not async:
/// a future cannot contain itself.
fn tree(up: mpsc::Sender<u64>, first: u64, count: u64) {
    if count == 1 {
        tokio::spawn(async move { up.send(first).await.unwrap() });
        return;
    }
    tokio::spawn(async move {
        let (to, mut inbox) = mpsc::channel(10);
        for i in 0..10 {
            tree(to.clone(), first + i * (count / 10), count / 10);
        }
        let mut sum = 0;
        for _ in 0..10 {
            sum += inbox.recv().await.unwrap();
        }
        up.send(sum).await.unwrap();
    });
}

pub fn skynet(rt: &Runtime, watch: &mut Watch, size: u64) {
    let (up, mut inbox) = mpsc::channel(1);
    settle();
    watch.begin();
    rt.spawn(async move { tree(up, 0, size) });
    let sum = inbox.blocking_recv().unwrap();
    watch.end((size * 10 - 1) / 9);
    watch.value(watch.took.as_nanos() as f64 / 1e6, "ms");
    watch.expect("the sum", sum, size * (size - 1) / 2);
}

/// Each process has a mailbox of its own and waits for a message.
pub fn idle(rt: &Runtime, watch: &mut Watch, size: u64) {
    static WAITING: AtomicU64 = AtomicU64::new(0);
    let (answer, answers) = outside::channel();
    let mut addresses = vec![None; size as usize];
    addresses.iter_mut().for_each(|slot| *slot = std::hint::black_box(None)); // touches the array, so that it does not count as memory of the tasks
    settle();
    let before = resident_bytes();
    watch.begin();
    rt.block_on(async {
        for slot in &mut addresses {
            let (to, mut inbox) = mpsc::unbounded_channel::<u64>();
            let answer = answer.clone();
            *slot = Some(to);
            tokio::spawn(async move {
                WAITING.fetch_add(1, Relaxed);
                if let Some(number) = inbox.recv().await {
                    answer.send(number).unwrap();
                }
            });
        }
    });
    while WAITING.load(Relaxed) < size {
        std::thread::sleep(Duration::from_millis(1));
    }
    watch.end(size);
    settle();
    watch.value((resident_bytes() - before) as f64 / size as f64, "bytes");
    watch.expect("tasks", rt.metrics().num_alive_tasks() as u64, size);
    addresses[size as usize / 2].as_ref().unwrap().send(7).unwrap(); // checks that a task receives
    watch.expect("the answer", answers.recv().unwrap(), 7);
}

pub fn wake(rt: &Runtime, watch: &mut Watch, size: u64) {
    let seen = Arc::new(AtomicU64::new(0));
    let (to, mut inbox) = mpsc::unbounded_channel::<Instant>();
    let count = seen.clone();
    let (over, result) = outside::channel();
    rt.spawn(async move {
        let mut late = Vec::with_capacity(size as usize);
        while let Some(sent) = inbox.recv().await {
            late.push(sent.elapsed().as_nanos() as u64);
            count.store(late.len() as u64, Release);
        }
        over.send(late).unwrap();
    });
    settle();
    watch.begin();
    for i in 0..size {
        std::thread::sleep(Duration::from_micros(500));
        to.send(Instant::now()).unwrap();
        while seen.load(Acquire) == i {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    watch.end(size);
    drop(to);
    let late = result.recv().unwrap();
    watch.expect("messages", late.len() as u64, size);
    let median = watch.percentiles(late);
    watch.value(median, "us p50");
}

pub fn yields(rt: &Runtime, watch: &mut Watch, size: u64) {
    const PROCESSES: usize = 10_000;
    let (over, results) = outside::channel();
    let mut starts = vec![];
    for _ in 0..PROCESSES {
        let over = over.clone();
        let (start, mut started) = mpsc::channel::<()>(1);
        starts.push(start);
        rt.spawn(async move {
            started.recv().await.unwrap();
            let mut count = 0;
            while count < size {
                yield_now().await;
                count += 1;
            }
            over.send(count).unwrap();
        });
    }
    settle();
    watch.begin();
    for start in &starts {
        start.try_send(()).unwrap();
    }
    let total = results.iter().take(PROCESSES).sum::<u64>();
    watch.end(PROCESSES as u64 * size);
    watch.expect("yields", total, PROCESSES as u64 * size);
}

pub fn timers(rt: &Runtime, watch: &mut Watch, size: u64) {
    let (over, results) = outside::channel();
    settle();
    watch.begin();
    for i in 0..size {
        let over = over.clone();
        rt.spawn(async move {
            let mut state = i * 7919 + 1;
            random(&mut state);
            let span = Duration::from_nanos(random(&mut state) % 1_000_000_000);
            let due = Instant::now() + span;
            tokio::time::sleep(span).await;
            over.send(Instant::now().checked_duration_since(due)).unwrap();
        });
    }
    drop(over);
    let late: Vec<Option<Duration>> = results.iter().collect();
    watch.end(size);
    watch.value(watch.cpu_ns as f64 / 1e6, "ms cpu");
    watch.expect("timers", late.len() as u64, size);
    let Some(late) = late.into_iter().map(|span| Some(span?.as_nanos() as u64)).collect() else {
        fail(1, "timers: one came early")
    };
    watch.percentiles(late);
}
