//! suite_talk.rs - the programs in which processes ask each other for something.

use crate::suite::group;
use crate::watch::{fail, random, settle, Watch};
use std::collections::HashMap;
use std::sync::mpsc as outside;
use std::sync::{Arc, Mutex, RwLock};
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, mpsc, oneshot};

// ---- chameneos ----

const CREATURES: u64 = 100;

fn complement(a: i64, b: i64) -> i64 {
    if a == b {
        a
    } else {
        3 - a - b
    }
}

pub fn chameneos_mpsc(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (mall, mut visits) = mpsc::unbounded_channel::<(i64, mpsc::UnboundedSender<i64>)>();
    rt.spawn(async move {
        for _ in 0..size {
            let (a, b) = (visits.recv().await.unwrap(), visits.recv().await.unwrap());
            a.1.send(b.0).unwrap();
            b.1.send(a.0).unwrap();
        }
        while let Some(visit) = visits.recv().await {
            visit.1.send(-1).unwrap();
        }
    });
    settle();
    watch.begin();
    let met = group(rt, CREATURES, |index| {
        let mall = mall.clone();
        async move {
            let (answer, mut inbox) = mpsc::unbounded_channel();
            let (mut colour, mut met) = ((index % 3) as i64, 0);
            loop {
                mall.send((colour, answer.clone())).unwrap();
                let other = inbox.recv().await.unwrap();
                if other < 0 {
                    return met;
                }
                met += 1;
                colour = complement(colour, other);
            }
        }
    });
    watch.end(size);
    watch.expect("meetings", met, 2 * size);
}

pub fn chameneos_oneshot(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (mall, mut visits) = mpsc::unbounded_channel::<(i64, oneshot::Sender<i64>)>();
    rt.spawn(async move {
        for _ in 0..size {
            let (a, b) = (visits.recv().await.unwrap(), visits.recv().await.unwrap());
            a.1.send(b.0).unwrap();
            b.1.send(a.0).unwrap();
        }
        while let Some(visit) = visits.recv().await {
            visit.1.send(-1).unwrap();
        }
    });
    settle();
    watch.begin();
    let met = group(rt, CREATURES, |index| {
        let mall = mall.clone();
        async move {
            let (mut colour, mut met) = ((index % 3) as i64, 0);
            loop {
                let (answer, other) = oneshot::channel();
                mall.send((colour, answer)).unwrap();
                let other = other.await.unwrap();
                if other < 0 {
                    return met;
                }
                met += 1;
                colour = complement(colour, other);
            }
        }
    });
    watch.end(size);
    watch.expect("meetings", met, 2 * size);
}

pub fn chameneos_mutex(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let mall = Arc::new(Mutex::new((size, None::<(i64, oneshot::Sender<i64>)>)));
    settle();
    watch.begin();
    let met = group(rt, CREATURES, |index| {
        let mall = mall.clone();
        async move {
            let (mut colour, mut met) = ((index % 3) as i64, 0);
            loop {
                let other = {
                    let mut mall = mall.lock().unwrap();
                    if mall.0 == 0 {
                        return met;
                    }
                    if let Some((other, answer)) = mall.1.take() {
                        mall.0 -= 1;
                        answer.send(colour).unwrap();
                        Ok(other)
                    } else {
                        let (answer, other) = oneshot::channel();
                        mall.1 = Some((colour, answer));
                        Err(other)
                    }
                };
                let other = match other {
                    Ok(other) => other,
                    Err(other) => other.await.unwrap(),
                };
                met += 1;
                colour = complement(colour, other);
            }
        }
    });
    watch.end(size);
    watch.expect("meetings", met, 2 * size);
}

// ---- philosophers ----

const SEATS: u64 = 20;

fn forks_of(index: u64) -> (usize, usize) {
    let other = (index + 1) % SEATS;
    (index.min(other) as usize, index.max(other) as usize)
}

pub fn philosophers_mutex(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let forks: Arc<Vec<_>> = Arc::new((0..SEATS).map(|_| tokio::sync::Mutex::new(())).collect());
    settle();
    watch.begin();
    let meals = group(rt, SEATS, |index| {
        let forks = forks.clone();
        async move {
            let ((low, high), mut meals) = (forks_of(index), 0);
            while meals < size {
                let _first = forks[low].lock().await;
                let _second = forks[high].lock().await;
                meals += 1;
            }
            meals
        }
    });
    watch.end(SEATS * size);
    watch.expect("meals", meals, SEATS * size);
}

pub fn philosophers_std(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let forks: Arc<Vec<_>> = Arc::new((0..SEATS).map(|_| Mutex::new(())).collect());
    settle();
    watch.begin();
    let meals = group(rt, SEATS, |index| {
        let forks = forks.clone();
        async move {
            let ((low, high), mut meals) = (forks_of(index), 0);
            while meals < size {
                let _first = forks[low].lock().unwrap();
                let _second = forks[high].lock().unwrap();
                meals += 1;
            }
            meals
        }
    });
    watch.end(SEATS * size);
    watch.expect("meals", meals, SEATS * size);
}

// ---- bank ----

const ACCOUNTS: u64 = 1000;
const TELLERS: u64 = 100;
const FIRST_BALANCE: i64 = 1000;

/// Returns the next transfer of a teller: from, to, amount.
fn transfer(state: &mut u64) -> (usize, usize, i64) {
    let from = random(state) % ACCOUNTS;
    let to = (from + 1 + random(state) % (ACCOUNTS - 1)) % ACCOUNTS;
    (from as usize, to as usize, 1 + (random(state) % 100) as i64)
}

pub fn bank_mutex(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let accounts: Arc<Vec<_>> = Arc::new((0..ACCOUNTS).map(|_| Mutex::new(FIRST_BALANCE)).collect());
    let each = size / TELLERS + 1;
    settle();
    watch.begin();
    let done = group(rt, TELLERS, |index| {
        let accounts = accounts.clone();
        async move {
            let mut state = 7919 * (index + 1);
            for _ in 0..each {
                let (from, to, amount) = transfer(&mut state);
                let mut low = accounts[from.min(to)].lock().unwrap();
                let mut high = accounts[from.max(to)].lock().unwrap();
                let (payer, payee) = if from < to { (&mut low, &mut high) } else { (&mut high, &mut low) };
                if **payer >= amount {
                    **payer -= amount;
                    **payee += amount;
                }
            }
            each
        }
    });
    watch.end(TELLERS * each);
    let total: i64 = accounts.iter().map(|account| *account.lock().unwrap()).sum();
    watch.expect("transfers", done, TELLERS * each);
    watch.expect("money", total as u64, ACCOUNTS * FIRST_BALANCE as u64);
}

enum Order {
    Debit(usize, i64, mpsc::UnboundedSender<bool>),
    Credit(i64, mpsc::UnboundedSender<bool>),
    Close(outside::Sender<i64>),
}

pub fn bank_mpsc(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..ACCOUNTS).map(|_| mpsc::unbounded_channel::<Order>()).unzip();
    let senders = Arc::new(senders);
    for mut inbox in inboxes {
        let senders = senders.clone();
        rt.spawn(async move {
            let mut balance = FIRST_BALANCE;
            while let Some(order) = inbox.recv().await {
                match order {
                    Order::Debit(_, amount, answer) if balance < amount => answer.send(false).unwrap(),
                    Order::Debit(to, amount, answer) => {
                        balance -= amount;
                        let _ = senders[to].send(Order::Credit(amount, answer));
                    }
                    Order::Credit(amount, answer) => {
                        balance += amount;
                        answer.send(true).unwrap();
                    }
                    Order::Close(result) => return result.send(balance).unwrap(),
                }
            }
        });
    }
    let each = size / TELLERS + 1;
    settle();
    watch.begin();
    let done = group(rt, TELLERS, |index| {
        let senders = senders.clone();
        async move {
            let (answer, mut answers) = mpsc::unbounded_channel();
            let mut state = 7919 * (index + 1);
            for _ in 0..each {
                let (from, to, amount) = transfer(&mut state);
                let _ = senders[from].send(Order::Debit(to, amount, answer.clone()));
                answers.recv().await.unwrap();
            }
            each
        }
    });
    watch.end(TELLERS * each);
    let (result, results) = outside::channel();
    for sender in senders.iter() {
        let _ = sender.send(Order::Close(result.clone()));
    }
    drop(result);
    watch.expect("transfers", done, TELLERS * each);
    watch.expect("money", results.iter().sum::<i64>() as u64, ACCOUNTS * FIRST_BALANCE as u64);
}

// ---- dictionary ----

const CLIENTS: u64 = 64;
const KEYS: u64 = 10_000;

type Dictionary = (HashMap<u64, u64>, u64);

/// Returns the next request of a client: the key, and the value if the request is a put.
fn next_request(state: &mut u64) -> (u64, Option<u64>) {
    let key = (random(state) >> 33) % KEYS;
    (key, (random(state) % 10 == 0).then_some(7 * key + 1))
}

fn put(dictionary: &mut Dictionary, key: u64, value: u64) -> Option<u64> {
    dictionary.0.insert(key, value);
    dictionary.1 += 1;
    Some(dictionary.1)
}

fn serve(dictionary: &mut Dictionary, key: u64, value: Option<u64>) -> Option<u64> {
    match value {
        Some(value) => put(dictionary, key, value),
        None => dictionary.0.get(&key).copied(),
    }
}

fn is_right(key: u64, value: Option<u64>, answer: Option<u64>) -> u64 {
    u64::from(if value.is_some() { answer > Some(0) } else { answer.is_none() || answer == Some(7 * key + 1) })
}

pub fn dictionary_mutex(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let dictionary = Arc::new(Mutex::new(Dictionary::default()));
    let each = size / CLIENTS + 1;
    settle();
    watch.begin();
    let right = group(rt, CLIENTS, |index| {
        let dictionary = dictionary.clone();
        async move {
            let (mut state, mut right) = (7919 * (index + 1), 0);
            for _ in 0..each {
                let (key, value) = next_request(&mut state);
                let answer = serve(&mut dictionary.lock().unwrap(), key, value);
                right += is_right(key, value, answer);
            }
            right
        }
    });
    watch.end(CLIENTS * each);
    watch.expect("right answers", right, CLIENTS * each);
}

pub fn dictionary_rwlock(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let dictionary = Arc::new(RwLock::new(Dictionary::default()));
    let each = size / CLIENTS + 1;
    settle();
    watch.begin();
    let right = group(rt, CLIENTS, |index| {
        let dictionary = dictionary.clone();
        async move {
            let (mut state, mut right) = (7919 * (index + 1), 0);
            for _ in 0..each {
                let (key, value) = next_request(&mut state);
                let answer = match value {
                    Some(value) => put(&mut dictionary.write().unwrap(), key, value),
                    None => dictionary.read().unwrap().0.get(&key).copied(),
                };
                right += is_right(key, value, answer);
            }
            right
        }
    });
    watch.end(CLIENTS * each);
    watch.expect("right answers", right, CLIENTS * each);
}

pub fn dictionary_mpsc(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (server, mut inbox) = mpsc::unbounded_channel::<(u64, Option<u64>, mpsc::UnboundedSender<Option<u64>>)>();
    rt.spawn(async move {
        let mut dictionary = Dictionary::default();
        while let Some((key, value, answer)) = inbox.recv().await {
            answer.send(serve(&mut dictionary, key, value)).unwrap();
        }
    });
    let each = size / CLIENTS + 1;
    settle();
    watch.begin();
    let right = group(rt, CLIENTS, |index| {
        let server = server.clone();
        async move {
            let (answer, mut answers) = mpsc::unbounded_channel();
            let (mut state, mut right) = (7919 * (index + 1), 0);
            for _ in 0..each {
                let (key, value) = next_request(&mut state);
                server.send((key, value, answer.clone())).unwrap();
                right += is_right(key, value, answers.recv().await.unwrap());
            }
            right
        }
    });
    watch.end(CLIENTS * each);
    watch.expect("right answers", right, CLIENTS * each);
}

pub fn dictionary_oneshot(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (server, mut inbox) = mpsc::channel::<(u64, Option<u64>, oneshot::Sender<Option<u64>>)>(64);
    rt.spawn(async move {
        let mut dictionary = Dictionary::default();
        while let Some((key, value, answer)) = inbox.recv().await {
            answer.send(serve(&mut dictionary, key, value)).unwrap();
        }
    });
    let each = size / CLIENTS + 1;
    settle();
    watch.begin();
    let right = group(rt, CLIENTS, |index| {
        let server = server.clone();
        async move {
            let (mut state, mut right) = (7919 * (index + 1), 0);
            for _ in 0..each {
                let (key, value) = next_request(&mut state);
                let (answer, answered) = oneshot::channel();
                server.send((key, value, answer)).await.unwrap();
                right += is_right(key, value, answered.await.unwrap());
            }
            right
        }
    });
    watch.end(CLIENTS * each);
    watch.expect("right answers", right, CLIENTS * each);
}

// ---- sieve ----

/// Returns the number of primes below `limit`, and the number of messages that all filters receive.
fn count_primes(limit: u64) -> (u64, u64) {
    let (mut primes, mut passed) = (Vec::<u64>::new(), 0);
    for number in 2..limit {
        let divisor = primes.iter().position(|prime| number % prime == 0);
        passed += divisor.unwrap_or(primes.len()) as u64 + 1;
        if divisor.is_none() {
            primes.push(number);
        }
    }
    (primes.len() as u64, passed + primes.len() as u64)
}

fn filter_unbounded(mut inbox: mpsc::UnboundedReceiver<u64>, index: u64, over: outside::Sender<u64>) {
    tokio::spawn(async move {
        let mut next: Option<mpsc::UnboundedSender<u64>> = None;
        let prime = inbox.recv().await.unwrap();
        while let Some(number) = inbox.recv().await {
            if number % prime != 0 {
                let next = next.get_or_insert_with(|| {
                    let (to, inbox) = mpsc::unbounded_channel();
                    filter_unbounded(inbox, index + 1, over.clone());
                    to
                });
                next.send(number).unwrap();
            }
        }
        if next.is_none() {
            over.send(index).unwrap();
        }
    });
}

pub fn sieve_unbounded(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (primes, passed) = count_primes(size);
    let (over, result) = outside::channel();
    settle();
    watch.begin();
    rt.spawn(async move {
        let (to, inbox) = mpsc::unbounded_channel();
        filter_unbounded(inbox, 1, over);
        for number in 2..size {
            to.send(number).unwrap();
            if number % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    let found = result.recv().unwrap();
    watch.end(passed);
    watch.expect("primes", found, primes);
}

fn filter_bounded(mut inbox: mpsc::Receiver<u64>, index: u64, over: outside::Sender<u64>, room: usize) {
    tokio::spawn(async move {
        let mut next: Option<mpsc::Sender<u64>> = None;
        let prime = inbox.recv().await.unwrap();
        while let Some(number) = inbox.recv().await {
            if number % prime != 0 {
                let next = next.get_or_insert_with(|| {
                    let (to, inbox) = mpsc::channel(room);
                    filter_bounded(inbox, index + 1, over.clone(), room);
                    to
                });
                next.send(number).await.unwrap();
            }
        }
        if next.is_none() {
            over.send(index).unwrap();
        }
    });
}

pub fn sieve_bounded(rt: &Runtime, watch: &mut Watch, size: u64, room: u64) {
    let (primes, passed) = count_primes(size);
    let (over, result) = outside::channel();
    settle();
    watch.begin();
    rt.spawn(async move {
        let (to, inbox) = mpsc::channel(room as usize);
        filter_bounded(inbox, 1, over, room as usize);
        for number in 2..size {
            to.send(number).await.unwrap();
        }
    });
    let found = result.recv().unwrap();
    watch.end(passed);
    watch.expect("primes", found, primes);
}

// ---- logistic ----

const SERIES: u64 = 10;

fn rate(index: u64) -> f64 {
    3.46 + 0.0025 * index as f64
}

fn next_term(rate: f64, term: f64) -> f64 {
    rate * term * (1.0 - term)
}

/// Returns 1 if `last` is the last term of the series `index`, otherwise 0.
fn check_series(index: u64, size: u64, last: f64) -> u64 {
    let term = (0..size).fold(0.5, |term, _| next_term(rate(index), term));
    u64::from((term - last).abs() < 1e-9)
}

pub fn logistic_unbounded(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    settle();
    watch.begin();
    let last = Arc::new(Mutex::new(vec![0.0; SERIES as usize]));
    group(rt, SERIES, |index| {
        let last = last.clone();
        async move {
            let (ask, mut asked) = mpsc::unbounded_channel();
            let (answer, mut answers) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                while let Some(term) = asked.recv().await {
                    answer.send(next_term(rate(index), term)).unwrap();
                }
            });
            let mut term = 0.5;
            for _ in 0..size {
                ask.send(term).unwrap();
                term = answers.recv().await.unwrap();
            }
            last.lock().unwrap()[index as usize] = term;
            1
        }
    });
    watch.end(SERIES * size);
    let right = (0..SERIES).map(|index| check_series(index, size, last.lock().unwrap()[index as usize])).sum();
    watch.expect("right series", right, SERIES);
}

pub fn logistic_bounded(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    settle();
    watch.begin();
    let last = Arc::new(Mutex::new(vec![0.0; SERIES as usize]));
    group(rt, SERIES, |index| {
        let last = last.clone();
        async move {
            let (ask, mut asked) = mpsc::channel(1);
            let (answer, mut answers) = mpsc::channel(1);
            tokio::spawn(async move {
                while let Some(term) = asked.recv().await {
                    answer.send(next_term(rate(index), term)).await.unwrap();
                }
            });
            let mut term = 0.5;
            for _ in 0..size {
                ask.send(term).await.unwrap();
                term = answers.recv().await.unwrap();
            }
            last.lock().unwrap()[index as usize] = term;
            1
        }
    });
    watch.end(SERIES * size);
    let right = (0..SERIES).map(|index| check_series(index, size, last.lock().unwrap()[index as usize])).sum();
    watch.expect("right series", right, SERIES);
}

// ---- publish and subscribe ----

const TOPICS: u64 = 10;
const SUBSCRIBERS: u64 = 100;

fn message() -> Arc<[u8]> {
    let mut bytes = [0u8; 64];
    bytes[63] = 1;
    Arc::from(bytes)
}

pub fn pubsub_mpsc(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let (mut topics, mut inboxes) = (vec![], vec![]);
    for _ in 0..TOPICS {
        let (senders, some): (Vec<_>, Vec<_>) = (0..SUBSCRIBERS).map(|_| mpsc::channel::<Arc<[u8]>>(64)).unzip();
        topics.push(senders);
        inboxes.extend(some);
    }
    settle();
    watch.begin();
    for senders in topics {
        rt.spawn(async move {
            for _ in 0..size {
                let message = message();
                for sender in &senders {
                    sender.send(message.clone()).await.unwrap();
                }
            }
        });
    }
    let mut inboxes = inboxes.into_iter();
    let got = group(rt, TOPICS * SUBSCRIBERS, |_| {
        let mut inbox = inboxes.next().unwrap();
        async move {
            let mut got = 0;
            while let Some(message) = inbox.recv().await {
                got += u64::from(message[63]);
            }
            got
        }
    });
    watch.end(TOPICS * SUBSCRIBERS * size);
    watch.expect("deliveries", got, TOPICS * SUBSCRIBERS * size);
}

/// Each topic has space for all messages, because no message may be lost.
pub fn pubsub_broadcast(rt: &Runtime, watch: &mut Watch, size: u64, _: u64) {
    let topics: Vec<_> = (0..TOPICS).map(|_| broadcast::channel::<Arc<[u8]>>(size as usize).0).collect();
    let mut inboxes =
        topics.iter().flat_map(|t| (0..SUBSCRIBERS).map(|_| t.subscribe())).collect::<Vec<_>>().into_iter();
    settle();
    watch.begin();
    for topic in topics {
        rt.spawn(async move {
            for number in 0..size {
                topic.send(message()).unwrap();
                if number % 16 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    let got = group(rt, TOPICS * SUBSCRIBERS, |_| {
        let mut inbox = inboxes.next().unwrap();
        async move {
            let mut got = 0;
            while let Ok(message) = inbox.recv().await {
                got += u64::from(message[63]);
            }
            got
        }
    });
    watch.end(TOPICS * SUBSCRIBERS * size);
    watch.expect("deliveries", got, TOPICS * SUBSCRIBERS * size);
}

// ---- request and reply with payloads ----

const PAIRS: u64 = 10;

fn serial_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn with_serial(bytes: &[u8], serial: u64) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    copy[..8].copy_from_slice(&serial.to_le_bytes());
    copy
}

fn checked(serial: u64, reply: &[u8]) -> u64 {
    if serial_of(reply) != serial + 1 {
        fail(1, "request: a wrong reply");
    }
    serial + 1
}

pub fn request_mpsc(rt: &Runtime, watch: &mut Watch, size: u64, length: u64) {
    let each = size / PAIRS + 1;
    settle();
    watch.begin();
    let answered = group(rt, PAIRS, |_| async move {
        let (ask, mut asked) = mpsc::unbounded_channel::<Vec<u8>>();
        let (answer, mut answers) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = asked.recv().await {
                answer.send(with_serial(&message, serial_of(&message) + 1)).unwrap();
            }
        });
        let (buffer, mut serial) = (vec![0; length as usize], 0);
        for _ in 0..each {
            ask.send(with_serial(&buffer, serial)).unwrap();
            serial = checked(serial, &answers.recv().await.unwrap());
        }
        serial
    });
    watch.end(PAIRS * each);
    watch.expect("round trips", answered, PAIRS * each);
}

pub fn request_oneshot(rt: &Runtime, watch: &mut Watch, size: u64, length: u64) {
    let each = size / PAIRS + 1;
    settle();
    watch.begin();
    let answered = group(rt, PAIRS, |_| async move {
        let (ask, mut asked) = mpsc::channel::<(Vec<u8>, oneshot::Sender<Vec<u8>>)>(16);
        tokio::spawn(async move {
            while let Some((message, answer)) = asked.recv().await {
                answer.send(with_serial(&message, serial_of(&message) + 1)).unwrap();
            }
        });
        let (buffer, mut serial) = (vec![0; length as usize], 0);
        for _ in 0..each {
            let (answer, reply) = oneshot::channel();
            ask.send((with_serial(&buffer, serial), answer)).await.unwrap();
            serial = checked(serial, &reply.await.unwrap());
        }
        serial
    });
    watch.end(PAIRS * each);
    watch.expect("round trips", answered, PAIRS * each);
}
