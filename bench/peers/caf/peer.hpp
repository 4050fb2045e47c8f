// peer.hpp - shared by the CAF benchmarks: the stopwatch with its checks, and a class to wait for the result of an
// actor.
#pragma once

#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

class Watch
{
  public:
    explicit Watch(std::string name) : name_(std::move(name))
    {
    }
    void   begin();
    void   end(uint64_t operations); // the value is ns per operation
    void   value(double number, const char *unit);
    void   expect(const char *what, uint64_t got, uint64_t want) const; // ends the program if they differ
    double percentiles(std::vector<int64_t> samples_ns);                // adds p50, p99 and max; gives the median in us
    void   print(uint64_t run, uint64_t size) const;
    double took_ms() const
    {
        return took_ns_ / 1e6;
    }
    double cpu_ms() const
    {
        return cpu_ns_ / 1e6;
    }

  private:
    std::string name_, unit_, extra_;
    double      began_ns_ = 0, took_ns_ = 0, began_cpu_ns_ = 0, cpu_ns_ = 0, value_ = 0;
    uint64_t    operations_ = 0;
};

// An actor calls report once; the main thread waits for the number.
class Over
{
  public:
    void report(uint64_t number)
    {
        promise_.set_value(number);
    }
    uint64_t wait()
    {
        return promise_.get_future().get();
    }

  private:
    std::promise<uint64_t> promise_;
};

[[noreturn]] void fail(int code, const std::string &text);
int64_t           now_ns();
uint64_t          resident_bytes();
void              sleep_ns(int64_t ns);
void              settle(); // waits until the actors that were just started have become idle

// xorshift64*, the generator of the other benchmarks.
inline uint64_t random_next(uint64_t &state)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}

using Bench = void (*)(caf::actor_system &, Watch &, uint64_t size);

void pingpong(caf::actor_system &, Watch &, uint64_t size);
void ring(caf::actor_system &, Watch &, uint64_t size);
void spawn(caf::actor_system &, Watch &, uint64_t size);
void skynet(caf::actor_system &, Watch &, uint64_t size);
void counting(caf::actor_system &, Watch &, uint64_t size);
void fanin(caf::actor_system &, Watch &, uint64_t size);
void big(caf::actor_system &, Watch &, uint64_t size);
void forkjoin(caf::actor_system &, Watch &, uint64_t size);
void idle(caf::actor_system &, Watch &, uint64_t size);
void wake(caf::actor_system &, Watch &, uint64_t size);
void yields(caf::actor_system &, Watch &, uint64_t size);
void timers(caf::actor_system &, Watch &, uint64_t size);
