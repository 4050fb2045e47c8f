//! suite.rs - the second suite: ordinary programs, each in the idioms that Tokio has for it. The runner names the size.

use crate::watch::Watch;
use crate::{suite_flow as flow, suite_talk as talk, suite_time as time};
use std::future::Future;
use std::sync::mpsc as outside;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

type Function = fn(&Runtime, &mut Watch, u64, u64);
pub type Program = (&'static str, &'static str, u64, Function);

/// Name, idiom, variant (as in bench/programs/list.h) and function.
const PROGRAMS: &[Program] = &[
    ("chameneos", "mpsc", 0, talk::chameneos_mpsc),
    ("chameneos", "oneshot", 0, talk::chameneos_oneshot),
    ("chameneos", "mutex", 0, talk::chameneos_mutex),
    ("philosophers", "mutex", 0, talk::philosophers_mutex),
    ("philosophers", "stdmutex", 0, talk::philosophers_std),
    ("bank", "mutex", 0, talk::bank_mutex),
    ("bank", "mpsc", 0, talk::bank_mpsc),
    ("dictionary", "mutex", 0, talk::dictionary_mutex),
    ("dictionary", "rwlock", 0, talk::dictionary_rwlock),
    ("dictionary", "mpsc", 0, talk::dictionary_mpsc),
    ("dictionary", "oneshot", 0, talk::dictionary_oneshot),
    ("sieve", "unbounded", 0, talk::sieve_unbounded),
    ("sieve", "bounded", 64, talk::sieve_bounded),
    ("logistic", "unbounded", 0, talk::logistic_unbounded),
    ("logistic", "bounded", 0, talk::logistic_bounded),
    ("pubsub", "mpsc", 0, talk::pubsub_mpsc),
    ("pubsub", "broadcast", 0, talk::pubsub_broadcast),
    ("request24", "mpsc", 24, talk::request_mpsc),
    ("request24", "oneshot", 24, talk::request_oneshot),
    ("request64", "mpsc", 64, talk::request_mpsc),
    ("request64", "oneshot", 64, talk::request_oneshot),
    ("request1k", "mpsc", 1024, talk::request_mpsc),
    ("request1k", "oneshot", 1024, talk::request_oneshot),
    ("request64k", "mpsc", 65536, talk::request_mpsc),
    ("request64k", "oneshot", 65536, talk::request_oneshot),
    ("pipeline", "bounded", 16, flow::pipeline),
    ("pipeline_yield", "bounded", 16, flow::pipeline),
    ("crowd1k", "bounded", 1_000, flow::crowd),
    ("crowd10k", "bounded", 10_000, flow::crowd),
    ("crowd100k", "bounded", 100_000, flow::crowd),
    ("backlog", "unbounded", 0, flow::backlog_unbounded),
    ("backlog", "mutex", 0, flow::backlog_mutex),
    ("skewed", "spawn", 1, flow::tasks_spawned),
    ("skewed", "pool", 1, flow::tasks_pooled),
    ("tasks", "spawn", 0, flow::tasks_spawned),
    ("tasks", "pool", 0, flow::tasks_pooled),
    ("outside_spawn", "spawn", 0, flow::outside_spawn),
    ("outside_send", "unbounded", 0, flow::outside_unbounded),
    ("outside_send", "bounded", 1024, flow::outside_bounded),
    ("timers_at", "sleep", 50_000, time::timers_sleep),
    ("timers_at", "reset", 50_000, time::timers_reset),
    ("timers_over", "sleep", 400_000, time::timers_sleep),
    ("timers_over", "reset", 400_000, time::timers_reset),
    ("probe_out_churn", "mpsc", 0, time::probe_outside),
    ("probe_out_50", "mpsc", 50, time::probe_outside),
    ("probe_out_80", "mpsc", 80, time::probe_outside),
    ("probe_in_churn", "mpsc", 0, time::probe_inside),
    ("probe_in_50", "mpsc", 50, time::probe_inside),
    ("probe_in_80", "mpsc", 80, time::probe_inside),
    ("memory_queued", "oneshot", 0, time::memory_queued),
    ("memory_kept", "oneshot", 0, time::memory_kept),
    ("groups_many", "mutex", 1, time::groups),
    ("groups_one", "mutex", 0, time::groups),
    ("names", "rwlock", 0, time::names),
    ("echo100", "net", 100, time::echo),
    ("echo10k", "net", 10_000, time::echo),
    ("accepts", "net", 256, time::accepts),
];

pub fn list() {
    for (name, idiom, ..) in PROGRAMS.iter().copied() {
        println!("{name}.{idiom}");
    }
}

pub fn find(entry: &str) -> Option<Program> {
    let (name, idiom) = entry.split_once('.')?;
    PROGRAMS.iter().copied().find(|p| p.0 == name && p.1 == idiom)
}

/// Computes for a while.
pub fn spin(span: Duration) {
    let began = Instant::now();
    while began.elapsed() < span {}
}

/// Runs `count` tasks and adds up their results.
pub fn group<F, T>(rt: &Runtime, count: u64, mut make: F) -> u64
where
    F: FnMut(u64) -> T,
    T: Future<Output = u64> + Send + 'static,
{
    let (over, results) = outside::channel();
    for index in 0..count {
        let (over, task) = (over.clone(), make(index));
        rt.spawn(async move { over.send(task.await).unwrap() });
    }
    drop(over);
    results.iter().sum()
}
