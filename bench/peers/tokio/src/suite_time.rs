//! suite_time.rs - the programs about lateness, memory, names and sockets.

use crate::suite::{group, spin};
use crate::watch::{fail, random, resident_bytes, settle, Watch};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as outside;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

// ---- timers ----

const PERIOD: Duration = Duration::from_millis(100);
const SAMPLED: u64 = 16;

fn timers(rt: &Runtime, watch: &mut Watch, size: u64, sleepers: u64, reset: bool) {
    let samples = Arc::new(Mutex::new(Vec::<u64>::new()));
    settle();
    watch.begin();
    let began = Instant::now();
    let end = Arc::new(AtomicU64::new(u64::MAX)); // known when all have been started
    let wakes = group(rt, sleepers, |index| {
        let (samples, end) = (samples.clone(), end.clone());
        async move {
            if index == sleepers - 1 {
                end.store(began.elapsed().as_nanos() as u64 + size * 1_000_000, Ordering::Relaxed);
            }
            let mut state = 7919 * index + 1;
            let mut span = Duration::from_nanos(random(&mut state) % PERIOD.as_nanos() as u64);
            let (mut now, mut wakes, mut own) = (Instant::now(), 0, vec![]);
            let mut timer = Box::pin(tokio::time::sleep(span));
            loop {
                let due = now + span;
                if reset {
                    timer.as_mut().reset(due.into());
                    timer.as_mut().await;
                } else {
                    tokio::time::sleep(span).await;
                }
                now = Instant::now();
                wakes += 1;
                if index % SAMPLED == 0 {
                    own.push((now - due).as_nanos() as u64);
                }
                if (now - began).as_nanos() as u64 >= end.load(Ordering::Relaxed) {
                    samples.lock().unwrap().append(&mut own);
                    return wakes;
                }
                span = PERIOD;
            }
        }
    });
    watch.end(wakes);
    let samples = std::mem::take(&mut *samples.lock().unwrap());
    delays(watch, samples, "");
    watch.extra("wakes_per_s", wakes as f64 / watch.took.as_secs_f64());
}

/// Adds p50, p99 and max to the line. If `prefix` is empty, p99 becomes the value of the line.
fn delays(watch: &mut Watch, mut samples: Vec<u64>, prefix: &str) {
    samples.sort_unstable();
    let at = |percent: usize| samples[(samples.len() - 1) * percent / 100] as f64 / 1000.0;
    watch.extra(&format!("{prefix}p50_us"), at(50));
    watch.extra(&format!("{prefix}p99_us"), at(99));
    watch.extra(&format!("{prefix}max_us"), at(100));
    if prefix.is_empty() {
        watch.value(at(99), "us p99");
    }
}

pub fn timers_sleep(rt: &Runtime, watch: &mut Watch, size: u64, sleepers: u64) {
    timers(rt, watch, size, sleepers, false);
}

pub fn timers_reset(rt: &Runtime, watch: &mut Watch, size: u64, sleepers: u64) {
    timers(rt, watch, size, sleepers, true);
}

// ---- probes ----

const GAP: Duration = Duration::from_millis(1);
const CHURN: Duration = Duration::from_micros(5);
const WORK: Duration = Duration::from_micros(20);
const CHAINS: u32 = 200;
const WORKING: u32 = 100;

static OVER: AtomicBool = AtomicBool::new(false);

fn churn() {
    tokio::spawn(async {
        spin(CHURN);
        if !OVER.load(Ordering::Relaxed) {
            churn();
        }
    });
}

/// Keeps the workers busy: all the time with churn if `percent` is 0, otherwise for `percent` of the time.
fn load(rt: &Runtime, percent: u64) {
    let _inside = rt.enter();
    if percent == 0 {
        (0..CHAINS).for_each(|_| churn());
        return;
    }
    let span = WORKING * WORK * 100 / (percent as u32 * crate::WORKERS as u32);
    let began = Instant::now();
    for index in 0..WORKING {
        tokio::spawn(async move {
            let mut due = began + index * span / WORKING;
            while !OVER.load(Ordering::Relaxed) {
                tokio::time::sleep_until(due.into()).await;
                spin(WORK);
                due += span;
            }
        });
    }
}

pub fn probe_outside(rt: &Runtime, watch: &mut Watch, size: u64, percent: u64) {
    let (target, mut inbox) = mpsc::unbounded_channel::<Instant>();
    let (over, result) = outside::channel();
    rt.spawn(async move {
        let mut samples = vec![];
        while let Some(sent) = inbox.recv().await {
            samples.push(sent.elapsed().as_nanos() as u64);
        }
        over.send(samples).unwrap();
    });
    load(rt, percent);
    std::thread::sleep(Duration::from_millis(20));
    watch.begin();
    let mut due = Instant::now();
    for _ in 0..size {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        target.send(Instant::now()).unwrap();
        due += GAP;
    }
    drop(target);
    let samples = result.recv().unwrap();
    watch.end(size);
    OVER.store(true, Ordering::Relaxed);
    watch.expect("probes", samples.len() as u64, size);
    delays(watch, samples, "");
}

pub fn probe_inside(rt: &Runtime, watch: &mut Watch, size: u64, percent: u64) {
    let (ask, mut asked) = mpsc::unbounded_channel();
    let (answer, mut answers) = mpsc::unbounded_channel();
    rt.spawn(async move {
        while let Some(number) = asked.recv().await {
            answer.send(number).unwrap();
        }
    });
    load(rt, percent);
    std::thread::sleep(Duration::from_millis(20));
    watch.begin();
    let (over, result) = outside::channel();
    rt.spawn(async move {
        let (mut samples, mut wakes, mut due) = (vec![], vec![], Instant::now() + GAP);
        for number in 0..size {
            tokio::time::sleep_until(due.into()).await;
            wakes.push(due.elapsed().as_nanos() as u64);
            ask.send(number).unwrap();
            answers.recv().await.unwrap();
            samples.push(due.elapsed().as_nanos() as u64);
            due += GAP;
        }
        over.send((samples, wakes)).unwrap();
    });
    let (samples, wakes) = result.recv().unwrap();
    watch.end(size);
    OVER.store(true, Ordering::Relaxed);
    delays(watch, samples, "");
    delays(watch, wakes, "wake_");
}

// ---- memory ----

/// Starts `size` tasks; each has one unread message. Then ends them and checks their sum. Returns the resident size
/// before, and the growth.
fn memory(rt: &Runtime, watch: &mut Watch, size: u64) -> (u64, u64) {
    let (start, started) = tokio::sync::watch::channel(false);
    let (done, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (over, result) = outside::channel();
    let mut senders = Vec::with_capacity(size as usize);
    settle();
    let before = resident_bytes();
    watch.begin();
    for _ in 0..size {
        let (to, inbox) = oneshot::channel::<u64>();
        let (mut started, done, sum, over) = (started.clone(), done.clone(), sum.clone(), over.clone());
        senders.push(to);
        rt.spawn(async move {
            started.changed().await.unwrap();
            sum.fetch_add(inbox.await.unwrap(), Ordering::Relaxed);
            if done.fetch_add(1, Ordering::Relaxed) + 1 == size {
                over.send(()).unwrap();
            }
        });
    }
    for (number, to) in senders.into_iter().enumerate() {
        to.send(number as u64).unwrap();
    }
    settle();
    watch.end(size);
    let grown = resident_bytes() - before;
    start.send(true).unwrap();
    result.recv().unwrap();
    watch.expect("sum", sum.load(Ordering::Relaxed), size * (size - 1) / 2);
    (before, grown)
}

pub fn memory_queued(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (_, grown) = memory(rt, watch, size);
    watch.value(grown as f64 / size as f64, "bytes");
}

pub fn memory_kept(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (before, grown) = memory(rt, watch, size);
    std::thread::sleep(Duration::from_secs(1));
    let kept = resident_bytes().saturating_sub(before);
    watch.value(100.0 * kept as f64 / grown as f64, "% kept");
    watch.extra("grown_mb", grown as f64 / (1024.0 * 1024.0));
}

// ---- groups and names: maps under a lock ----

pub fn groups(_: &Runtime, watch: &mut Watch, size: u64, many: u64) {
    let groups = Mutex::new(HashMap::<String, HashSet<u64>>::new());
    let entry = |i: u64| if many == 1 { (format!("group {i}"), 0) } else { ("group".to_string(), i) };
    watch.begin();
    for i in 0..size {
        let (group, member) = entry(i);
        groups.lock().unwrap().entry(group).or_default().insert(member);
    }
    let members = groups.lock().unwrap()[&entry(size - 1).0].len() as u64;
    for i in 0..size {
        let (group, member) = entry(i);
        let mut groups = groups.lock().unwrap();
        let members = groups.get_mut(&group).unwrap();
        members.remove(&member);
        if members.is_empty() {
            groups.remove(&group);
        }
    }
    watch.end(size);
    watch.expect("members", members, if many == 1 { 1 } else { size });
    watch.expect("groups", groups.lock().unwrap().len() as u64, 0);
}

pub fn names(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    const REGISTRARS: u64 = 8;
    const KEPT: u64 = 1000;
    let each = size / REGISTRARS;
    let names = Arc::new(RwLock::new(HashMap::<String, u64>::new()));
    watch.begin();
    let found = group(rt, REGISTRARS, |index| {
        let names = names.clone();
        async move {
            let mut found = 0;
            for i in 0..each {
                let name = format!("name {index}.{i}");
                names.write().unwrap().insert(name.clone(), index);
                found += u64::from(names.read().unwrap().get(&name) == Some(&index));
                if i >= KEPT {
                    names.write().unwrap().remove(&format!("name {index}.{}", i - KEPT));
                }
            }
            found
        }
    });
    watch.end(each * REGISTRARS);
    watch.expect("found", found, each * REGISTRARS);
}

// ---- sockets ----

const LENGTH: usize = 64;

/// Starts a server that sends back what it reads, one task per connection.
fn listen(rt: &Runtime) -> std::net::SocketAddr {
    let listener = rt.block_on(TcpListener::bind("127.0.0.1:0")).expect("a listener");
    let address = listener.local_addr().expect("an address");
    rt.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("an option");
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(count) = stream.read(&mut buffer).await {
                    if count == 0 || stream.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Does `count` round trips on one connection.
async fn ask(stream: &mut TcpStream, count: u64) -> u64 {
    let mut reply = [0; LENGTH];
    for round in 0..count {
        let request = [round as u8; LENGTH];
        stream.write_all(&request).await.expect("a write");
        stream.read_exact(&mut reply).await.expect("a read");
        if reply != request {
            fail(1, "echo: the reply is not the request");
        }
    }
    count
}

/// The limit of open files, as raised by the runner: there is no call for it in the standard library.
fn files() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("/proc");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    line.split_whitespace().nth(3).and_then(|word| word.parse().ok()).unwrap_or(1024)
}

pub fn echo(rt: &Runtime, watch: &mut Watch, size: u64, count: u64) {
    let count = count.min(size).min((files() - 64) / 2);
    let (address, each) = (listen(rt), size / count);
    let streams: Vec<_> = (0..count).map(|_| rt.block_on(TcpStream::connect(address)).expect("a connection")).collect();
    let mut streams = streams.into_iter();
    settle();
    watch.begin();
    let rounds = group(rt, count, |_| {
        let mut stream = streams.next().unwrap();
        async move {
            stream.set_nodelay(true).expect("an option");
            ask(&mut stream, each).await
        }
    });
    watch.end(count * each);
    watch.extra("connections", count as f64);
    watch.expect("round trips", rounds, count * each);
}

pub fn accepts(rt: &Runtime, watch: &mut Watch, size: u64, count: u64) {
    let (address, each) = (listen(rt), size / count + 1);
    settle();
    watch.begin();
    let rounds = group(rt, count, |_| async move {
        let mut rounds = 0;
        for _ in 0..each {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            rounds += ask(&mut stream, 1).await;
        }
        rounds
    });
    watch.end(count * each);
    watch.expect("round trips", rounds, count * each);
}
