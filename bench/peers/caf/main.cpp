// main.cpp - the twelve benchmarks on CAF: arguments, stopwatch, one line of JSON.
//
//     peer NAME [--run K] [--size N]
//
// A process is an event-based actor. Two scheduler threads. The policy is the shared queue: under the default,
// stealing, a million spawns had not ended after 20 s of CPU time, against 1.5 s under this one.
#include "peer.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <unistd.h>

static const int workers = 2;

static const struct {
    const char *name;
    uint64_t    size;
    Bench       run;
} benches[] = {
    { "pingpong", 1000000, pingpong },
    { "ring", 2000000, ring },
    { "spawn", 1000000, spawn },
    { "skynet", 1000000, skynet },
    { "counting", 5000000, counting },
    { "fanin", 50000, fanin },
    { "big", 5000, big },
    { "forkjoin", 100, forkjoin },
    { "idle", 1000000, idle },
    { "wake", 5000, wake },
    { "yield", 100, yields },
    { "timers", 100000, timers },
};

// ---- the machine ----

static int64_t clock_ns(clockid_t id)
{
    timespec now;
    clock_gettime(id, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t now_ns()
{
    return clock_ns(CLOCK_MONOTONIC);
}

void sleep_ns(int64_t ns)
{
    timespec span = { ns / 1000000000, ns % 1000000000 };
    while (nanosleep(&span, &span) != 0) {}
}

void settle()
{
    sleep_ns(100000000);
}

uint64_t resident_bytes()
{
    uint64_t size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

static double peak_mb()
{
    std::ifstream status("/proc/self/status");
    std::string   word;
    double        kib = 0;
    while (status >> word && word != "VmHWM:") {}
    status >> kib;
    return kib / 1024;
}

void fail(int code, const std::string &text)
{
    fprintf(stderr, "caf: %s\n", text.c_str());
    exit(code);
}

// ---- the stopwatch ----

void Watch::begin()
{
    began_cpu_ns_ = static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    began_ns_ = static_cast<double>(now_ns());
}

void Watch::end(uint64_t operations)
{
    took_ns_ = static_cast<double>(now_ns()) - began_ns_;
    cpu_ns_ = static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID)) - began_cpu_ns_;
    operations_ = operations;
    value(took_ns_ / static_cast<double>(operations), "ns/op");
}

void Watch::value(double number, const char *unit)
{
    value_ = number;
    unit_ = unit;
}

void Watch::expect(const char *what, uint64_t got, uint64_t want) const
{
    if (got != want) fail(1, name_ + ": " + what + " is " + std::to_string(got) + ", not " + std::to_string(want));
}

double Watch::percentiles(std::vector<int64_t> samples_ns)
{
    static const struct {
        const char *name;
        double      share;
    } points[] = { { "p50_us", 0.5 }, { "p99_us", 0.99 }, { "max_us", 1 } };
    std::sort(samples_ns.begin(), samples_ns.end());
    for (auto &point : points) {
        char   text[64];
        size_t at = static_cast<size_t>(point.share * static_cast<double>(samples_ns.size() - 1));
        snprintf(text, sizeof text, ",\"%s\":%.3f", point.name, static_cast<double>(samples_ns[at]) / 1000);
        extra_ += text;
    }
    return static_cast<double>(samples_ns[samples_ns.size() / 2]) / 1000;
}

void Watch::print(uint64_t run, uint64_t size) const
{
    printf("{\"system\":\"caf\",\"bench\":\"%s\",\"run\":%llu,\"value\":%.3f,\"unit\":\"%s\",\"cpu_ms\":%.1f"
           ",\"rss_mb\":%.1f,\"workers\":%d,\"size\":%llu,\"operations\":%llu%s}\n",
           name_.c_str(), static_cast<unsigned long long>(run), value_, unit_.c_str(), cpu_ms(), peak_mb(), workers,
           static_cast<unsigned long long>(size), static_cast<unsigned long long>(operations_), extra_.c_str());
    fflush(stdout);
}

// ---- arguments ----

[[noreturn]] static void usage()
{
    fail(2, "usage: peer NAME [--run K] [--size N]");
}

static uint64_t number(const char *text)
{
    char              *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value == 0) usage();
    return value;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc % 2 != 0) usage();
    auto bench =
        std::find_if(std::begin(benches), std::end(benches), [&](auto &b) { return strcmp(b.name, argv[1]) == 0; });
    if (bench == std::end(benches)) fail(2, std::string("there is no benchmark '") + argv[1] + "'");
    uint64_t run = 1, size = bench->size;
    for (int i = 2; i < argc; i += 2) {
        if (strcmp(argv[i], "--run") == 0) run = number(argv[i + 1]);
        else if (strcmp(argv[i], "--size") == 0) size = number(argv[i + 1]);
        else usage();
    }
    caf::actor_system_config config;
    config.set("scheduler.max-threads", workers);
    config.set("scheduler.policy", caf::atom("sharing"));
    caf::actor_system system{ config };
    Watch             watch{ bench->name };
    bench->run(system, watch, size);
    watch.print(run, size);
    _exit(0); // ends the program without ending a million actors one by one
}
