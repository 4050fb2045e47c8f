//! suite_flow.rs - the programs about queues, tasks, and threads that are not workers.

use crate::suite::{group, spin};
use crate::watch::{resident_bytes, settle, Watch};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as outside;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

// ---- pipeline ----

pub fn pipeline(rt: &Runtime, watch: &mut Watch, size: u64, room: u64) {
    const STAGES: u64 = 3;
    settle();
    watch.begin();
    let (first, mut inbox) = mpsc::channel(room as usize);
    for _ in 0..STAGES {
        let (to, next) = mpsc::channel(room as usize);
        rt.spawn(async move {
            while let Some(item) = inbox.recv().await {
                to.send(item).await.unwrap();
            }
        });
        inbox = next;
    }
    rt.spawn(async move {
        for item in (0..=size).rev() {
            first.send(item).await.unwrap();
        }
    });
    let mut inbox = Some(inbox);
    let sum = group(rt, 1, |_| {
        let mut inbox = inbox.take().unwrap();
        async move {
            let mut sum = 0;
            while let Some(item) = inbox.recv().await {
                sum += item;
            }
            sum
        }
    });
    watch.end((STAGES + 1) * size);
    watch.expect("sum", sum, size * (size + 1) / 2);
}

// ---- crowd ----

pub fn crowd(rt: &Runtime, watch: &mut Watch, size: u64, senders: u64) {
    let each = (size / senders).max(1);
    let (to, inbox) = mpsc::channel(64);
    let (start, started) = tokio::sync::watch::channel(false);
    for _ in 0..senders {
        let (to, mut started) = (to.clone(), started.clone());
        rt.spawn(async move {
            started.changed().await.unwrap();
            for left in (1..=each).rev() {
                to.send(left).await.unwrap();
            }
        });
    }
    drop(to);
    settle();
    watch.begin();
    start.send(true).unwrap();
    let mut inbox = Some(inbox);
    let sum = group(rt, 1, |_| {
        let mut inbox = inbox.take().unwrap();
        async move {
            let mut sum = 0;
            while let Some(number) = inbox.recv().await {
                sum += number;
            }
            sum
        }
    });
    watch.end(each * senders);
    watch.expect("sum", sum, senders * each * (each + 1) / 2);
}

// ---- backlog ----

const READERS: u64 = 64;

fn backlog_end(watch: &mut Watch, total: u64, sum: u64, grown: u64) {
    watch.end(total);
    watch.extra("backlog_mb", grown as f64 / (1024.0 * 1024.0));
    watch.expect("sum", sum, total * (total - 1) / 2);
}

pub fn backlog_unbounded(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let total = (size / READERS + 1) * READERS;
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..READERS).map(|_| mpsc::unbounded_channel()).unzip();
    settle();
    let before = resident_bytes();
    watch.begin();
    for number in 0..total {
        senders[(number % READERS) as usize].send(number).unwrap();
    }
    drop(senders);
    let grown = resident_bytes() - before;
    let mut inboxes = inboxes.into_iter();
    let sum = group(rt, READERS, |_| {
        let mut inbox = inboxes.next().unwrap();
        async move {
            let mut sum = 0;
            while let Some(number) = inbox.recv().await {
                sum += number;
            }
            sum
        }
    });
    backlog_end(watch, total, sum, grown);
}

/// A queue is a VecDeque under a mutex.
pub fn backlog_mutex(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let total = (size / READERS + 1) * READERS;
    let queues: Vec<_> = (0..READERS).map(|_| Arc::new(Mutex::new(VecDeque::new()))).collect();
    settle();
    let before = resident_bytes();
    watch.begin();
    for number in 0..total {
        queues[(number % READERS) as usize].lock().unwrap().push_back(number);
    }
    let grown = resident_bytes() - before;
    let sum = group(rt, READERS, |index| {
        let queue = queues[index as usize].clone();
        async move {
            let mut sum = 0;
            while let Some(number) = { queue.lock().unwrap().pop_front() } {
                sum += number;
            }
            sum
        }
    });
    backlog_end(watch, total, sum, grown);
}

// ---- tasks ----

fn task_span(index: u64, skewed: u64) -> Duration {
    match (skewed, index % 100) {
        (0, _) => Duration::from_micros(1),
        (_, 0) => Duration::from_micros(50),
        _ => Duration::from_nanos(500),
    }
}

pub fn tasks_spawned(rt: &Runtime, watch: &mut Watch, size: u64, skewed: u64) {
    let (over, result) = outside::channel();
    let done = Arc::new(AtomicU64::new(0));
    settle();
    watch.begin();
    rt.spawn(async move {
        for index in 0..size {
            let (over, done) = (over.clone(), done.clone());
            tokio::spawn(async move {
                spin(task_span(index, skewed));
                if done.fetch_add(1, Ordering::Relaxed) + 1 == size {
                    over.send(size).unwrap();
                }
            });
            if index % 256 == 255 {
                tokio::task::yield_now().await;
            }
        }
    });
    let ended = result.recv().unwrap();
    watch.end(size);
    watch.expect("tasks", ended, size);
}

/// Starts as many tasks as there are workers; each task takes the next number again and again.
pub fn tasks_pooled(rt: &Runtime, watch: &mut Watch, size: u64, skewed: u64) {
    let next = Arc::new(AtomicU64::new(0));
    settle();
    watch.begin();
    let done = group(rt, crate::WORKERS as u64, |_| {
        let next = next.clone();
        async move {
            let mut done = 0;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= size {
                    return done;
                }
                spin(task_span(index, skewed));
                done += 1;
                tokio::task::coop::consume_budget().await;
            }
        }
    });
    watch.end(size);
    watch.expect("tasks", done, size);
}

// ---- threads outside ----

const THREADS: u64 = 4;

pub fn outside_spawn(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let each = size / THREADS;
    let (over, result) = outside::channel();
    let done = Arc::new(AtomicU64::new(0));
    settle();
    watch.begin();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..each {
                    let (over, done) = (over.clone(), done.clone());
                    rt.spawn(async move {
                        if done.fetch_add(1, Ordering::Relaxed) + 1 == THREADS * each {
                            over.send(THREADS * each).unwrap();
                        }
                    });
                }
            });
        }
    });
    let ended = result.recv().unwrap();
    watch.end(THREADS * each);
    watch.expect("processes", ended, THREADS * each);
}

const RECEIVERS: u64 = 64;

fn receiver_of(message: u64) -> usize {
    (if message % 2 == 0 { 0 } else { message / 2 % RECEIVERS }) as usize
}

pub fn outside_unbounded(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let each = (size / THREADS).max(2 * RECEIVERS);
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..RECEIVERS).map(|_| mpsc::unbounded_channel()).unzip();
    let mut inboxes = inboxes.into_iter();
    settle();
    watch.begin();
    for _ in 0..THREADS {
        let senders = senders.clone();
        std::thread::spawn(move || (0..each).for_each(|i| senders[receiver_of(i)].send(i).unwrap()));
    }
    drop(senders);
    let sum = group(rt, RECEIVERS, |_| {
        let mut inbox = inboxes.next().unwrap();
        async move {
            let mut sum = 0;
            while let Some(number) = inbox.recv().await {
                sum += number;
            }
            sum
        }
    });
    watch.end(THREADS * each);
    watch.expect("sum", sum, THREADS * (each * (each - 1) / 2));
}

pub fn outside_bounded(rt: &Runtime, watch: &mut Watch, size: u64, room: u64) {
    let each = (size / THREADS).max(2 * RECEIVERS);
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..RECEIVERS).map(|_| mpsc::channel(room as usize)).unzip();
    let mut inboxes = inboxes.into_iter();
    settle();
    watch.begin();
    for _ in 0..THREADS {
        let senders = senders.clone();
        std::thread::spawn(move || (0..each).for_each(|i| senders[receiver_of(i)].blocking_send(i).unwrap()));
    }
    drop(senders);
    let sum = group(rt, RECEIVERS, |_| {
        let mut inbox = inboxes.next().unwrap();
        async move {
            let mut sum = 0;
            while let Some(number) = inbox.recv().await {
                sum += number;
            }
            sum
        }
    });
    watch.end(THREADS * each);
    watch.expect("sum", sum, THREADS * (each * (each - 1) / 2));
}
