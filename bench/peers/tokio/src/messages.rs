//! messages.rs - the benchmarks of messages.

use crate::watch::{random, settle, Watch};
use std::sync::mpsc as outside;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

pub fn pingpong(rt: &Runtime, watch: &mut Watch, size: u64) {
    let (there, mut at_pong) = mpsc::unbounded_channel();
    let (back, mut at_ping) = mpsc::unbounded_channel();
    let (over, result) = outside::channel();
    rt.spawn(async move {
        let mut answered = 0;
        while let Some(left) = at_pong.recv().await {
            answered += 1;
            back.send(left).unwrap();
        }
        over.send(answered).unwrap();
    });
    settle();
    watch.begin();
    rt.spawn(async move {
        let mut left = size;
        while left > 0 {
            there.send(left).unwrap();
            left = at_ping.recv().await.unwrap() - 1;
        }
    });
    let answered = result.recv().unwrap();
    watch.end(2 * size);
    watch.expect("round trips", answered, size);
}

pub fn ring(rt: &Runtime, watch: &mut Watch, size: u64) {
    const PROCESSES: u64 = 1000;
    let (over, result) = outside::channel();
    let (first, at_first) = mpsc::unbounded_channel::<u64>();
    let (mut next, mut inboxes) = (first.clone(), vec![]);
    for _ in 1..PROCESSES {
        let (to, inbox) = mpsc::unbounded_channel();
        inboxes.push((inbox, next));
        next = to;
    }
    inboxes.push((at_first, next));
    for (mut inbox, next) in inboxes {
        let over = over.clone();
        rt.spawn(async move {
            let mut rounds = 0;
            while let Some(left) = inbox.recv().await {
                rounds += u64::from(left % PROCESSES == 0);
                if left == 0 {
                    over.send(rounds).unwrap();
                    break;
                }
                next.send(left - 1).unwrap();
            }
        });
    }
    settle();
    watch.begin();
    first.send(size).unwrap();
    let rounds = result.recv().unwrap();
    watch.end(size);
    watch.expect("rounds", rounds, size / PROCESSES + 1);
}

pub fn counting(rt: &Runtime, watch: &mut Watch, size: u64) {
    let (to, mut inbox) = mpsc::unbounded_channel();
    let (over, result) = outside::channel();
    rt.spawn(async move {
        let mut sum = 0;
        while let Some(number) = inbox.recv().await {
            sum += number;
        }
        over.send(sum).unwrap();
    });
    settle();
    watch.begin();
    rt.spawn(async move {
        for number in 0..size {
            to.send(number).unwrap();
        }
    });
    let sum = result.recv().unwrap();
    watch.end(size);
    watch.expect("the sum", sum, size * (size - 1) / 2);
}

pub fn fanin(rt: &Runtime, watch: &mut Watch, size: u64) {
    const PRODUCERS: u64 = 100;
    const MAILBOX: usize = 1024; // bounded: less than half the CPU time of an unbounded one here
    let (to, mut inbox) = mpsc::channel(MAILBOX);
    let (over, result) = outside::channel();
    rt.spawn(async move {
        let mut received = 0;
        while let Some(number) = inbox.recv().await {
            received += number;
        }
        over.send(received).unwrap();
    });
    let mut starts = vec![];
    for _ in 0..PRODUCERS {
        let to = to.clone();
        let (start, mut started) = mpsc::unbounded_channel::<()>();
        starts.push(start);
        rt.spawn(async move {
            started.recv().await.unwrap();
            for _ in 0..size {
                to.send(1).await.unwrap();
            }
        });
    }
    drop(to);
    settle();
    watch.begin();
    for start in &starts {
        start.send(()).unwrap();
    }
    let received = result.recv().unwrap();
    watch.end(PRODUCERS * size);
    watch.expect("messages", received, PRODUCERS * size);
}

enum Message {
    Ping { from: usize },
    Pong,
    Start,
}

type Addresses = Arc<OnceLock<Vec<mpsc::UnboundedSender<Message>>>>;

async fn pinger(
    me: usize,
    pingers: Addresses,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    judge: outside::Sender<u64>,
    size: u64,
) {
    let (mut state, mut ponged) = (me as u64 * 7919 + 1, 0);
    let mut ping_random = |pingers: &[mpsc::UnboundedSender<Message>]| {
        let mut other = me;
        while other == me {
            other = (random(&mut state) % pingers.len() as u64) as usize;
        }
        pingers[other].send(Message::Ping { from: me }).unwrap();
    };
    while let Some(message) = inbox.recv().await {
        let pingers = pingers.get().unwrap();
        match message {
            Message::Ping { from } => pingers[from].send(Message::Pong).unwrap(),
            Message::Start => ping_random(pingers),
            Message::Pong => {
                ponged += 1;
                if ponged == size {
                    judge.send(ponged).unwrap();
                } else {
                    ping_random(pingers);
                }
            }
        }
    }
}

pub fn big(rt: &Runtime, watch: &mut Watch, size: u64) {
    const PROCESSES: usize = 500;
    let pingers = Addresses::default();
    let (judge, results) = outside::channel();
    let mut addresses = vec![];
    for me in 0..PROCESSES {
        let (to, inbox) = mpsc::unbounded_channel();
        addresses.push(to);
        rt.spawn(pinger(me, pingers.clone(), inbox, judge.clone(), size));
    }
    pingers.set(addresses).ok();
    settle();
    watch.begin();
    for to in pingers.get().unwrap() {
        to.send(Message::Start).unwrap();
    }
    let pongs = results.iter().take(PROCESSES).sum::<u64>();
    watch.end(2 * PROCESSES as u64 * size);
    watch.expect("pongs", pongs, PROCESSES as u64 * size);
}

pub fn forkjoin(rt: &Runtime, watch: &mut Watch, size: u64) {
    const PROCESSES: u64 = 10_000;
    let (over, results) = outside::channel();
    let mut joiners = vec![];
    for _ in 0..PROCESSES {
        let (to, mut inbox) = mpsc::unbounded_channel();
        let over = over.clone();
        joiners.push(to);
        rt.spawn(async move {
            let mut seen = 0;
            while seen < size {
                seen += inbox.recv().await.unwrap();
            }
            over.send(seen).unwrap();
        });
    }
    settle();
    watch.begin();
    rt.spawn(async move {
        for _ in 0..size {
            for to in &joiners {
                to.send(1).unwrap();
            }
            tokio::task::yield_now().await;
        }
    });
    let total = results.iter().take(PROCESSES as usize).sum::<u64>();
    watch.end(PROCESSES * size);
    watch.expect("messages", total, PROCESSES * size);
}
