/* tour.c - a guided tour of Filch, ending with a million processes. `./dev run` runs it.
 *
 *     tour [PROCESSES]      number of processes in the last section; default: a million
 *
 * Each section is one function, with the processes it needs just above it. A section prints its results and checks
 * them: the exit code is 0 only if all checks succeeded. The smaller programs in this folder explain the same features
 * one at a time.
 */
#include "tour.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STOP_NS FILCH_SECONDS(10)

static int asked_to_end(const filch_event *events, size_t count)
{
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL; /* a CANCEL is always the first event of a step */
}

/* Init function: stores the pid in `args` at the beginning of the state. */
static filch_err init_with_pid(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    *(filch_pid *)self = filch_as_pid(args); /* filch_as_pid returns an invalid pid if `args` is not a pid */
    return FILCH_OK;
}

static filch_err init_with_pointer(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    *(void **)self = filch_as_ptr(args);
    return FILCH_OK;
}

/* Spawns a process. The gate `g` opens when the process ends, so that main can wait for the end. */
static filch_err spawn_gated(filch_sched *sched, const filch_type *type, filch_data args, gate *g, filch_pid *pid)
{
    filch_spawn_options options = gate_options(g, args);
    return filch_spawn(sched, type, &options, pid);
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */

struct greeter {
    int greeted;
};

static filch_err greeter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct greeter *g = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        say("hello, %s", filch_text(&events[i].data));
        g->greeted++;
    }
    return g->greeted < 3 ? filch_idle(out) : filch_done(out, filch_int(g->greeted));
}

static const filch_type greeter = { .name = "greeter", .size = sizeof(struct greeter), .step = greeter_step };

static void tour_hello(filch_sched *sched)
{
    const char *names[] = { "world", "moon", "sun" };
    filch_pid   pid;
    heading("Hello",
            "A process is a step function, a little state, a pid and a mailbox. This one gets three messages.");
    gate                g;
    filch_spawn_options options = gate_options(&g, filch_none());
    if (!check_ok(filch_spawn(sched, &greeter, &options, &pid), "spawn")) return;
    for (int i = 0; i < 3; i++) check_ok(filch_send(sched, pid, filch_str(names[i])), "send");
    if (gate_wait(&g, "the greeter to end")) check(g.result == 3, "the process printed three greetings");
}

/* ---- a ring ------------------------------------------------------------------------------------------------------ */

#define RING 1000
#define LAPS 1000

struct member {
    filch_pid next;
};

static filch_err member_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct member *m = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        /* a message with a pid sets the next member of the ring */
        if (filch_kind_of(&events[i].data) == FILCH_KIND_PID) {
            m->next = filch_as_pid(&events[i].data);
            continue;
        }
        int64_t hops = filch_as_int(&events[i].data);
        if (hops == RING * LAPS) return filch_done(out, filch_int(hops));
        filch_err err = filch_send(filch_out_sched(out), m->next, filch_int(hops + 1));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type member = {
    .name = "ring member", .size = sizeof(struct member), .init = init_with_pid, .step = member_step
};

static void tour_ring(filch_sched *sched)
{
    gate      g;
    filch_pid first, next;
    heading("A ring", "1,000 processes in a ring pass a token on, 1,000 rounds. Only the process with the token runs.");
    filch_err err = spawn_gated(sched, &member, filch_none(), &g, &first);
    next = first;
    for (int i = 1; i < RING && err == FILCH_OK; i++) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        options.args = filch_of_pid(next);
        err = filch_spawn(sched, &member, &options, &next);
    }
    uint64_t began_ns = now_ns();
    if (err == FILCH_OK) err = filch_send(sched, first, filch_of_pid(next));
    if (err == FILCH_OK) err = filch_send(sched, first, filch_int(0));
    if (!check_ok(err, "the ring is built") || !gate_wait(&g, "the token to make its rounds")) return;
    double took = seconds_since(began_ns);
    check(g.result == RING * LAPS, "the token made every hop");
    say("1,000,000 hops in %.2f s: %.0f ns each", took, took * 1e9 / (RING * LAPS));
}

/* ---- back pressure ----------------------------------------------------------------------------------------------- */

#define ITEMS 200
#define ROOM 8

static atomic_int made; /* number of items the producer has sent so far */

struct producer {
    filch_pid to;
};

/* Sends the next item when the last send has been completed. */
static filch_err producer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct producer *p = self;
    if (asked_to_end(events, count)) return FILCH_ECANCELLED;
    if (count > 0 && events[0].error != FILCH_OK) return events[0].error;
    if (atomic_load(&made) == ITEMS) return filch_done(out, filch_none());
    filch_err err = filch_yield_send(out, 0, p->to, filch_int(atomic_fetch_add(&made, 1)));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type producer = {
    .name = "producer", .size = sizeof(struct producer), .init = init_with_pid, .step = producer_step
};

struct consumer {
    int used, lead_max, in_order;
};

/* The consumer works 100 us for each item. Its result is the largest lead of the producer (items sent but not used), or
 * -1 after an error. */
static filch_err consumer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct consumer *c = self;
    if (asked_to_end(events, count)) return FILCH_ECANCELLED;
    int before = c->used, lead = atomic_load(&made) - before;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        c->in_order += filch_as_int(&events[i].data) == c->used;
        c->used++;
    }
    if (c->used == before && c->used == ITEMS)
        return filch_done(out, filch_int(c->in_order == ITEMS ? c->lead_max : -1));
    if (c->used == before) return filch_idle(out);
    if (lead > c->lead_max) c->lead_max = lead;
    filch_err err = filch_yield_sleep(out, 0, FILCH_MICROSECONDS(100 * (c->used - before)));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type consumer = { .name = "consumer", .size = sizeof(struct consumer), .step = consumer_step };

/* Runs a producer and a consumer. Returns the largest lead of the producer if the mailbox has space for `room`
 * messages; -1 if a call failed. */
static int64_t run_pipeline(filch_sched *sched, uint32_t room)
{
    gate      eaten, sent;
    filch_pid pid = { 0, 0 };
    atomic_store(&made, 0);
    filch_spawn_options options = gate_options(&eaten, filch_none());
    options.mailbox_max = room;
    options.overflow = FILCH_OVERFLOW_WAIT;
    filch_err err = filch_spawn(sched, &consumer, &options, &pid);
    uint64_t  began_ns = now_ns();
    if (err == FILCH_OK) err = spawn_gated(sched, &producer, filch_of_pid(pid), &sent, NULL);
    if (!check_ok(err, "spawn") || !gate_wait(&sent, "the producer")) return -1;
    double sent_ms = seconds_since(began_ns) * 1e3;
    if (!gate_wait(&eaten, "the consumer")) return -1;
    say("%-11s the producer was done after %.1f ms, the consumer after %.1f ms; at most %lld items between them",
        room == 0 ? "no limit:" : "room for 8:", sent_ms, seconds_since(began_ns) * 1e3, (long long)eaten.result);
    return eaten.result;
}

static void tour_back_pressure(filch_sched *sched)
{
    heading(
        "Back pressure",
        "A fast producer, a slow consumer, 200 items. With a bounded mailbox a send is a yield that waits for room.");
    int64_t unlimited = run_pipeline(sched, 0);
    int64_t limited = unlimited < 0 ? -1 : run_pipeline(sched, ROOM);
    check(unlimited >= 0 && limited >= 0, "every item arrived once, in order");
    /* The lead is at most ROOM items in the mailbox, ROOM in the events of the consumer's step, and one that is being
     * sent. */
    check(limited <= 2 * ROOM + 1, "the producer was held back");
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

#define SLEEPERS 1000

struct alarm {
    uint64_t due_ns;
    int64_t  late_ns;
};

struct sleeper {
    struct alarm *alarm;
};

static atomic_int asleep; /* number of sleepers that have not woken yet */
static gate       all_awake;

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct alarm *a = ((struct sleeper *)self)->alarm;
    if (asked_to_end(events, count)) return FILCH_ECANCELLED;
    if (count > 0) {
        a->late_ns = (int64_t)(now_ns() - a->due_ns);
        if (atomic_fetch_sub(&asleep, 1) == 1) sem_post(&all_awake.open);
        return filch_done(out, filch_none());
    }
    uint64_t delay_ns = a->due_ns;
    a->due_ns = now_ns() + delay_ns;
    filch_err err = filch_yield_sleep(out, 0, delay_ns);
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type sleeper = {
    .name = "sleeper", .size = sizeof(struct sleeper), .init = init_with_pointer, .step = sleeper_step
};

static int by_lateness(const void *a, const void *b)
{
    int64_t x = ((const struct alarm *)a)->late_ns, y = ((const struct alarm *)b)->late_ns;
    return (x > y) - (x < y);
}

static void tour_timers(filch_sched *sched)
{
    static struct alarm alarms[SLEEPERS];
    heading("Timers", "1,000 processes sleep for 1 to 250 ms. No process wakes early. How late do they wake?");
    (void)gate_options(&all_awake, filch_none());
    atomic_store(&asleep, SLEEPERS);
    filch_err err = FILCH_OK;
    for (int i = 0; i < SLEEPERS && err == FILCH_OK; i++) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        alarms[i].due_ns = FILCH_MILLISECONDS(1) + (uint64_t)i * FILCH_MILLISECONDS(249) / SLEEPERS;
        options.args = filch_ptr(&alarms[i]);
        err = filch_spawn(sched, &sleeper, &options, NULL);
    }
    if (!check_ok(err, "spawn") || !gate_wait(&all_awake, "the sleepers")) return;
    qsort(alarms, SLEEPERS, sizeof alarms[0], by_lateness);
    check(alarms[0].late_ns >= 0, "no process woke early");
    say("late by: 50 %% under %.0f us, 99 %% under %.0f us, at most %.0f us",
        (double)alarms[SLEEPERS / 2].late_ns / 1e3, (double)alarms[SLEEPERS * 99 / 100].late_ns / 1e3,
        (double)alarms[SLEEPERS - 1].late_ns / 1e3);
}

/* ---- the work pool ----------------------------------------------------------------------------------------------- */

#define JOBS 8
#define JOB_MS 25

static filch_err job(void *arg, filch_data *result)
{
    struct timespec slow = { 0, JOB_MS * 1000 * 1000 };
    nanosleep(&slow, NULL);
    *result = filch_int(*(const int *)arg);
    return FILCH_OK;
}

struct boss {
    int     begun, answers, messages;
    int64_t sum;
};

static filch_err boss_begin(filch_out *out)
{
    static const int numbers[JOBS] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    filch_err        err = filch_yield_ticker(out, JOBS, FILCH_MILLISECONDS(1));
    for (int i = 0; i < JOBS && err == FILCH_OK; i++) {
        err = filch_yield_work(out, (uint64_t)i, job, (void *)&numbers[i]);
    }
    return err != FILCH_OK ? err : filch_idle(out);
}

/* The result of this process is the number of ticks it received while the jobs were running. */
static filch_err boss_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct boss *b = self;
    if (asked_to_end(events, count)) return FILCH_ECANCELLED;
    if (!b->begun++) return boss_begin(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].error != FILCH_OK) return events[i].error;
        b->messages += events[i].type == FILCH_EVENT_MESSAGE;
        if (events[i].type != FILCH_EVENT_YIELD || events[i].tag == JOBS) continue;
        b->sum += filch_as_int(&events[i].data);
        b->answers++;
    }
    if (b->answers < JOBS) return filch_idle(out);
    return filch_done(out, filch_int(b->sum == JOBS * (JOBS + 1) / 2 ? b->messages : -1));
}

static const filch_type boss = { .name = "boss", .size = sizeof(struct boss), .step = boss_step };

static void tour_work(filch_sched *sched)
{
    gate g;
    heading("Blocking work", "8 functions that block for 25 ms each run on a pool of 4 threads. The process that "
                             "started them keeps running.");
    uint64_t began_ns = now_ns();
    if (!check_ok(spawn_gated(sched, &boss, filch_none(), &g, NULL), "spawn") || !gate_wait(&g, "the jobs")) return;
    check(g.result > 0, "all results came back, and ticks arrived meanwhile");
    say("%d ms of blocking done in %.0f ms; meanwhile the process read %lld ticks of its 1 ms ticker", JOBS * JOB_MS,
        seconds_since(began_ns) * 1e3, (long long)g.result);
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

static filch_err polite_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return asked_to_end(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

/* Step of a process that waits for an hour and ignores cancels. */
static filch_err stubborn_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    char *begun = self;
    (void)events;
    (void)count;
    filch_err err = *begun ? FILCH_OK : filch_yield_sleep(out, 77, FILCH_SECONDS(3600));
    *begun = 1;
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type polite = { .name = "polite", .step = polite_step };
static const filch_type stubborn = { .name = "stubborn", .size = 1, .step = stubborn_step };

static void tour_stop(filch_sched *sched)
{
    filch_report report = FILCH_REPORT_INIT;
    filch_err    err = FILCH_OK;
    heading("Stopping", "All processes are cancelled and have 300 ms to end. 100 processes end. One does not, and the "
                        "report lists it.");
    for (int i = 0; i < 100 && err == FILCH_OK; i++) err = filch_spawn(sched, &polite, NULL, NULL);
    if (err == FILCH_OK) err = filch_spawn(sched, &stubborn, NULL, NULL);
    check_ok(err, "spawn");
    uint64_t began_ns = now_ns();
    err = filch_sched_stop(sched, FILCH_MILLISECONDS(300), &report);
    check(err == FILCH_EDEADLINE, "stop reports that the deadline has passed");
    say("after %.0f ms: %llu ended by themselves, %llu by force", seconds_since(began_ns) * 1e3,
        (unsigned long long)report.ended, (unsigned long long)report.forced);
    check(report.ended == 100 && report.forced == 1 && report.count == 1, "exactly one process was ended by force");
    for (size_t i = 0; i < report.count; i++) {
        const filch_straggler *s = &report.stragglers[i];
        say("ended by force: \"%s\", pid %llx, was waiting for command %u with tag %llu%s", s->name,
            (unsigned long long)s->pid.serial, s->command, (unsigned long long)s->tag,
            s->command == FILCH_CMD_SLEEP ? " (a sleep)" : "");
        check(strcmp(s->name, "stubborn") == 0 && s->state == FILCH_STATE_BLOCKED && s->command == FILCH_CMD_SLEEP &&
                  s->tag == 77,
              "the report says what the process waited for");
    }
    filch_report_free(&report);
}

/* ---- a million --------------------------------------------------------------------------------------------------- */

/* Replies to the first message, then ends. */
static filch_err citizen_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count == 0) return filch_idle(out);
    if (events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    filch_err err = filch_send(filch_out_sched(out), events[0].from, events[0].data);
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

static const filch_type citizen = { .name = "citizen", .step = citizen_step };

struct census {
    uint64_t   all;
    filch_pid *pids;
    gate       gate; /* the gate opens when all citizens have been spawned, and again when the mayor ends */
    uint64_t   spawn_ns, talk_ns, began_ns;
};

/* State of the mayor, which spawns the citizens. When main sends it a message, the mayor sends a message to each
 * citizen and counts the replies. */
struct mayor {
    struct census *census;
    uint64_t       made, asked, answers, sum;
    int            talking;
};

static filch_err mayor_spawns(struct mayor *m, filch_out *out)
{
    struct census *c = m->census;
    if (m->made == 0) c->began_ns = now_ns();
    /* Spawns a thousand citizens per step, so that they make their first step while their memory is in the cache. */
    for (int i = 0; i < 1000 && m->made < c->all; i++, m->made++) {
        filch_err err = filch_spawn(filch_out_sched(out), &citizen, NULL, &c->pids[m->made]);
        if (err != FILCH_OK) return err;
    }
    if (m->made < c->all) return filch_continue(out);
    c->spawn_ns = now_ns() - c->began_ns;
    sem_post(&c->gate.open);
    return filch_idle(out);
}

static filch_err mayor_asks(struct mayor *m, filch_out *out)
{
    struct census *c = m->census;
    if (m->asked == 0) c->began_ns = now_ns();
    for (; m->asked < c->all && !filch_should_yield(out); m->asked++) {
        filch_err err = filch_send(filch_out_sched(out), c->pids[m->asked], filch_int((int64_t)m->asked));
        if (err != FILCH_OK) return err;
    }
    if (m->asked < c->all) return filch_continue(out);
    if (m->answers < c->all) return filch_idle(out);
    c->talk_ns = now_ns() - c->began_ns;
    return filch_done(out, filch_int(m->sum == c->all * (c->all - 1) / 2));
}

static filch_err mayor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct mayor *m = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        /* a message without payload comes from main: the mayor starts to send */
        if (filch_kind_of(&events[i].data) == FILCH_KIND_NONE) {
            m->talking = 1;
            continue;
        }
        m->sum += (uint64_t)filch_as_int(&events[i].data);
        m->answers++;
    }
    if (m->made < m->census->all) return mayor_spawns(m, out);
    return m->talking ? mayor_asks(m, out) : filch_idle(out);
}

static const filch_type mayor = {
    .name = "mayor", .size = sizeof(struct mayor), .init = init_with_pointer, .step = mayor_step
};

/* Returns the resident memory of this program in bytes. */
static uint64_t resident_bytes(void)
{
    unsigned long long total = 0, resident = 0;
    FILE              *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static filch_stats stats_of(filch_sched *sched)
{
    filch_stats stats = FILCH_STATS_INIT;
    check_ok(filch_sched_stats(sched, &stats), "stats");
    return stats;
}

/* Prints progress until the gate of `c` opens. */
static int watch_census(filch_sched *sched, struct census *c, int talking)
{
    uint64_t began_ns = now_ns();
    while (!gate_try(&c->gate)) {
        filch_stats stats = stats_of(sched);
        progress(talking ? "answered and ended:" : "spawned:", talking ? stats.ended : stats.spawned, c->all);
        if (must_give_up(began_ns, talking ? "the answers" : "the spawning")) return 0;
    }
    progress_over();
    return check_ok(c->gate.error, "the mayor");
}

/* Waits until all workers are parked and no step is made for a moment: then every process has made its step and is
 * idle. */
static int wait_until_quiet(filch_sched *sched)
{
    uint64_t        began_ns = now_ns(), steps = 0;
    struct timespec moment = { 0, 1000 * 1000 };
    for (;;) {
        filch_stats stats = stats_of(sched);
        if (stats.asleep == stats.workers && stats.steps == steps) return 1;
        steps = stats.steps;
        if (must_give_up(began_ns, "all workers to sleep")) return 0;
        nanosleep(&moment, NULL);
    }
}

static void summary(const struct census *c, const filch_stats *stats, uint64_t idle_bytes)
{
    char     text[32];
    uint64_t messages = 2 * c->all;
    say("processes            %14s", grouped(c->all, text));
    say("  to spawn all       %12.2f s   %6.0f ns each", (double)c->spawn_ns / 1e9,
        (double)c->spawn_ns / (double)c->all);
    say("  memory while idle  %12.0f MB  %6.0f bytes each", (double)idle_bytes / 1e6,
        (double)idle_bytes / (double)c->all);
    say("messages             %14s", grouped(messages, text));
    say("  to exchange all    %12.2f s   %6.0f ns each, the ends of the processes included", (double)c->talk_ns / 1e9,
        (double)c->talk_ns / (double)messages);
    say("workers              %14u", stats->workers);
    say("steals               %14s   %s processes moved", grouped(stats->steals, text),
        grouped(stats->stolen, (char[32]){ 0 }));
    say("undelivered          %14s", grouped(stats->undelivered, text));
}

static void tour_million(filch_sched *sched, uint64_t all)
{
    char          text[32], title[80];
    struct census c = { .all = all, .pids = malloc(all * sizeof(filch_pid)) };
    filch_pid     pid;
    snprintf(title, sizeof title, "%s processes", all == 1000000 ? "A million" : grouped(all, text));
    heading(title, "Each process is spawned, goes idle, gets one message, replies to it, and ends.");
    if (!check(c.pids != NULL, "memory for the pids")) return;
    /* touches the pages of c.pids now, so that `before` includes them */
    memset(c.pids, 1, all * sizeof(filch_pid));

    uint64_t before = resident_bytes();
    int      going = check_ok(spawn_gated(sched, &mayor, filch_ptr(&c), &c.gate, &pid), "spawn") &&
                watch_census(sched, &c, 0) && wait_until_quiet(sched);
    uint64_t idle_bytes = resident_bytes() - before;
    if (going) check(stats_of(sched).alive == all + 1, "all of them are alive at once");
    going = going && check_ok(filch_send(sched, pid, filch_none()), "send") && watch_census(sched, &c, 1) &&
            wait_until_quiet(sched);
    if (going) {
        filch_stats stats = stats_of(sched);
        check(c.gate.result == 1, "every reply arrived once");
        check(stats.alive == 0 && stats.failed == 0, "all of them ended without an error");
        check(stats.sent == 2 * all + 1 && stats.undelivered == 0, "no message was lost");
        summary(&c, &stats, idle_bytes);
    }
    check_ok(filch_sched_stop(sched, STOP_NS, NULL), "stop");
    free(c.pids);
}

/* ---- the tour ---------------------------------------------------------------------------------------------------- */

/* The sections that do not stop the scheduler. They all use the same scheduler. */
static void (*const sections[])(filch_sched *) = { tour_hello, tour_ring, tour_back_pressure, tour_timers, tour_work };

static void tour(uint64_t processes)
{
    filch_sched *sched;
    if (!check_ok(filch_sched_create(&sched, NULL), "create")) return;
    filch_stats stats = stats_of(sched);
    printf("Filch %s on %u worker%s. A short tour.\n", filch_version(), stats.workers, stats.workers == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && failures == 0 && !interrupted; i++) {
        sections[i](sched);
    }
    check_ok(filch_sched_stop(sched, STOP_NS, NULL), "stop");
    if (failures > 0 || interrupted) return;
    if (check_ok(filch_sched_create(&sched, NULL), "create")) tour_stop(sched);
    if (failures > 0 || interrupted) return;
    if (check_ok(filch_sched_create(&sched, NULL), "create")) tour_million(sched, processes);
}

/* Returns the number of processes for the last section. In slow builds the test suite sets FILCH_TEST_SCALE, the
 * percentage of a million processes to use. */
static uint64_t processes_wanted(int argc, char **argv)
{
    const char *scale = getenv("FILCH_TEST_SCALE");
    if (argc > 1) return strtoull(argv[1], NULL, 10);
    return scale != NULL && *scale != '\0' ? 10000 * strtoull(scale, NULL, 10) : 1000000;
}

int main(int argc, char **argv)
{
    uint64_t began_ns = now_ns(), processes = processes_wanted(argc, argv);
    if (processes < 1 || processes > 50000000) {
        fprintf(stderr, "usage: tour [PROCESSES, 1 to 50000000]\n");
        return 2;
    }
    catch_interrupt();
    tour(processes);
    if (interrupted) printf("\nThe tour was interrupted after %.1f s.\n", seconds_since(began_ns));
    else if (failures > 0) printf("\nThe tour FAILED: %d of its checks failed.\n", failures);
    else printf("\nAll checks passed. The tour took %.1f s.\n", seconds_since(began_ns));
    return interrupted ? 130 : failures > 0;
}
