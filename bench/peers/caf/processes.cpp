// processes.cpp - the benchmarks of starting, waking and sleeping processes.
#include "peer.hpp"

#include <atomic>
#include <memory>

using namespace caf;

void spawn(actor_system &system, Watch &watch, uint64_t size)
{
    Over                  over;
    std::atomic<uint64_t> ran{ 0 };
    settle();
    watch.begin();
    actor creator = system.spawn([&](event_based_actor *self) -> behavior {
        return { [&, self](uint64_t made) {
            uint64_t until = std::min(made + 256, size); // then other actors run
            for (; made < until; made++)
                self->spawn([&](event_based_actor *) {
                    if (ran.fetch_add(1, std::memory_order_relaxed) + 1 == size) over.report(size);
                });
            if (made < size) self->send(self, made);
        } };
    });
    anon_send(creator, uint64_t{ 0 });
    over.wait();
    watch.end(size);
    watch.expect("processes", ran, size);
}

// A leaf sends its number to its parent `up`; any other node sends the sum of its ten children.
static behavior node(event_based_actor *self, actor up, uint64_t first, uint64_t count)
{
    if (count == 1) {
        self->send(up, first);
        return {};
    }
    for (uint64_t i = 0; i < 10; i++) self->spawn(node, actor{ self }, first + i * (count / 10), count / 10);
    auto missing = std::make_shared<int>(10);
    auto sum = std::make_shared<uint64_t>(0);
    return { [=](uint64_t number) {
        *sum += number;
        if (--*missing > 0) return;
        self->send(up, *sum);
        self->quit();
    } };
}

void skynet(actor_system &system, Watch &watch, uint64_t size)
{
    Over  over;
    actor root =
        system.spawn([&](event_based_actor *) -> behavior { return { [&](uint64_t sum) { over.report(sum); } }; });
    settle();
    watch.begin();
    system.spawn(node, root, uint64_t{ 0 }, size);
    uint64_t sum = over.wait();
    watch.end((size * 10 - 1) / 9);
    watch.value(watch.took_ms(), "ms");
    watch.expect("the sum", sum, size * (size - 1) / 2);
}

void idle(actor_system &system, Watch &watch, uint64_t size)
{
    Over                  over;
    std::atomic<uint64_t> waiting{ 0 };
    std::vector<actor>    idlers(size); // its memory is used now, so it does not count as memory of the actors
    settle();
    uint64_t before = resident_bytes();
    watch.begin();
    for (auto &idler : idlers)
        idler = system.spawn([&](event_based_actor *) -> behavior {
            waiting.fetch_add(1, std::memory_order_relaxed);
            return { [&](uint64_t number) { over.report(number); } };
        });
    while (waiting < size) sleep_ns(1000000);
    watch.end(size);
    settle();
    watch.value(static_cast<double>(resident_bytes() - before) / static_cast<double>(size), "bytes");
    watch.expect("processes", waiting, size);
    anon_send(idlers[size / 2], uint64_t{ 7 }); // checks that an actor receives
    watch.expect("the answer", over.wait(), 7);
    new std::vector<actor>(std::move(idlers)); // never freed, because ending a million actors takes long
}

void wake(actor_system &system, Watch &watch, uint64_t size)
{
    std::vector<int64_t>  late(size);
    std::atomic<uint64_t> seen{ 0 };
    actor                 sleeper = system.spawn([&](event_based_actor *) -> behavior {
        return { [&](int64_t sent_ns) {
            late[seen] = now_ns() - sent_ns;
            seen++;
        } };
    });
    settle();
    watch.begin();
    for (uint64_t i = 0; i < size; i++) {
        sleep_ns(500000);
        anon_send(sleeper, now_ns());
        while (seen == i) sleep_ns(50000);
    }
    watch.end(size);
    watch.expect("messages", seen, size);
    watch.value(watch.percentiles(late), "us p50");
}

// CAF has no yield: an actor sends itself a message, which goes to the end of the queue.
void yields(actor_system &system, Watch &watch, uint64_t size)
{
    const uint64_t        processes = 10000;
    Over                  over;
    std::atomic<uint64_t> ended{ 0 }, total{ 0 };
    std::vector<actor>    yielders;
    for (uint64_t i = 0; i < processes; i++)
        yielders.push_back(system.spawn([&](event_based_actor *self) -> behavior {
            return { [&, self](uint64_t yielded) {
                if (yielded < size) {
                    self->send(self, yielded + 1);
                    return;
                }
                total += yielded;
                if (++ended == processes) over.report(total);
            } };
        }));
    settle();
    watch.begin();
    for (auto &yielder : yielders) anon_send(yielder, uint64_t{ 0 });
    uint64_t counted = over.wait();
    watch.end(processes * size);
    watch.expect("yields", counted, processes * size);
}

void timers(actor_system &system, Watch &watch, uint64_t size)
{
    Over                  over;
    std::vector<int64_t>  late(size);
    std::atomic<uint64_t> ended{ 0 };
    settle();
    watch.begin();
    for (uint64_t i = 0; i < size; i++)
        system.spawn([&, i](event_based_actor *self) -> behavior {
            uint64_t state = i * 7919 + 1;
            random_next(state);
            int64_t span_ns = static_cast<int64_t>(random_next(state) % 1000000000);
            self->delayed_send(self, std::chrono::nanoseconds(span_ns), now_ns() + span_ns);
            return { [&, i, self](int64_t due_ns) {
                late[i] = now_ns() - due_ns;
                self->quit();
                if (++ended == size) over.report(size);
            } };
        });
    over.wait();
    watch.end(size);
    watch.value(watch.cpu_ms(), "ms cpu");
    watch.expect("timers", ended, size);
    for (int64_t ns : late)
        if (ns < 0) fail(1, "timers: one came early");
    watch.percentiles(late);
}
