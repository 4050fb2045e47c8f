// messages.cpp - the benchmarks of messages.
#include "peer.hpp"

#include <memory>

using namespace caf;

void pingpong(actor_system &system, Watch &watch, uint64_t size)
{
    Over     over;
    uint64_t answered = 0;
    actor    pong = system.spawn([&](event_based_actor *self) -> behavior {
        return { [&answered, self](uint64_t left) {
            answered++;
            self->send(actor_cast<actor>(self->current_sender()), left);
        } };
    });
    settle();
    watch.begin();
    system.spawn([&, pong](event_based_actor *self) -> behavior {
        self->send(pong, size);
        return { [&over, &answered, self, pong](uint64_t left) {
            if (left == 1) over.report(answered);
            else self->send(pong, left - 1);
        } };
    });
    uint64_t counted = over.wait();
    watch.end(2 * size);
    watch.expect("round trips", counted, size);
}

// A message with a number is the token; the number is the hops that are left. A message with an actor sets the next
// member of the ring; only the last member gets one, which closes the ring.
static behavior member(event_based_actor *self, Over *over, actor next)
{
    auto rounds = std::make_shared<uint64_t>(0);
    auto to = std::make_shared<actor>(next);
    return { [=](uint64_t left) {
                if (left % 1000 == 0) ++*rounds; // true at one member only, because the ring has 1000 members
                if (left == 0) over->report(*rounds);
                else self->send(*to, left - 1);
            },
             [=](const actor &first) { *to = first; } };
}

void ring(actor_system &system, Watch &watch, uint64_t size)
{
    const int    processes = 1000;
    Over         over;
    actor        last = system.spawn(member, &over, actor{}), next = last;
    scoped_actor outside{ system };
    for (int i = 1; i < processes; i++) next = system.spawn(member, &over, next);
    outside->send(last, next);
    settle();
    watch.begin();
    outside->send(next, size);
    uint64_t rounds = over.wait();
    watch.end(size);
    watch.expect("rounds", rounds, size / processes + 1);
}

// Adds up the numbers it receives, and reports the sum after `count` messages.
static behavior counter(event_based_actor *, Over *over, uint64_t count)
{
    auto seen = std::make_shared<uint64_t>(0), sum = std::make_shared<uint64_t>(0);
    return { [=](uint64_t number) {
        *sum += number;
        if (++*seen == count) over->report(*sum);
    } };
}

// After this number of sends an actor sends itself a message and returns, so that other actors read. Otherwise the
// unread messages would fill the memory.
static const uint64_t per_step = 200;

void counting(actor_system &system, Watch &watch, uint64_t size)
{
    Over  over;
    actor to = system.spawn(counter, &over, size);
    settle();
    watch.begin();
    actor producer = system.spawn([to, size](event_based_actor *self) -> behavior {
        return { [=](uint64_t first) {
            uint64_t until = std::min(first + per_step, size);
            for (uint64_t number = first; number < until; number++) self->send(to, number);
            if (until < size) self->send(self, until);
        } };
    });
    anon_send(producer, uint64_t{ 0 });
    uint64_t sum = over.wait();
    watch.end(size);
    watch.expect("the sum", sum, size * (size - 1) / 2);
}

void fanin(actor_system &system, Watch &watch, uint64_t size)
{
    const uint64_t     producers = 100;
    Over               over;
    std::vector<actor> senders;
    actor              to = system.spawn(counter, &over, producers * size);
    for (uint64_t i = 0; i < producers; i++)
        senders.push_back(system.spawn([to, size](event_based_actor *self) -> behavior {
            return { [=](uint64_t first) {
                uint64_t until = std::min(first + per_step, size);
                for (uint64_t sent = first; sent < until; sent++) self->send(to, uint64_t{ 1 });
                if (until < size) self->send(self, until);
            } };
        }));
    settle();
    watch.begin();
    for (auto &sender : senders) anon_send(sender, uint64_t{ 0 });
    uint64_t received = over.wait();
    watch.end(producers * size);
    watch.expect("messages", received, producers * size);
}

enum Message : int32_t { PING, PONG, START };

// CAF counts references to actors. The vector `pingers` holds the references; each pinger has only a pointer to it.
static behavior pinger(event_based_actor *self, uint64_t me, const std::vector<actor> *pingers, actor judge,
                       uint64_t size)
{
    auto random = std::make_shared<uint64_t>(me * 7919 + 1), ponged = std::make_shared<uint64_t>(0);
    auto ping_random = [=] {
        uint64_t other = me;
        while (other == me) other = random_next(*random) % pingers->size();
        self->send((*pingers)[other], int32_t{ PING });
    };
    return { [=](int32_t kind) {
        if (kind == PING) self->send(actor_cast<actor>(self->current_sender()), int32_t{ PONG });
        else if (kind == START) ping_random();
        else if (++*ponged == size) self->send(judge, *ponged);
        else ping_random();
    } };
}

void big(actor_system &system, Watch &watch, uint64_t size)
{
    const uint64_t     processes = 500;
    Over               over;
    std::vector<actor> pingers;
    actor              judge = system.spawn(counter, &over, processes);
    pingers.reserve(processes);
    for (uint64_t i = 0; i < processes; i++) pingers.push_back(system.spawn(pinger, i, &pingers, judge, size));
    settle();
    watch.begin();
    for (auto &to : pingers) anon_send(to, int32_t{ START });
    uint64_t pongs = over.wait();
    watch.end(2 * processes * size);
    watch.expect("pongs", pongs, processes * size);
}

void forkjoin(actor_system &system, Watch &watch, uint64_t size)
{
    const uint64_t     processes = 10000;
    Over               over;
    std::vector<actor> joiners;
    actor              judge = system.spawn(counter, &over, processes);
    for (uint64_t i = 0; i < processes; i++)
        joiners.push_back(system.spawn([judge, size](event_based_actor *self) -> behavior {
            auto seen = std::make_shared<uint64_t>(0);
            return { [=](uint64_t one) {
                *seen += one;
                if (*seen < size) return;
                self->send(judge, *seen);
                self->quit();
            } };
        }));
    settle();
    watch.begin();
    actor forker = system.spawn([&joiners, size](event_based_actor *self) -> behavior {
        return { [&joiners, size, self](uint64_t first) {
            uint64_t until = std::min(first + per_step, processes * size);
            for (uint64_t sent = first; sent < until; sent++) self->send(joiners[sent % processes], uint64_t{ 1 });
            if (until < processes * size) self->send(self, until);
        } };
    });
    anon_send(forker, uint64_t{ 0 });
    uint64_t total = over.wait();
    watch.end(processes * size);
    watch.expect("messages", total, processes * size);
}
