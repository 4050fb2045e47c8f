// exception_test.cpp - an exception of C++ that leaves a step under filch_tick passes through it, and the scheduler can
// be ticked on, stopped and freed. Also what the header is in C++ alone: filch_sized. Built with the C++ compiler by
// test/CMakeLists.txt; no cmocka: its macros are C.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <filch.h>

static int64_t blocks; // number of memory blocks that the scheduler holds
static int     closes, failures;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            std::printf("exception_test:%d: not so: %s\n", __LINE__, #condition); \
            failures++;                                                           \
        }                                                                         \
    } while (0)

static void *count_blocks(void *, void *old, size_t, size_t size)
{
    if (size == 0) {
        blocks--;
        std::free(old);
        return nullptr;
    }
    void *at = std::realloc(old, size);
    if (at != nullptr && old == nullptr) blocks++;
    return at;
}

enum how {
    FIRST_STEP,
    ONE_MESSAGE,
    SEVERAL,
    A_TEXT,
    TEXT_OF_A_STEP,
    TEXTS_OF_A_STEP,
    ANSWER,
    SLEEP,
    AFTER_YIELD,
    IN_CLOSE,
    HOWS
};

struct thrower {
    int64_t how, steps;
};

static filch_err thrower_init(void *self, const filch_ctx *, const char *, const filch_data *args)
{
    static_cast<thrower *>(self)->how = filch_as_int(args);
    return FILCH_OK;
}

static filch_err thrower_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    thrower *me = static_cast<thrower *>(self);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    if (me->how == IN_CLOSE) return filch_done(out, filch_none());
    bool asks = me->how == ANSWER || me->how == SLEEP;
    if (me->how == FIRST_STEP || (me->steps++ > 0 && count > 0)) {
        if (me->how == AFTER_YIELD) {
            // This yield and this result have no effect, because the step throws; their blocks must be freed.
            if (filch_yield(out, FILCH_CMD_USER, 1, filch_str("a text that does not fit into the command itself")) !=
                FILCH_OK)
                std::abort();
            (void)filch_done(out, filch_str("a result that is long enough for a block"));
        }
        throw std::runtime_error("out of a step");
    }
    if (me->how == ANSWER && filch_yield(out, FILCH_CMD_USER, 2, filch_none()) != FILCH_OK) std::abort();
    if (me->how == SLEEP && filch_yield_sleep(out, 3, 1) != FILCH_OK) std::abort();
    return asks ? filch_wait(out) : filch_idle(out);
}

static void thrower_close(void *self)
{
    closes++;
    if (static_cast<thrower *>(self)->how == IN_CLOSE) throw std::runtime_error("out of a close");
}

static filch_err complete_now(void *, const filch_command *, uint64_t tag, filch_receiver receiver)
{
    return filch_complete(receiver, tag, filch_int(1), FILCH_OK);
}

static filch_type thrower_type()
{
    filch_type type = filch_type();
    type.name = "thrower";
    type.size = sizeof(thrower);
    type.init = thrower_init;
    type.step = thrower_step;
    type.close = thrower_close;
    return type;
}

static const filch_type type = thrower_type();

static filch_pid start(filch_sched *sched, int how)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid = { 0, 0 };
    options.args = filch_int(how);
    CHECK(filch_spawn(sched, &type, &options, &pid) == FILCH_OK);
    return pid;
}

// State of a process that sends `texts` texts to the process `to` in its first step and ends. The texts are too long
// for an event, so each needs a block.
struct writer {
    filch_pid to;
    int64_t   texts;
};

static filch_err writer_init(void *self, const filch_ctx *, const char *, const filch_data *args)
{
    std::memcpy(self, filch_raw(args), sizeof(writer));
    return FILCH_OK;
}

static filch_err writer_step(void *self, const filch_event *, size_t, filch_out *out)
{
    writer *me = static_cast<writer *>(self);
    for (int64_t i = 0; i < me->texts; i++)
        CHECK(filch_send(filch_out_sched(out), me->to, filch_str("a text that is long enough to be a block")) ==
              FILCH_OK);
    return filch_done(out, filch_none());
}

static void send_from_a_step(filch_sched *sched, filch_pid to, int64_t texts)
{
    filch_type writer_type = filch_type();
    writer_type.name = "writer";
    writer_type.size = sizeof(writer);
    writer_type.init = writer_init;
    writer_type.step = writer_step;
    static const filch_type type = writer_type;
    filch_spawn_options     options = FILCH_SPAWN_OPTIONS_INIT;
    writer                  first = { to, texts };
    options.args = filch_bytes(&first, sizeof first);
    CHECK(filch_spawn(sched, &type, &options, nullptr) == FILCH_OK);
}

static bool tick_throws(filch_sched *sched)
{
    try {
        CHECK(filch_tick(sched, 0, nullptr) == FILCH_OK);
    } catch (const std::exception &) {
        return true;
    }
    return false;
}

static void send_what_makes_it_throw(filch_sched *sched, filch_pid pid, int how)
{
    int messages = how == SEVERAL ? 5 : how == ONE_MESSAGE || how == AFTER_YIELD ? 1 : 0;
    for (int i = 0; i < messages; i++) CHECK(filch_send(sched, pid, filch_int(i)) == FILCH_OK);
    if (how == TEXT_OF_A_STEP) send_from_a_step(sched, pid, 1);
    if (how == TEXTS_OF_A_STEP) send_from_a_step(sched, pid, 5);
    if (how == A_TEXT) CHECK(filch_send(sched, pid, filch_str("a text that is long enough to be a block")) == FILCH_OK);
}

// Makes a process throw in the way `how`, then stops the scheduler. If `on` is true, ticks again between the exception
// and the stop.
static void once(int how, bool on)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched = nullptr;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = count_blocks;
    CHECK(filch_registry_create(&options.registry) == FILCH_OK);
    CHECK(filch_registry_add(options.registry, FILCH_CMD_USER, complete_now, nullptr) == FILCH_OK);
    CHECK(filch_sched_create(&sched, &options) == FILCH_OK);
    filch_registry_destroy(options.registry);
    closes = 0;
    filch_pid pid = start(sched, how);
    filch_pid other = start(sched, HOWS); // gets no message, so it does not throw
    bool      thrown = tick_throws(sched);
    if (!thrown) send_what_makes_it_throw(sched, pid, how);
    for (int i = 0; i < 1000000 && !thrown; i++) thrown = tick_throws(sched);
    CHECK(thrown);
    if (on) {
        CHECK(!tick_throws(sched));
        CHECK(filch_send(sched, pid, filch_int(1)) == FILCH_EDEAD);
        CHECK(filch_cancel(sched, other) == FILCH_OK);
        CHECK(!tick_throws(sched));
        filch_stats stats = FILCH_STATS_INIT;
        CHECK(filch_sched_stats(sched, &stats) == FILCH_OK && stats.alive == 0);
    }
    filch_report report = FILCH_REPORT_INIT;
    CHECK(filch_sched_stop(sched, FILCH_SECONDS(60), &report) == FILCH_OK);
    CHECK(report.forced == 0 && report.stuck == 0);
    filch_report_free(&report);
    CHECK(closes == 2);
    CHECK(blocks == 0);
    blocks = 0;
}

// Step of a process that throws on its cancel. The exception leaves filch_sched_stop(); a second stop must succeed.
static filch_err last_words(void *, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) throw std::runtime_error("last words");
    return filch_idle(out);
}

static void stop_throws_once()
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched = nullptr;
    filch_type    speaker = filch_type();
    bool          thrown = false;
    speaker.name = "speaker";
    speaker.step = last_words;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = count_blocks;
    CHECK(filch_sched_create(&sched, &options) == FILCH_OK);
    CHECK(filch_spawn(sched, &speaker, nullptr, nullptr) == FILCH_OK);
    try {
        (void)filch_sched_stop(sched, FILCH_SECONDS(60), nullptr);
    } catch (const std::exception &) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(filch_sched_stop(sched, FILCH_SECONDS(60), nullptr) == FILCH_OK);
    CHECK(blocks == 0);
}

// An on_exit function that throws. Its process has ended nevertheless: the name of the process is free, and the next
// tick steps other processes.
static void exit_throws(void *, filch_pid, filch_err, const filch_data *)
{
    throw std::runtime_error("out of an on_exit");
}

static filch_err ends_at_once(void *, const filch_event *, size_t, filch_out *out)
{
    return filch_done(out, filch_str("a result that is long enough for a block"));
}

static void on_exit_throws_once()
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched = nullptr;
    filch_type    brief = filch_type();
    brief.name = "brief";
    brief.step = ends_at_once;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = count_blocks;
    CHECK(filch_sched_create(&sched, &options) == FILCH_OK);
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.on_exit = exit_throws;
    how.name = "brief";
    CHECK(filch_spawn(sched, &brief, &how, nullptr) == FILCH_OK);
    CHECK(tick_throws(sched));
    CHECK(!tick_throws(sched));
    filch_stats stats = FILCH_STATS_INIT;
    CHECK(filch_sched_stats(sched, &stats) == FILCH_OK && stats.alive == 0 && stats.ended == 1);
    how.on_exit = nullptr;
    CHECK(filch_spawn(sched, &brief, &how, nullptr) == FILCH_OK);
    CHECK(!tick_throws(sched));
    CHECK(filch_sched_stop(sched, FILCH_SECONDS(60), nullptr) == FILCH_OK);
    CHECK(blocks == 0);
    blocks = 0;
}

// Type of a monitored process with a close function that throws. The watcher must get the EXIT notice, and no data of
// the process may stay in its slot.
static filch_type closer;
static int        exits, values_freed;

static void free_value(void *, void *, size_t)
{
    values_freed++;
}

static void close_throws(void *)
{
    throw std::runtime_error("out of a close");
}

static filch_err watcher_step(void *, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_EXIT && events[i].error == FILCH_EKILLED) exits++;
    }
    if (count > 0) return filch_idle(out);
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.relations = FILCH_SPAWN_MONITOR;
    how.on_exit = exit_throws; // must not be called, because close_throws() throws before
    how.name = "closer";
    how.blackbox = 4;
    static char value[] = "a value that is long enough for a block";
    if (filch_values_create(nullptr, "key", filch_move(value, sizeof value, free_value), &how.values) != FILCH_OK)
        std::abort();
    filch_err err = filch_spawn(filch_out_sched(out), &closer, &how, nullptr);
    filch_values_drop(how.values);
    if (err != FILCH_OK) std::abort();
    return filch_idle(out);
}

static void ignore_recording(void *, filch_pid, filch_err, const void *, size_t)
{
}

static void watched_close_throws()
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched = nullptr;
    filch_type    watcher = filch_type();
    watcher.name = "watcher";
    watcher.step = watcher_step;
    closer = filch_type();
    closer.name = "closer";
    closer.size = 1000; // too large for the control block, so the state has a block of its own
    closer.step = ends_at_once;
    closer.close = close_throws;
    options.on_blackbox = ignore_recording;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = count_blocks;
    CHECK(filch_sched_create(&sched, &options) == FILCH_OK);
    CHECK(filch_spawn(sched, &watcher, nullptr, nullptr) == FILCH_OK);
    CHECK(tick_throws(sched));
    CHECK(!tick_throws(sched));
    CHECK(exits == 1);
    CHECK(values_freed == 1);
    filch_pid pid = { 0, 0 };
    CHECK(filch_whereis(sched, "closer", &pid) != FILCH_OK);
    CHECK(filch_sched_stop(sched, FILCH_SECONDS(60), nullptr) == FILCH_OK);
    CHECK(blocks == 0);
    blocks = 0;
}

// An on_failure hook that throws. Neither the detail of the failure nor the state of the process may leak.
static void failure_throws(void *, const filch_failure *)
{
    throw std::runtime_error("out of on_failure");
}

static filch_err fails_with_detail(void *, const filch_event *, size_t, filch_out *out)
{
    return filch_fail(out, FILCH_EUSER, filch_str("a detail that is long enough for a block"));
}

static void on_failure_throws()
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched = nullptr;
    filch_type    failing = filch_type();
    failing.name = "failing";
    failing.size = 1000;
    failing.step = fails_with_detail;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = count_blocks;
    options.on_failure = failure_throws;
    CHECK(filch_sched_create(&sched, &options) == FILCH_OK);
    CHECK(filch_spawn(sched, &failing, nullptr, nullptr) == FILCH_OK);
    CHECK(tick_throws(sched));
    CHECK(!tick_throws(sched));
    CHECK(filch_sched_stop(sched, FILCH_SECONDS(60), nullptr) == FILCH_OK);
    CHECK(blocks == 0);
    blocks = 0;
}

// Checks that filch_sized() sets `size` and clears all other bytes of a struct, whatever the memory contained before.
template <typename T> static void sized_is_empty()
{
    T made;
    std::memset(static_cast<void *>(&made), 0x5a, sizeof made);
    made = filch_sized<T>();
    CHECK(made.size == sizeof(T));
    made.size = 0;
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(&made);
    size_t               other = 0;
    for (size_t i = 0; i < sizeof made; i++) other += bytes[i] != 0;
    CHECK(other == 0);
}

static void options_begin_empty()
{
    sized_is_empty<filch_options>();
    sized_is_empty<filch_spawn_options>();
    sized_is_empty<filch_stop_options>();
    sized_is_empty<filch_node_options>();
    sized_is_empty<filch_report>();
    sized_is_empty<filch_stats>();
}

int main()
{
    options_begin_empty();
    for (int how = FIRST_STEP; how < HOWS; how++) {
        for (int on = 0; on < 2; on++) {
            int before = failures;
            once(how, on != 0);
            if (failures > before) std::printf("exception_test: in case %d, %d\n", how, on);
        }
    }
    stop_throws_once();
    on_exit_throws_once();
    watched_close_throws();
    on_failure_throws();
    std::printf("exception_test: %s\n", failures == 0 ? "passed" : "failed");
    return failures == 0 ? 0 : 1;
}
