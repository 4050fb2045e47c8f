/* workload.c - see workload.h. Each workload is a closed program: at its end it checks the number of messages, that
 * every instance was closed once, and that all memory was freed.
 *
 * All threads are virtual threads of one real thread, so counters need not be atomic.
 */
#include "sim/workload.h"

#include <stdlib.h>
#include <string.h>

#include "port/thread.h"
#include "sim/check.h"
#include "sim/engine.h"
#include "sim/seam.h"

/* ---- memory ---- */

static struct {
    uint64_t live; /* bytes in use */
    uint32_t fail_per_mille;
} heap;

void workload_alloc_reset(uint32_t fail_per_mille)
{
    heap.live = 0;
    heap.fail_per_mille = fail_per_mille;
}

uint64_t workload_alloc_live(void)
{
    return heap.live;
}

void *workload_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    if (size == 0) {
        heap.live -= old_size;
        free(old);
        return NULL;
    }
    if (size > old_size && fli_sim_chance(heap.fail_per_mille)) return NULL;
    void *at = realloc(old, size);
    if (at != NULL) heap.live += size - old_size;
    return at;
}

/* ---- state and functions that all workloads use ---- */

typedef struct run_state {
    filch_sched *sched;
    int64_t      opened, closed;   /* number of process states that were initialised, and that were closed */
    int64_t      sent, got;        /* sent: number of messages accepted; got: number of messages read */
    int64_t      asked, completed; /* asked: number of yields; completed: number of completions */
    int64_t      wanted;           /* number of messages or completions after which the workload ends */
    uint32_t     size;
    bool         ending; /* true: the scheduler is being stopped, so workload_check() must not read it */
} run_state;

static run_state     now;
static fli_sim_queue waiting; /* queue in which the first thread waits for the end of the workload */
static bool          over;

#define MUST(condition, why)                 \
    do {                                     \
        if (!(condition)) fli_sim_fail(why); \
    } while (0)

filch_options workload_options(uint32_t workers)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = (int32_t)workers;
    opt.alloc = workload_alloc;
    opt.node = 1;
    opt.seed = 1 + fli_sim_choose(1000);
    /* A searching worker spins, and in each iteration of the spin loop the simulator may switch threads. Short spins
     * give the same interleavings with fewer switches. */
    opt.spin_tight = 1;
    opt.spin_yield = 1;
    opt.search_ns = 1;
    opt.batch_max = 1 + fli_sim_choose(8);
    opt.fair_every = 1 + fli_sim_choose(8);
    opt.work_threads = 2;
    opt.work_queue = 4;
    return opt;
}

static void begin(filch_options *opt, uint32_t size)
{
    now = (run_state){ .size = size };
    over = false;
    waiting.first = NULL;
    filch_sched *sched;
    MUST(filch_sched_create(&sched, opt) == FILCH_OK, "a scheduler could not be created");
    now.sched = sched;
}

void workload_reset(void)
{
    now = (run_state){ .ending = true };
    workload_alloc_reset(0);
    fli_check_begin();
}

void workload_check(void)
{
    if (now.sched != NULL && !now.ending) fli_check_everything(now.sched, false);
}

void workload_rest(void)
{
    if (now.sched != NULL && !now.ending) fli_check_rest(now.sched);
}

/* Closes the scheduler. Checks that all processes have ended and that all memory was freed. */
static void end(uint64_t deadline_ns, filch_err wanted)
{
    fli_check_everything(now.sched, true);
    now.ending = true;
    filch_err err = filch_sched_stop(now.sched, deadline_ns, NULL);
    MUST(err == wanted, "stop did not end as it should");
    MUST(now.opened == now.closed, "an instance was not closed exactly once");
    MUST(workload_alloc_live() == 0, "memory was left behind");
}

static filch_err open_instance(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    if (filch_size(args) > 0) memcpy(self, filch_raw(args), filch_size(args));
    now.opened++;
    return FILCH_OK;
}

static void close_instance(void *self)
{
    (void)self;
    now.closed++;
}

static filch_sched *sched_of(filch_out *out)
{
    return filch_out_sched(out);
}

static filch_pid spawn(const filch_type *type, const void *args, size_t size)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid = { 0, 0 };
    opt.args = filch_bytes(args, size);
    MUST(filch_spawn(now.sched, type, &opt, &pid) == FILCH_OK, "a process could not be spawned");
    return pid;
}

/* Wakes the first thread, which waits for the end of the workload. If the workload never ends, all threads wait, and
 * the simulator reports a lost wake-up. */
static void signal_end(void)
{
    over = true;
    (void)fli_sim_wake(&waiting, true);
}

static void wait_until_over(void)
{
    while (!over) (void)fli_sim_block(&waiting, UINT64_MAX, "until over");
}

static bool wants_to_end(const filch_event *events, size_t count)
{
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL;
}

/* ---- ring: processes pass a token around a ring; each hop is one message ---- */

struct hop {
    filch_pid next;
};

static filch_err hop_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct hop *h = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (filch_kind_of(&events[i].data) == FILCH_KIND_PID) {
            h->next = filch_as_pid(&events[i].data);
            continue;
        }
        if (++now.got == now.wanted) signal_end();
        int64_t left = filch_as_int(&events[i].data);
        if (left > 0) {
            MUST(filch_send(sched_of(out), h->next, filch_int(left - 1)) == FILCH_OK, "a hop failed");
            now.sent++;
        }
    }
    return filch_idle(out);
}

static const filch_type hop = {
    .name = "hop", .size = sizeof(struct hop), .init = open_instance, .step = hop_step, .close = close_instance
};

static void run_ring(uint32_t workers, uint32_t size)
{
    enum { HOPS = 16, TOKENS = 4 };
    filch_options opt = workload_options(workers);
    begin(&opt, size);
    now.wanted = TOKENS * ((int64_t)(size / TOKENS) + 1);
    filch_pid  ring[HOPS];
    struct hop no_next = { { 0, 0 } };
    for (int i = 0; i < HOPS; i++) ring[i] = spawn(&hop, &no_next, sizeof no_next);
    for (int i = 0; i < HOPS; i++) {
        MUST(filch_send(now.sched, ring[i], filch_of_pid(ring[(i + 1) % HOPS])) == FILCH_OK,
             "a send of the next pid failed");
    }
    for (int i = 0; i < TOKENS; i++) {
        MUST(filch_send(now.sched, ring[i * HOPS / TOKENS], filch_int(size / TOKENS)) == FILCH_OK, "no token");
        now.sent++;
    }
    wait_until_over();
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- storm: many senders (processes and threads) and few readers; the messages of each sender must arrive in order
 * ---- */

enum { STORM_SENDERS = 12, STORM_OUTSIDE = 2, STORM_READERS = 3 };

static struct {
    filch_pid readers[STORM_READERS];
    uint32_t  each;
    bool      may_die; /* true: readers may end before they have read all messages */
} storm;

struct reader {
    int64_t next[STORM_SENDERS + STORM_OUTSIDE];
};

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct reader *r = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        int64_t value = filch_as_int(&events[i].data), sender = value >> 32, number = value & 0xffffffff;
        MUST(r->next[sender] == number, "a message was lost, doubled or overtaken");
        r->next[sender]++;
        if (++now.got == now.wanted) signal_end();
    }
    return filch_idle(out);
}

static const filch_type reader = {
    .name = "reader", .size = sizeof(struct reader), .init = open_instance, .step = reader_step, .close = close_instance
};

struct sender {
    int64_t id, sent;
};

/* Sends message k to reader k % STORM_READERS, so that each reader gets every STORM_READERS-th message of the sender
 * `id`. */
static void storm_send(int64_t id, int64_t k)
{
    int64_t   value = (id << 32) | (k / STORM_READERS);
    filch_err err = filch_send(now.sched, storm.readers[k % STORM_READERS], filch_int(value));
    MUST(err == FILCH_OK || (err == FILCH_EDEAD && storm.may_die), "a send failed");
    now.sent++;
}

static filch_err sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct sender *s = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (int i = 0; i < 5 && s->sent < storm.each; i++) storm_send(s->id, s->sent++);
    return s->sent < storm.each ? filch_continue(out) : filch_done(out, filch_none());
}

static const filch_type sender = {
    .name = "sender", .size = sizeof(struct sender), .init = open_instance, .step = sender_step, .close = close_instance
};

static void storm_outside(void *arg)
{
    int64_t id = STORM_SENDERS + (int64_t)(intptr_t)arg;
    for (int64_t k = 0; k < storm.each; k++) storm_send(id, k);
}

static void run_storm(uint32_t workers, uint32_t size)
{
    filch_options opt = workload_options(workers);
    fli_thread    outside[STORM_OUTSIDE];
    begin(&opt, size);
    storm.each = size / (STORM_SENDERS + STORM_OUTSIDE) + 1;
    storm.may_die = false;
    now.wanted = (int64_t)storm.each * (STORM_SENDERS + STORM_OUTSIDE);
    for (int i = 0; i < STORM_READERS; i++) storm.readers[i] = spawn(&reader, NULL, 0);
    for (int64_t i = 0; i < STORM_SENDERS; i++) {
        struct sender s = { .id = i };
        (void)spawn(&sender, &s, sizeof s);
    }
    for (int i = 0; i < STORM_OUTSIDE; i++) {
        MUST(fli_thread_start(&outside[i], "outside", storm_outside, (void *)(intptr_t)i) == FILCH_OK, "no thread");
    }
    for (int i = 0; i < STORM_OUTSIDE; i++) fli_thread_join(&outside[i]);
    wait_until_over();
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- yields: handlers or other threads complete yields, some twice or late; the process waits or idles ---- */

enum { YIELD_COMMAND = 300, YIELD_PROCS = 10, YIELD_PENDING = 32 };

static struct {
    filch_receiver receivers[YIELD_PENDING]; /* receivers that the completer threads will complete */
    uint32_t       first, count;
    bool           closed;
    fli_mutex      lock;
    fli_cond       filled;
} pending;

struct yielder {
    int64_t  left;
    uint64_t next_tag, outstanding;
};

static filch_err on_yield(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    switch (filch_as_int(&command->data)) {
    case 0: return filch_complete(receiver, tag, filch_int((int64_t)tag), FILCH_OK);
    case 1: return FILCH_EUSER + 1;
    default: break;
    }
    fli_mutex_lock(&pending.lock);
    bool full = pending.count == YIELD_PENDING;
    if (!full) {
        pending.receivers[(pending.first + pending.count++) % YIELD_PENDING] = receiver;
        fli_cond_signal(&pending.filled);
    }
    fli_mutex_unlock(&pending.lock);
    return full ? FILCH_EUSER + 1 : FILCH_OK;
}

static void completer(void *arg)
{
    (void)arg;
    fli_mutex_lock(&pending.lock);
    for (;;) {
        while (pending.count == 0 && !pending.closed) fli_cond_wait(&pending.filled, &pending.lock);
        if (pending.count == 0) break;
        filch_receiver receiver = pending.receivers[pending.first];
        pending.first = (pending.first + 1) % YIELD_PENDING;
        pending.count--;
        fli_mutex_unlock(&pending.lock);
        filch_err once = filch_complete(receiver, receiver.tag, filch_int((int64_t)receiver.tag), FILCH_OK);
        MUST(once == FILCH_OK, "a completion was refused");
        filch_err twice = filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK);
        MUST(twice == FILCH_ESTALE, "a second completion was not recognised");
        fli_mutex_lock(&pending.lock);
    }
    fli_mutex_unlock(&pending.lock);
}

static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct yielder *a = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        MUST(events[i].tag < a->next_tag && a->outstanding > 0, "a completion without an outstanding yield");
        MUST(events[i].error == FILCH_EUSER + 1 || filch_as_int(&events[i].data) == (int64_t)events[i].tag,
             "a completion with a wrong result");
        a->outstanding--;
        if (++now.completed == now.wanted) signal_end();
    }
    for (uint32_t n = fli_sim_choose(4); n > 0 && a->left > 0; n--, a->left--) {
        MUST(filch_yield(out, YIELD_COMMAND, a->next_tag++, filch_int(fli_sim_choose(4))) == FILCH_OK, "no yield");
        a->outstanding++;
    }
    if (a->outstanding > 0) return fli_sim_choose(2) ? filch_wait(out) : filch_idle(out);
    return a->left > 0 ? filch_continue(out) : filch_idle(out);
}

static const filch_type yielder = { .name = "yielder",
                                    .size = sizeof(struct yielder),
                                    .init = open_instance,
                                    .step = yielder_step,
                                    .close = close_instance };

static void run_yields(uint32_t workers, uint32_t size)
{
    filch_options   opt = workload_options(workers);
    filch_registry *registry;
    fli_thread      completers[2];
    MUST(filch_registry_create(&registry) == FILCH_OK, "no registry");
    MUST(filch_registry_add(registry, YIELD_COMMAND, on_yield, NULL) == FILCH_OK, "no command");
    opt.registry = registry;
    pending.first = pending.count = 0;
    pending.closed = false;
    (void)fli_mutex_init(&pending.lock);
    (void)fli_cond_init(&pending.filled);
    begin(&opt, size);
    now.wanted = (int64_t)(size / YIELD_PROCS + 1) * YIELD_PROCS;
    for (int i = 0; i < 2; i++)
        MUST(fli_thread_start(&completers[i], "completer", completer, NULL) == FILCH_OK, "no thread");
    for (int i = 0; i < YIELD_PROCS; i++) {
        struct yielder a = { .left = now.wanted / YIELD_PROCS };
        (void)spawn(&yielder, &a, sizeof a);
    }
    wait_until_over();
    fli_mutex_lock(&pending.lock);
    pending.closed = true;
    fli_cond_broadcast(&pending.filled);
    fli_mutex_unlock(&pending.lock);
    for (int i = 0; i < 2; i++) fli_thread_join(&completers[i]);
    end(FILCH_FOREVER, FILCH_OK);
    filch_registry_destroy(registry);
}

/* ---- clock: sleeps never end early; each timer fires once or is cancelled; tickers count their ticks ---- */

struct sleeper {
    int64_t  left;
    uint64_t asked_ns, due_ns;
    int64_t  timer;
    bool     timer_out, waiting;
};

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct sleeper *s = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    uint64_t time_ns = fli_sim_now_ns();
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 1) {
            MUST(time_ns >= s->due_ns, "a sleep was early");
            s->waiting = false;
            if (++now.completed == now.wanted) signal_end();
        } else if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 2) {
            s->timer = filch_as_int(&events[i].data);
            s->timer_out = true;
        } else if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 3) {
            /* The completion is 1 if the timer was cancelled before it fired. It is 0 if the timer has fired; then its
             * message has arrived or will arrive. */
            if (filch_as_int(&events[i].data) == 1) {
                MUST(s->timer_out, "a timer was stopped after it had fired");
                s->timer_out = false;
            }
        } else if (events[i].type == FILCH_EVENT_MESSAGE && events[i].tag == 2) {
            MUST(s->timer_out, "a timer fired twice, or after it was stopped");
            s->timer_out = false;
        }
    }
    if (s->left > 0 && !s->waiting) {
        uint64_t span = fli_sim_choose(3) == 0 ? 0 : fli_sim_choose(1000000);
        s->left--;
        s->waiting = true;
        s->due_ns = time_ns + span;
        MUST(filch_yield_sleep(out, 1, span) == FILCH_OK, "no sleep");
        if (!s->timer_out && s->timer == 0) {
            MUST(filch_yield_timer(out, 2, fli_sim_choose(1000000)) == FILCH_OK, "no timer");
        } else if (s->timer != 0) {
            MUST(filch_yield_timer_cancel(out, 3, s->timer) == FILCH_OK, "no cancel");
            s->timer = 0;
        }
    }
    return filch_idle(out);
}

static const filch_type sleeper = { .name = "sleeper",
                                    .size = sizeof(struct sleeper),
                                    .init = open_instance,
                                    .step = sleeper_step,
                                    .close = close_instance };

static filch_err ticked_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t *seen = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    if (*seen == 0 && count == 0) MUST(filch_yield_ticker(out, 9, 50000) == FILCH_OK, "no ticker");
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        MUST(filch_as_int(&events[i].data) >= 1, "a tick message with count 0");
        *seen += filch_as_int(&events[i].data);
    }
    return filch_idle(out);
}

static const filch_type ticked = {
    .name = "ticked", .size = sizeof(int64_t), .init = open_instance, .step = ticked_step, .close = close_instance
};

static void run_clock(uint32_t workers, uint32_t size)
{
    enum { SLEEPERS = 12 };
    filch_options opt = workload_options(workers);
    begin(&opt, size);
    now.wanted = (int64_t)(size / SLEEPERS / 4 + 1) * SLEEPERS;
    for (int i = 0; i < SLEEPERS; i++) {
        struct sleeper s = { .left = now.wanted / SLEEPERS };
        (void)spawn(&sleeper, &s, sizeof s);
    }
    (void)spawn(&ticked, NULL, 0);
    wait_until_over();
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- churn: short-lived processes, stale pids, kills, upgrades; no message may reach a wrong process ---- */

enum { CHURN_PIDS = 8 };

static struct {
    filch_pid pids[CHURN_PIDS]; /* pids of processes; some of the processes have ended long ago */
    int64_t   left;
} churn;

struct short_lived {
    uint64_t serial; /* serial number of the pid that this process had in its first step; 0: no step has run yet */
    int64_t  steps;
};

static filch_err        short_lived_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type short_lived = { .name = "short_lived",
                                        .size = sizeof(struct short_lived),
                                        .init = open_instance,
                                        .step = short_lived_step,
                                        .close = close_instance };
static const filch_type short_lived_upgraded = { .name = "short_lived_upgraded",
                                                 .size = sizeof(struct short_lived) + 8,
                                                 .init = open_instance,
                                                 .step = short_lived_step,
                                                 .close = close_instance };

static filch_err short_lived_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct short_lived *m = self;
    filch_pid           me = filch_ctx_self(filch_out_ctx(out));
    if (m->serial == 0) m->serial = me.serial;
    MUST(m->serial == me.serial, "a process changed its identity");
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        MUST((uint64_t)filch_as_int(&events[i].data) == me.serial, "a message reached the wrong process");
        now.got++;
    }
    churn.pids[fli_sim_choose(CHURN_PIDS)] = me;
    filch_pid other = churn.pids[fli_sim_choose(CHURN_PIDS)];
    filch_err err = filch_send(sched_of(out), other, filch_int((int64_t)other.serial));
    MUST(err == FILCH_OK || err == FILCH_EDEAD, "a send returned an unexpected error");
    if (fli_sim_choose(8) == 0) (void)!filch_terminate(sched_of(out), churn.pids[fli_sim_choose(CHURN_PIDS)]);
    if (fli_sim_choose(8) == 0) (void)!filch_cancel(sched_of(out), churn.pids[fli_sim_choose(CHURN_PIDS)]);
    if (churn.left > 0) {
        churn.left--;
        err = filch_spawn(sched_of(out), &short_lived, NULL, NULL);
        MUST(err == FILCH_OK || (err == FILCH_ECLOSED && over), "no child");
        if (churn.left == 0) signal_end();
    }
    if (m->steps++ > 3) return filch_done(out, filch_none());
    switch (fli_sim_choose(5)) {
    case 0: return filch_done(out, filch_int(1));
    case 1: return FILCH_EUSER;
    case 2:
        return filch_upgrade(out, fli_sim_choose(2) ? &short_lived_upgraded : &short_lived, NULL,
                             filch_bytes(m, sizeof *m));
    case 3: return filch_continue(out);
    default: return filch_idle(out);
    }
}

static void churn_outside(void *arg)
{
    (void)arg;
    while (!over) {
        filch_pid other = churn.pids[fli_sim_choose(CHURN_PIDS)];
        filch_err err = filch_send(now.sched, other, filch_int((int64_t)other.serial));
        MUST(err == FILCH_OK || err == FILCH_EDEAD, "a send returned an unexpected error");
        if (churn.left > 0 && fli_sim_choose(4) == 0) {
            churn.left--;
            MUST(filch_spawn(now.sched, &short_lived, NULL, NULL) == FILCH_OK, "no process");
            if (churn.left == 0) signal_end();
        }
        fli_thread_yield();
    }
}

static void run_churn(uint32_t workers, uint32_t size)
{
    filch_options opt = workload_options(workers);
    fli_thread    outside;
    begin(&opt, size);
    memset(&churn, 0, sizeof churn);
    churn.left = size / 8 + 8;
    for (int i = 0; i < 4; i++) (void)spawn(&short_lived, NULL, 0);
    MUST(fli_thread_start(&outside, "outside", churn_outside, NULL) == FILCH_OK, "no thread");
    fli_thread_join(&outside);
    wait_until_over();
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- limits: small mailboxes with every overflow policy; no message may be lost without a report ---- */

/* A box is a process with a limited mailbox. There is one box per overflow policy, and a mortal box, which ends now and
 * then and is replaced. Senders that wait for space in the mortal box may outlive it. */
enum { POLICIES = 5, MORTAL = POLICIES, ALL_BOXES };

static struct {
    filch_pid box[ALL_BOXES];
    int64_t   accepted[ALL_BOXES], read[ALL_BOXES], dropped[ALL_BOXES];
    int64_t   left;
    int64_t   pushing; /* number of sending processes that have not finished */
} limited;

struct box {
    int64_t policy;
};

static void spawn_limited(int64_t policy);

static filch_err box_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct box *b = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_DROPPED) limited.dropped[b->policy] += filch_as_int(&events[i].data);
        if (events[i].type == FILCH_EVENT_MESSAGE) limited.read[b->policy]++;
    }
    if (b->policy == MORTAL && limited.pushing > 0 && fli_sim_choose(4) == 0) {
        spawn_limited(MORTAL);
        return filch_done(out, filch_none());
    }
    return fli_sim_choose(3) == 0 ? filch_continue(out) : filch_idle(out);
}

static const filch_type box = {
    .name = "box", .size = sizeof(struct box), .init = open_instance, .step = box_step, .close = close_instance
};

static void spawn_limited(int64_t policy)
{
    struct box          b = { .policy = policy };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_bytes(&b, sizeof b);
    opt.mailbox_max = 1 + fli_sim_choose(4);
    opt.overflow = policy == MORTAL ? FILCH_OVERFLOW_WAIT : (uint32_t)policy;
    filch_err err = filch_spawn(now.sched, &box, &opt, &limited.box[policy]);
    /* FILCH_ECLOSED: the end of the last pusher (sender) ends the workload and closes the scheduler, possibly before
     * this spawn. */
    MUST(err == FILCH_OK || (err == FILCH_ECLOSED && policy == MORTAL), "no box");
}

struct pusher {
    int64_t left, waits, waits_on;
};

static bool can_end(int64_t policy)
{
    return policy == FILCH_OVERFLOW_STOP || policy == MORTAL;
}

static void count_send(int64_t policy, filch_err err)
{
    bool drops = policy == FILCH_OVERFLOW_DROP_NEWEST || policy == FILCH_OVERFLOW_DROP_OLDEST;
    if (err == FILCH_OK) {
        limited.accepted[policy]++;
    } else if (err == FILCH_EDROPPED) {
        MUST(drops, "a message was dropped under a policy that does not drop");
        /* a dropped message counts as accepted, because the reader gets a DROPPED event for it */
        limited.accepted[policy]++;
    } else {
        MUST(err == FILCH_EFULL || (err == FILCH_EDEAD && can_end(policy)), "a send returned an unexpected error");
    }
}

static filch_err pusher_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct pusher *p = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        p->waits--;
        MUST(events[i].error == FILCH_OK || can_end((int64_t)events[i].tag) || events[i].error == FILCH_EFULL ||
                 events[i].error == FILCH_EDROPPED,
             "a waiting send failed");
        count_send((int64_t)events[i].tag, events[i].error);
    }
    for (int i = 0; i < 3 && p->left > 0; i++, p->left--) {
        int64_t policy = fli_sim_choose(ALL_BOXES);
        if (fli_sim_choose(2)) {
            count_send(policy, filch_send(sched_of(out), limited.box[policy], filch_int(p->left)));
        } else {
            MUST(filch_yield_send(out, (uint64_t)policy, limited.box[policy], filch_int(p->left)) == FILCH_OK,
                 "no yield");
            p->waits++;
        }
    }
    if (p->waits > 0) return filch_wait(out);
    if (p->left > 0) return filch_continue(out);
    if (--limited.pushing == 0) signal_end();
    return filch_done(out, filch_none());
}

static const filch_type pusher = {
    .name = "pusher", .size = sizeof(struct pusher), .init = open_instance, .step = pusher_step, .close = close_instance
};

static void run_limits(uint32_t workers, uint32_t size)
{
    enum { PUSHERS = 6 };
    filch_options opt = workload_options(workers);
    begin(&opt, size);
    memset(&limited, 0, sizeof limited);
    limited.pushing = PUSHERS;
    for (int64_t i = 0; i < ALL_BOXES; i++) spawn_limited(i);
    for (int i = 0; i < PUSHERS; i++) {
        struct pusher p = { .left = size / PUSHERS / 2 + 1 };
        (void)spawn(&pusher, &p, sizeof p);
    }
    wait_until_over();
    /* A stop would cancel the boxes before they have read all messages. So this loop waits until every box is idle and
     * has an empty mailbox. */
    for (int i = 0; i < POLICIES; i++) {
        filch_info info = { .size = sizeof info };
        while (filch_inspect(now.sched, limited.box[i], &info) == FILCH_OK &&
               (info.messages > 0 || info.state != FILCH_STATE_IDLE)) {
            fli_thread_yield();
        }
    }
    for (int i = 0; i < 4; i++) {
        /* Drops that no DROPPED event has reported yet are counted in info.dropped. */
        filch_info info = { .size = sizeof info };
        MUST(filch_inspect(now.sched, limited.box[i], &info) == FILCH_OK, "a box is gone");
        MUST(limited.accepted[i] == limited.read[i] + (int64_t)info.dropped, "a message was lost without a report");
    }
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- stop: closes the scheduler while processes, yields and sends are in progress ---- */

static struct {
    bool     closed;
    int64_t  outside_ok;
    uint32_t stubborn;
} closing;

static filch_err stubborn_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    MUST(!closing.closed, "a step ran after stop had returned");
    switch (fli_sim_choose(4)) {
    case 0: return filch_continue(out);
    case 1: MUST(filch_yield_sleep(out, 1, FILCH_SECONDS(100)) == FILCH_OK, "no sleep"); return filch_wait(out);
    case 2: {
        filch_err err = filch_spawn(sched_of(out), fli_sim_choose(2) ? &sender : &hop, NULL, NULL);
        MUST(err == FILCH_OK || err == FILCH_ECLOSED, "a spawn returned an unexpected error");
        return filch_idle(out);
    }
    default: return filch_idle(out);
    }
}

static const filch_type stubborn = {
    .name = "stubborn", .init = open_instance, .step = stubborn_step, .close = close_instance
};

static void closing_outside(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        filch_pid pid;
        filch_err err = filch_spawn(now.sched, &hop, NULL, &pid);
        MUST(err == FILCH_OK || err == FILCH_ECLOSED, "a spawn returned an unexpected error");
        if (err != FILCH_OK) continue;
        closing.outside_ok++;
        err = filch_send(now.sched, pid, filch_int(0));
        MUST(err == FILCH_OK || err == FILCH_ECLOSED || err == FILCH_EDEAD, "a send returned an unexpected error");
    }
}

static void run_stop(uint32_t workers, uint32_t size)
{
    filch_options opt = workload_options(workers);
    filch_report  report = FILCH_REPORT_INIT;
    fli_thread    outside[2];
    memset(&closing, 0, sizeof closing);
    storm.each = 3;
    storm.may_die = true;
    begin(&opt, size);
    storm.readers[0] = storm.readers[1] = storm.readers[2] = spawn(&hop, NULL, 0);
    closing.stubborn = 1 + fli_sim_choose(6);
    for (uint32_t i = 0; i < closing.stubborn; i++) (void)spawn(&stubborn, NULL, 0);
    for (int i = 0; i < 2; i++) {
        MUST(fli_thread_start(&outside[i], "outside", closing_outside, NULL) == FILCH_OK, "no thread");
    }
    filch_err err;
    uint64_t  forced = 0;
    do {
        /* If the simulated clock jumps past the grace period, filch_sched_close() returns early and is called again. */
        err = filch_sched_close(now.sched, fli_sim_choose(3) * 100000, &report);
        MUST(err == FILCH_EDEADLINE || err == FILCH_EBUSY, "stubborn processes were not forced");
        /* A foreign thread inside a spawn counts as stuck, but it has no process yet that the report could name. */
        uint64_t named = report.count + report.omitted, stuck = err == FILCH_EBUSY ? report.stuck : 0;
        MUST(named >= report.forced && named <= report.forced + stuck,
             "a forced or stuck process is not in the report");
        forced += report.forced;
        filch_report_free(&report);
    } while (err == FILCH_EBUSY);
    closing.closed = true;
    MUST(forced >= closing.stubborn, "the report is wrong");
    MUST(now.opened == now.closed, "an instance was not closed exactly once");
    for (int i = 0; i < 2; i++) fli_thread_join(&outside[i]);
    end(0, FILCH_OK);
}

/* ---- drain: a stop while messages are queued: each message must be read or counted, each process cancelled once
 * ---- */

enum { DRAIN_READERS = 4 };

static struct {
    filch_pid readers[DRAIN_READERS]; /* the last reader is supervised by the first reader */
    /* for each reader: number of messages that the stopping thread sent to it before the stop */
    uint32_t early[DRAIN_READERS];
    uint64_t unread;
} drained;

struct drain_reader {
    int64_t  number;
    uint32_t early; /* number of early messages (drained.early) that this reader has read */
    bool     asked, waits, child_gone, begun;
};

static filch_err        drain_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type drain_reader = { .name = "drain reader",
                                         .size = sizeof(struct drain_reader),
                                         .init = open_instance,
                                         .step = drain_step,
                                         .close = close_instance };

static void drain_send(filch_sched *sched)
{
    filch_err err = filch_send(sched, drained.readers[fli_sim_choose(DRAIN_READERS)], filch_int(1));
    MUST(err == FILCH_OK || err == FILCH_ECLOSED || err == FILCH_EDEAD, "a send returned an unexpected error");
    if (err == FILCH_OK) now.sent++;
}

static void drain_begin(struct drain_reader *r, filch_sched *sched)
{
    r->begun = true;
    if (r->number != 0) return;
    struct drain_reader child = { .number = DRAIN_READERS - 1 };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_bytes(&child, sizeof child);
    opt.relations = FILCH_SPAWN_SUPERVISED | FILCH_SPAWN_MONITOR;
    filch_err err = filch_spawn(sched, &drain_reader, &opt, &drained.readers[DRAIN_READERS - 1]);
    MUST(err == FILCH_OK || err == FILCH_ECLOSED, "a child could not be spawned");
    r->child_gone = err != FILCH_OK;
}

static filch_err drain_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct drain_reader *r = self;
    if (!r->begun) drain_begin(r, sched_of(out));
    for (size_t i = 0; i < count; i++) {
        switch (events[i].type) {
        case FILCH_EVENT_MESSAGE:
            now.got++;
            r->early += filch_as_int(&events[i].data) == 2;
            break;
        case FILCH_EVENT_EXIT: r->child_gone = true; break;
        case FILCH_EVENT_CANCEL:
            MUST(!r->asked, "a reader was cancelled twice");
            MUST(i == 0, "a cancel was not the first event");
            MUST(r->early == drained.early[r->number], "the cancel that a stop sends overtook a message");
            r->asked = true;
            if (r->number == 0)
                (void)!filch_cancel_with(sched_of(out), drained.readers[DRAIN_READERS - 1], FILCH_ECANCELLED,
                                         FILCH_FOREVER);
            break;
        default: r->waits = false; break;
        }
    }
    if (count > 0 && fli_sim_choose(4) == 0) drain_send(sched_of(out));
    if (r->asked && (r->number != 0 || r->child_gone)) return filch_done(out, filch_none());
    if (!r->asked && !r->waits && fli_sim_choose(4) == 0) {
        MUST(filch_yield_sleep(out, 1, fli_sim_choose(100000)) == FILCH_OK, "no sleep");
        r->waits = true;
    }
    return r->waits && !r->asked ? filch_wait(out) : filch_idle(out);
}

static void drain_outside(void *arg)
{
    for (uint32_t i = 0; i < *(const uint32_t *)arg; i++) drain_send(now.sched);
}

static void run_drain(uint32_t workers, uint32_t size)
{
    static const uint64_t deadlines[] = { 0, 50000, 1000000, FILCH_FOREVER };
    filch_options         opt = workload_options(workers);
    filch_report          report = FILCH_REPORT_INIT;
    fli_thread            outside[2];
    uint32_t              each = size / 8 + 1;
    filch_err             err;
    begin(&opt, size);
    memset(&drained, 0, sizeof drained);
    for (int64_t i = 0; i < DRAIN_READERS - 1; i++) {
        struct drain_reader r = { .number = i };
        drained.readers[i] = spawn(&drain_reader, &r, sizeof r);
    }
    for (int i = 0; i < 2; i++)
        MUST(fli_thread_start(&outside[i], "outside", drain_outside, &each) == FILCH_OK, "no thread");
    uint64_t           deadline_ns = deadlines[fli_sim_choose(4)];
    filch_stop_options stop = FILCH_STOP_OPTIONS_INIT;
    stop.deadline_ns = deadline_ns;
    stop.flags = FILCH_STOP_KEEP;
    stop.patience_ns = FILCH_FOREVER;
    for (uint32_t i = fli_sim_choose(12); i > 0; i--) {
        uint32_t to = fli_sim_choose(DRAIN_READERS - 1);
        MUST(filch_send(now.sched, drained.readers[to], filch_int(2)) == FILCH_OK, "a reader is gone before the stop");
        drained.early[to]++;
        now.sent++;
    }
    do {
        err = filch_sched_stop_with(now.sched, &stop, &report);
        MUST(err == FILCH_OK || err == FILCH_EDEADLINE || err == FILCH_EBUSY, "stop did not end as it should");
        MUST(err != FILCH_EDEADLINE || deadline_ns != FILCH_FOREVER,
             "a reader was forced although there was no deadline");
        drained.unread += report.unread;
        uint64_t listed = 0;
        for (size_t i = 0; i < report.loss_count; i++) listed += report.losses[i].unread;
        MUST(listed == report.unread || report.omitted > 0, "the lists of losses are wrong");
        filch_report_free(&report);
    } while (err == FILCH_EBUSY);
    for (int i = 0; i < 2; i++) fli_thread_join(&outside[i]);
    MUST(now.sent == now.got + (int64_t)drained.unread, "a message was neither read nor counted");
    MUST(now.opened == now.closed, "an instance was not closed exactly once");
    end(0, FILCH_OK);
}

/* ---- tick: a scheduler without workers; the first thread calls filch_tick(), other threads send ---- */

static void run_tick(uint32_t workers, uint32_t size)
{
    (void)workers;
    filch_options opt = workload_options(1);
    fli_thread    outside[STORM_OUTSIDE];
    opt.workers = FILCH_NO_WORKERS;
    begin(&opt, size);
    storm.each = size / (2 + STORM_OUTSIDE) + 1;
    storm.may_die = false;
    now.wanted = (int64_t)storm.each * (2 + STORM_OUTSIDE);
    for (int i = 0; i < STORM_READERS; i++) storm.readers[i] = spawn(&reader, NULL, 0);
    for (int64_t i = 0; i < 2; i++) {
        struct sender s = { .id = i };
        (void)spawn(&sender, &s, sizeof s);
    }
    for (int i = 0; i < STORM_OUTSIDE; i++) {
        MUST(fli_thread_start(&outside[i], "outside", storm_outside, (void *)(intptr_t)i) == FILCH_OK, "no thread");
    }
    int fd = filch_wake_fd(now.sched);
    while (!over) {
        uint32_t ran = 0;
        MUST(filch_tick(now.sched, 1 + fli_sim_choose(20), &ran) == FILCH_OK, "a tick failed");
        if (!over && filch_next_timeout(now.sched) != 0) (void)fli_sim_poll(fd, filch_next_timeout(now.sched));
    }
    for (int i = 0; i < STORM_OUTSIDE; i++) fli_thread_join(&outside[i]);
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- work: blocking functions on the thread pool ---- */

static filch_err blocking(void *arg, filch_data *result)
{
    for (uint32_t i = fli_sim_choose(4); i > 0; i--) fli_thread_yield();
    *result = filch_int((int64_t)(intptr_t)arg);
    return FILCH_OK;
}

static filch_err worker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct yielder *a = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        bool full = events[i].error == FILCH_EFULL;
        MUST(full || filch_as_int(&events[i].data) == (int64_t)events[i].tag, "a wrong result");
        a->outstanding--;
        if (++now.completed == now.wanted) signal_end();
    }
    for (uint32_t n = 1 + fli_sim_choose(3); n > 0 && a->left > 0; n--, a->left--, a->outstanding++) {
        uint64_t tag = a->next_tag++;
        MUST(filch_yield_work(out, tag, blocking, (void *)(uintptr_t)tag) == FILCH_OK, "no yield");
    }
    return a->outstanding > 0 ? filch_wait(out) : filch_idle(out);
}

static const filch_type worker = { .name = "worker",
                                   .size = sizeof(struct yielder),
                                   .init = open_instance,
                                   .step = worker_step,
                                   .close = close_instance };

static void run_work(uint32_t workers, uint32_t size)
{
    enum { YIELDERS = 5 };
    filch_options opt = workload_options(workers);
    begin(&opt, size);
    now.wanted = (int64_t)(size / YIELDERS / 4 + 1) * YIELDERS;
    for (int i = 0; i < YIELDERS; i++) {
        struct yielder a = { .left = now.wanted / YIELDERS };
        (void)spawn(&worker, &a, sizeof a);
    }
    wait_until_over();
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- poor: allocations fail at random; every call must report such a failure, and all invariants must hold ---- */

enum { POOR_COMMAND = 301 };

static struct {
    filch_pid pids[CHURN_PIDS];
    int64_t   left;
} poor;

static bool is_poor(filch_err err)
{
    return err == FILCH_OK || err == FILCH_ENOMEM || err == FILCH_EDEAD || (err == FILCH_ECLOSED && over);
}

static filch_err on_poor(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    char      large[100] = { 0 };
    filch_err err = filch_complete(receiver, tag, filch_bytes(large, sizeof large), FILCH_OK);
    MUST(err == FILCH_OK || err == FILCH_ENOMEM, "a completion returned an unexpected error");
    return err;
}

static filch_err        poor_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type low_memory = {
    .name = "low_memory", .size = 40, .init = open_instance, .step = poor_step, .close = close_instance
};

/* Makes a random relation. The allocation for the relation may fail. */
static void poor_relation(filch_pid me, filch_pid other)
{
    filch_err err = FILCH_OK;
    switch (fli_sim_choose(8)) {
    case 0: err = filch_monitor(now.sched, me, other, 1, NULL); break;
    case 1: err = filch_link(now.sched, me, other); break;
    case 2: err = filch_register(now.sched, "poor", me); break;
    case 3: err = filch_join(now.sched, "poor", me); break;
    case 4: err = filch_watch(now.sched, "poor", me, 1); break;
    case 5: err = filch_cancel_with(now.sched, other, FILCH_EUSER, fli_sim_choose(100000)); break;
    default: break;
    }
    MUST(err == FILCH_OK || err == FILCH_ENOMEM || err == FILCH_EDEAD || err == FILCH_EINVAL || err == FILCH_EEXISTS,
         "a relation returned an unexpected error");
}

static filch_err poor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    char large[60] = { 0 };
    poor.pids[fli_sim_choose(CHURN_PIDS)] = filch_ctx_self(filch_out_ctx(out));
    filch_pid other = poor.pids[fli_sim_choose(CHURN_PIDS)];
    MUST(is_poor(filch_send(sched_of(out), other, filch_bytes(large, sizeof large))),
         "a send returned an unexpected error");
    if (poor.left > 0) {
        MUST(is_poor(filch_spawn(sched_of(out), &low_memory, NULL, NULL)), "a spawn returned an unexpected error");
        if (--poor.left == 0) signal_end();
    }
    poor_relation(filch_ctx_self(filch_out_ctx(out)), other);
    filch_err err = FILCH_OK;
    bool      yielded = false;
    for (uint32_t n = fli_sim_choose(5); n > 0; n--) {
        switch (fli_sim_choose(5)) {
        case 0: err = filch_yield_sleep(out, n, fli_sim_choose(100000)); break;
        case 1: err = filch_yield_timer(out, n, fli_sim_choose(100000)); break;
        case 2: err = filch_yield_work(out, n, blocking, NULL); break;
        case 3: err = filch_yield_send(out, n, other, filch_bytes(large, sizeof large)); break;
        default: err = filch_yield(out, POOR_COMMAND, n, filch_bytes(large, sizeof large)); break;
        }
        MUST(err == FILCH_OK || err == FILCH_ENOMEM, "a yield returned an unexpected error");
        yielded = yielded || err == FILCH_OK;
    }
    switch (fli_sim_choose(6)) {
    case 0: return filch_done(out, filch_bytes(large, sizeof large));
    case 1: return filch_upgrade(out, &low_memory, NULL, filch_none());
    case 2: return yielded ? filch_wait(out) : filch_continue(out);
    case 3: return filch_idle(out);
    default: return filch_continue(out);
    }
}

static void run_poor(uint32_t workers, uint32_t size)
{
    filch_options   opt = workload_options(workers);
    filch_registry *registry;
    filch_sched    *sched = NULL;
    MUST(filch_registry_create(&registry) == FILCH_OK, "no registry");
    MUST(filch_registry_add(registry, POOR_COMMAND, on_poor, NULL) == FILCH_OK, "no command");
    opt.registry = registry;
    now = (run_state){ .size = size };
    over = false;
    waiting.first = NULL;
    memset(&poor, 0, sizeof poor);
    uint32_t fail_per_mille = fli_sim_choose(100);
    workload_alloc_reset(fail_per_mille);
    for (int i = 0; i < 20 && sched == NULL; i++) {
        /* With many workers, most attempts to create the scheduler fail. In the last attempt no allocation fails. */
        heap.fail_per_mille = i < 19 ? fail_per_mille : 0;
        filch_err err = filch_sched_create(&sched, &opt);
        MUST(err == FILCH_OK || err == FILCH_ENOMEM, "create returned an unexpected error");
        if (err != FILCH_OK) MUST(workload_alloc_live() == 0, "a failed create left memory behind");
    }
    heap.fail_per_mille = fail_per_mille;
    if (sched != NULL) {
        now.sched = sched;
        poor.left = size / 20 + 10;
        for (int i = 0; i < 200 && !over; i++) {
            MUST(is_poor(filch_spawn(sched, &low_memory, NULL, &poor.pids[0])), "a spawn returned an unexpected error");
            fli_thread_yield();
        }
        now.ending = true;
        over = true;
        filch_err err;
        do err = filch_sched_stop(sched, FILCH_MILLISECONDS(50), NULL);
        while (err == FILCH_EBUSY);
        MUST(err == FILCH_OK || err == FILCH_EDEADLINE, "stop returned an unexpected error");
        MUST(now.opened == now.closed, "an instance was not closed exactly once");
        MUST(workload_alloc_live() == 0, "memory was left behind");
    }
    filch_registry_destroy(registry);
}

/* ---- relations: processes monitor, link and unlink, use names and groups, and end in all ways, in all orders ---- */

/* An actor lives for a few steps and changes relations of other actors in each step. The registrar monitors every
 * actor, from its spawn or later, and spawns a new actor for each actor that ends. The workload ends when the registrar
 * has received the EXIT notice of the last actor. If an EXIT notice is lost, the registrar waits for ever; an EXIT
 * notice that is delivered twice is recognised by its tag. */
enum { ACTORS = 10, ACTOR_NAMES = 3, MONITORS_MAX = 4096, OWN_MONITORS = 4 };

typedef enum monitor_state { MONITOR_OPEN = 1, MONITOR_FIRED, MONITOR_ENDED } monitor_state;

static struct {
    filch_pid registrar, pids[ACTORS];
    int64_t   spawned, ended, limit;
    int64_t   joined, left; /* numbers of JOINED and of LEFT notices that the registrar has received */
    struct {
        filch_pid target;
        uint8_t   state;
    } monitors[MONITORS_MAX];
    uint64_t monitor_count;
} actors;

struct actor {
    int64_t steps;
    struct {
        uint64_t id, ref;
    } own[OWN_MONITORS];
    /* A process that this actor has spawned with a link, and that no other process knows. An actor with a partner only
     * waits for the partner's message or failure. */
    filch_pid partner;
    bool      traps;
};

static const filch_type actor, actor_upgraded;

static filch_pid random_pid(void)
{
    return actors.pids[fli_sim_choose(ACTORS)];
}

static bool is_gone(filch_err err)
{
    return err == FILCH_OK || err == FILCH_EDEAD || err == FILCH_EINVAL || err == FILCH_ESTALE;
}

/* Spawns one more actor. The registrar monitors the new actor by a spawn option, or by filch_monitor() just after the
 * spawn. */
static void spawn_actor(void)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    struct actor        v = { 0 };
    static const char  *names[ACTOR_NAMES] = { "miller", "smith", "baker" };
    filch_pid           pid;
    bool                at_spawn = fli_sim_choose(2) == 0;
    filch_data          first = filch_int(1);
    opt.args = filch_bytes(&v, sizeof v);
    opt.relations = at_spawn ? FILCH_SPAWN_MONITOR : 0;
    opt.messages = &first;
    opt.message_count = fli_sim_choose(2);
    if (fli_sim_choose(3) == 0) opt.name = names[fli_sim_choose(ACTOR_NAMES)];
    filch_err err = filch_spawn(now.sched, &actor, &opt, &pid);
    if (err == FILCH_EEXISTS) {
        opt.name = NULL;
        err = filch_spawn(now.sched, &actor, &opt, &pid);
    }
    MUST(err == FILCH_OK, "no actor");
    actors.spawned++;
    actors.pids[fli_sim_choose(ACTORS)] = pid;
    if (!at_spawn) MUST(filch_monitor(now.sched, actors.registrar, pid, 0, NULL) == FILCH_OK, "a monitor failed");
}

static filch_err registrar_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t *steps = self;
    (void)out;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    if ((*steps)++ == 0) {
        actors.registrar = filch_ctx_self(filch_out_ctx(out));
        MUST(filch_watch(now.sched, "square", actors.registrar, 9) == FILCH_OK, "no group watch");
        for (int i = 0; i < ACTORS; i++) spawn_actor();
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_JOINED) actors.joined++;
        if (events[i].type == FILCH_EVENT_LEFT) actors.left++;
        MUST(actors.left <= actors.joined, "a process left the group without joining");
        if (events[i].type != FILCH_EVENT_EXIT) continue;
        MUST(events[i].tag == 0, "an exit event with another monitor's tag");
        actors.ended++;
        if (actors.spawned < actors.limit) spawn_actor();
    }
    MUST(actors.ended <= actors.spawned, "more actors have ended than were spawned");
    if (actors.ended == actors.limit && actors.joined == actors.left) signal_end();
    return filch_idle(out);
}

static const filch_type registrar = {
    .name = "registrar", .size = 8, .init = open_instance, .step = registrar_step, .close = close_instance
};

static void monitor_target(struct actor *v, filch_pid me, filch_pid target)
{
    if (actors.monitor_count == MONITORS_MAX) return;
    for (int i = 0; i < OWN_MONITORS; i++) {
        if (v->own[i].id != 0) continue;
        uint64_t id = ++actors.monitor_count;
        actors.monitors[id - 1].target = target;
        actors.monitors[id - 1].state = MONITOR_OPEN;
        filch_err err = filch_monitor(now.sched, me, target, id, &v->own[i].ref);
        /* FILCH_EINVAL: the target is the process itself, or its pid is invalid */
        MUST(err == FILCH_OK || err == FILCH_EINVAL, "a monitor returned an unexpected error");
        if (err == FILCH_OK) v->own[i].id = id;
        return;
    }
}

static void unmonitor_one(struct actor *v, filch_pid me)
{
    int i = (int)fli_sim_choose(OWN_MONITORS);
    if (v->own[i].id == 0) return;
    uint8_t  *state = &actors.monitors[v->own[i].id - 1].state;
    filch_err err = filch_unmonitor(now.sched, me, v->own[i].ref);
    MUST(err == FILCH_OK || err == FILCH_ESTALE, "an unmonitor returned an unexpected error");
    MUST(err == FILCH_ESTALE || *state == MONITOR_OPEN, "a monitor that had fired was ended");
    if (err != FILCH_OK) return;
    *state = MONITOR_ENDED;
    v->own[i].id = 0;
}

static void on_exit_event(struct actor *v, const filch_event *event)
{
    uint64_t id = event->tag;
    MUST(id > 0 && id <= actors.monitor_count, "an exit event with a tag that was never used");
    filch_pid target = actors.monitors[id - 1].target;
    MUST(actors.monitors[id - 1].state == MONITOR_OPEN, "an exit event arrived twice, or after unmonitor");
    MUST(event->from.serial == target.serial && event->from.node == target.node, "an exit event of another process");
    actors.monitors[id - 1].state = MONITOR_FIRED;
    for (int i = 0; i < OWN_MONITORS; i++) {
        if (v->own[i].id == id) v->own[i].id = 0;
    }
}

/* A partner either fails, or sends a last message and ends without an error. */
static filch_err partner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_pid *other = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    switch (fli_sim_choose(4)) {
    case 0: return FILCH_EUSER + 3;
    case 1:
        /* the result is ignored: the actor may have ended before its partner */
        (void)!filch_send(now.sched, *other, filch_int(7));
        return filch_done(out, filch_none());
    case 2:
        MUST(filch_terminate(now.sched, filch_ctx_self(filch_out_ctx(out))) == FILCH_OK, "no terminate");
        return filch_idle(out);
    default: return filch_continue(out);
    }
}

static const filch_type partner = {
    .name = "partner", .size = sizeof(filch_pid), .init = open_instance, .step = partner_step, .close = close_instance
};

static void spawn_partner(struct actor *v, filch_pid me)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_bytes(&me, sizeof me);
    opt.relations = FILCH_SPAWN_LINK;
    MUST(filch_spawn(now.sched, &partner, &opt, &v->partner) == FILCH_OK, "no partner");
}

static void change_relation(struct actor *v, filch_pid me, filch_out *out)
{
    static const char *names[ACTOR_NAMES] = { "miller", "smith", "baker" };
    const char        *name = names[fli_sim_choose(ACTOR_NAMES)];
    filch_sched       *sched = now.sched;
    filch_err          err = FILCH_OK;
    switch (fli_sim_choose(16)) {
    case 0:
    case 1: monitor_target(v, me, random_pid()); break;
    case 2: unmonitor_one(v, me); break;
    case 3:
    case 4: err = filch_link(sched, me, random_pid()); break;
    case 5: err = filch_unlink(sched, me, random_pid()); break;
    case 6:
        v->traps = !v->traps;
        err = filch_trap_links(out, v->traps);
        break;
    case 7: err = filch_register(sched, name, me); break;
    case 8: err = filch_unregister(sched, name); break;
    case 9: err = filch_send_name(sched, name, filch_int(1)); break;
    case 10: err = filch_join(sched, "square", me); break;
    case 11: err = filch_leave(sched, "square", me); break;
    case 12: err = filch_broadcast(sched, "square", filch_int(2), NULL); break;
    case 13: err = filch_terminate(sched, random_pid()); break;
    case 14: err = filch_cancel_with(sched, random_pid(), FILCH_EUSER + 5, fli_sim_choose(50000)); break;
    default: err = filch_link(sched, random_pid(), random_pid()); break;
    }
    MUST(is_gone(err) || err == FILCH_EEXISTS, "a relation returned an unexpected error");
}

static filch_err actor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct actor *v = self;
    filch_pid     me = filch_ctx_self(filch_out_ctx(out));
    bool          asked = false;
    for (size_t i = 0; i < count; i++) {
        asked = asked || events[i].type == FILCH_EVENT_CANCEL;
        if (events[i].type == FILCH_EVENT_EXIT) on_exit_event(v, &events[i]);
        if (events[i].type != FILCH_EVENT_LINK_DOWN) continue;
        MUST(v->traps, "a process that does not trap links got a LINK_DOWN");
        MUST(events[i].error != FILCH_OK, "a LINK_DOWN without an error");
        bool partner_failed = v->partner.serial != 0 && events[i].from.serial == v->partner.serial;
        if (partner_failed) return filch_done(out, filch_none());
    }
    if (asked && fli_sim_choose(2) == 0) return filch_done(out, filch_none());
    for (size_t i = 0; v->partner.serial != 0 && i < count; i++) {
        bool word = events[i].type == FILCH_EVENT_MESSAGE && events[i].from.serial == v->partner.serial;
        if (word) return filch_done(out, filch_none());
    }
    if (v->partner.serial != 0) return filch_idle(out);
    v->steps++;
    for (uint32_t n = fli_sim_choose(3); n > 0; n--) change_relation(v, me, out);
    if (v->steps > 6) return fli_sim_choose(2) ? filch_done(out, filch_int(1)) : FILCH_EUSER + 1;
    switch (fli_sim_choose(12)) {
    case 0: return filch_done(out, filch_int(1));
    case 1: return FILCH_EUSER + 2;
    case 2: return filch_upgrade(out, fli_sim_choose(2) ? &actor : &actor_upgraded, NULL, filch_bytes(v, sizeof *v));
    case 3: MUST(filch_yield_sleep(out, 1, 1 + fli_sim_choose(20000)) == FILCH_OK, "no sleep"); return filch_wait(out);
    case 4: spawn_partner(v, me); return filch_idle(out);
    default: return filch_continue(out);
    }
}

static const filch_type actor = {
    .name = "actor", .size = sizeof(struct actor), .init = open_instance, .step = actor_step, .close = close_instance
};
static const filch_type actor_upgraded = { .name = "actor_upgraded",
                                           .size = sizeof(struct actor) + 8,
                                           .init = open_instance,
                                           .step = actor_step,
                                           .close = close_instance };

/* Foreign thread: makes random calls about the actors. */
static void change_at_random(void *arg)
{
    (void)arg;
    while (!over) {
        MUST(is_gone(filch_link(now.sched, random_pid(), random_pid())), "a link returned an unexpected error");
        MUST(is_gone(filch_unlink(now.sched, random_pid(), random_pid())), "an unlink returned an unexpected error");
        if (fli_sim_choose(4) == 0) MUST(is_gone(filch_join(now.sched, "square", random_pid())), "no join");
        if (fli_sim_choose(8) == 0) MUST(is_gone(filch_terminate(now.sched, random_pid())), "no terminate");
        fli_thread_yield();
    }
}

static void run_relations(uint32_t workers, uint32_t size)
{
    filch_options opt = workload_options(workers);
    fli_thread    outside;
    filch_pid     found;
    size_t        members;
    begin(&opt, size);
    memset(&actors, 0, sizeof actors);
    actors.limit = ACTORS + size / 10;
    (void)spawn(&registrar, NULL, 0);
    MUST(fli_thread_start(&outside, "outside", change_at_random, NULL) == FILCH_OK, "no thread");
    fli_thread_join(&outside);
    wait_until_over();
    static const char *names[ACTOR_NAMES] = { "miller", "smith", "baker" };
    for (int i = 0; i < ACTOR_NAMES; i++) {
        MUST(filch_whereis(now.sched, names[i], &found) == FILCH_EDEAD, "an ended process has a name");
    }
    MUST(filch_members(now.sched, "square", NULL, 0, &members) == FILCH_OK && members == 0,
         "an ended process is a member");
    end(FILCH_FOREVER, FILCH_OK);
}

/* ---- calls: foreign threads call processes, wait for exits and start processes while the scheduler closes ---- */

enum { CALLS_THREADS = 3, CALLS_SILENT = 7 };

static struct {
    filch_pid replier;
    uint32_t  each;
    bool      closes;
} calls;

/* Replies to a number n with n + 1; multiples of CALLS_SILENT get no reply. A number below 0 ends the process after the
 * reply. */
static filch_err replier_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    bool ends = false;
    for (size_t i = 0; i < count; i++) {
        int64_t value = filch_as_int(&events[i].data);
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        ends = ends || value < 0;
        if (value % CALLS_SILENT == 0) continue;
        filch_err err = filch_send(sched_of(out), events[i].from, filch_int(value + 1));
        MUST(err == FILCH_OK || err == FILCH_EDEAD, "a reply was refused");
    }
    return ends ? filch_done(out, filch_int(5)) : filch_idle(out);
}

static const filch_type replier = {
    .name = "replier", .init = open_instance, .step = replier_step, .close = close_instance
};

static filch_err brief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    return filch_done(out, filch_int(6));
}

static const filch_type brief = { .name = "brief", .init = open_instance, .step = brief_step, .close = close_instance };

/* Checks that `err` is a possible result of a waiting call; with `deadline`, the call may also return because its time
 * limit has passed. */
static void must_be_expected(filch_err err, bool deadline)
{
    MUST(err == FILCH_OK || (err == FILCH_EDEADLINE && deadline) || (err == FILCH_ECLOSED && calls.closes),
         "a wait ended with an unexpected error");
}

/* Calls a process that replies and then ends: the caller must get the reply. */
static void call_ending_process(void)
{
    filch_pid  pid;
    filch_data reply = filch_none();
    filch_err  err = filch_spawn(now.sched, &replier, NULL, &pid);
    if (err == FILCH_OK) err = filch_call(now.sched, pid, filch_int(-3), FILCH_FOREVER, &reply);
    /* allowed: the scheduler closes, and the process was cancelled before it could read the call */
    if (err == FILCH_EDEAD && calls.closes) return;
    must_be_expected(err, false);
    MUST(err != FILCH_OK || filch_as_int(&reply) == -2, "a wrong reply");
}

static void start_and_wait(void)
{
    filch_err  ended = FILCH_EUSER;
    filch_data result = filch_none();
    filch_err  err = filch_spawn_wait(now.sched, &brief, NULL, FILCH_FOREVER, NULL, &ended, &result);
    must_be_expected(err, false);
    bool forced = calls.closes && ended == FILCH_ECANCELLED;
    MUST(err != FILCH_OK || forced || (ended == FILCH_OK && filch_as_int(&result) == 6), "a wrong result");
}

static void calls_outside(void *arg)
{
    (void)arg;
    for (uint32_t i = 1; i <= calls.each; i++) {
        int64_t    value = (int64_t)i;
        bool       deadline = value % CALLS_SILENT == 0 || fli_sim_choose(3) == 0;
        filch_data reply = filch_none();
        if (fli_sim_choose(5) == 0) call_ending_process();
        if (fli_sim_choose(5) == 0) start_and_wait();
        filch_err err = filch_call(now.sched, calls.replier, filch_int(value),
                                   deadline ? fli_sim_choose(100000) : FILCH_FOREVER, &reply);
        if (err == FILCH_EDEAD && calls.closes) return;
        must_be_expected(err, deadline);
        MUST(err != FILCH_OK || filch_as_int(&reply) == value + 1, "a wrong reply");
        if (fli_sim_choose(5) == 0) {
            err = filch_sched_wait(now.sched, calls.replier, fli_sim_choose(10000), NULL, NULL);
            MUST(err != FILCH_OK || calls.closes, "a wait for a living process succeeded");
        }
    }
}

static void run_calls(uint32_t workers, uint32_t size)
{
    filch_options opt = workload_options(workers);
    fli_thread    outside[CALLS_THREADS];
    begin(&opt, size);
    calls.each = size / (4 * CALLS_THREADS) + 1;
    calls.closes = fli_sim_choose(2) == 0;
    calls.replier = spawn(&replier, NULL, 0);
    for (int i = 0; i < CALLS_THREADS; i++) {
        MUST(fli_thread_start(&outside[i], "outside", calls_outside, NULL) == FILCH_OK, "no thread");
    }
    if (calls.closes) {
        for (uint32_t i = fli_sim_choose(50); i > 0; i--) fli_thread_yield();
        MUST(filch_sched_close(now.sched, FILCH_FOREVER, NULL) == FILCH_OK, "close had to force");
    }
    for (int i = 0; i < CALLS_THREADS; i++) fli_thread_join(&outside[i]);
    end(FILCH_FOREVER, FILCH_OK);
}

const workload workloads[] = {
    { "ring", "tokens are passed around a ring", run_ring },
    { "storm", "many senders, few readers, order kept", run_storm },
    { "yields", "completions by the handler, by a thread, twice", run_yields },
    { "clock", "sleeps, timers, tickers, cancels", run_clock },
    { "churn", "short-lived processes, stale pids, kills, upgrades", run_churn },
    { "limits", "small mailboxes of every policy", run_limits },
    { "stop", "a close while processes, yields and sends are in progress", run_stop },
    { "drain", "stop while messages are queued: read or counted", run_drain },
    { "tick", "no workers: the host calls filch_tick", run_tick },
    { "work", "blocking functions on the pool", run_work },
    { "poor", "allocations fail at random", run_poor },
    { "calls", "foreign threads call and wait", run_calls },
    { "lanes", "jobs of every lane, some of them stuck", run_lanes },
    { "relations", "monitors, links, names, groups, exits", run_relations },
    { "hosts", "relations between hosts that stop", workload_hosts },
    { "crowd", "a process limit that is never reached", workload_crowd },
};
const unsigned workload_count = sizeof workloads / sizeof workloads[0];
