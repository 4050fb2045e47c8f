/* worker_test.c - how soon a busy worker fires due timers and polls descriptors. The scheduler has no threads, and only
 * steps advance the clock: a step of a loop process takes exactly the time that the test sets. */
#include "io/io.h"
#include "sched/find.h"
#include "sched/sentinel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/clock.h"
#include "support/check.h"
#include "support/until.h"

enum { LOOPS = 6, SLEEPS = 50, PHASES = FLI_FAIR_MOST + 8 };

/* Increment of `phase` in the loops of the tests. Larger under sanitizers and valgrind, where tests are slow. */
#define EACH(n) (scaled(100) >= 25 ? (n) : (n)*13)

#define TURN_NS FILCH_MILLISECONDS(2) /* duration of a step of a loop process */
#define SHORT_NS 100                  /* duration of a step of the self_sender process */

static uint64_t now_ns;

uint64_t __wrap_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void)
{
    return now_ns;
}

typedef struct scene {
    int64_t phase;         /* number of short steps before the loop processes start; varies when the next fairness
                              pick comes */
    bool     keep_sending; /* the self_sender goes on with short steps after the loop processes have started */
    bool     yields;       /* true: the scene has a process that yields again and again, and no self_sender */
    uint32_t loops, sleepers;
    bool     quiet;    /* the loop processes do not read the clock */
    uint64_t sleep_ns; /* the sleepers wake at multiples of this time */
    uint64_t awake_ns; /* duration of a step of a sleeper that has woken */
    uint32_t fair_every;
    uint32_t steps_per_tick;
    /* Results. */
    uint32_t slept;                     /* number of sleeps that have ended */
    uint64_t first_late_ns, late_ns;    /* largest delay of the first sleep of a sleeper, and of later sleeps */
    uint64_t turns, last[LOOPS], apart; /* `turns`: count of steps. `last`: `turns` at the last step of each loop
                                           process. `apart`: largest number of turns between two steps of one loop
                                           process */
} scene;

static scene play;

static bool is_cancelled(const filch_event *events, size_t count)
{
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL;
}

/* ---- the processes ---- */

static filch_err loop_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(int64_t *)self = filch_as_int(args);
    return FILCH_OK;
}

/* Loops for ever, and returns CONTINUE after TURN_NS, like an interrupted loop in Lua. */
static filch_err loop_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    uint64_t *last = &play.last[*(int64_t *)self];
    play.turns++;
    if (*last != 0 && play.turns - *last > play.apart) play.apart = play.turns - *last;
    *last = play.turns;
    now_ns += TURN_NS;
    /* filch_now() makes the worker notice that time has passed. Without it the worker might read its clock only many
     * steps later. */
    if (!play.quiet) (void)filch_now(filch_out_sched(out));
    return filch_continue(out);
}

static const filch_type loop = { .name = "loop", .size = sizeof(int64_t), .init = loop_init, .step = loop_step };

typedef struct sleeper {
    uint64_t due_ns;
    uint32_t slept;
} sleeper;

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    sleeper *me = self;
    play.turns++;
    if (me->due_ns != 0) {
        uint64_t late_ns = now_ns - me->due_ns, *most = me->slept == 0 ? &play.first_late_ns : &play.late_ns;
        if (late_ns > *most) *most = late_ns;
        play.slept++;
        now_ns += play.awake_ns;
        if (++me->slept == SLEEPS) return filch_done(out, filch_none());
    }
    me->due_ns = (now_ns / play.sleep_ns + 1) * play.sleep_ns;
    filch_err err = filch_yield_sleep(out, 1, me->due_ns - now_ns);
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type sleeper_type = { .name = "sleeper", .size = sizeof(sleeper), .step = sleeper_step };

static void spawn_as(filch_sched *sched, const filch_type *type, int64_t number)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_int(number);
    ok(filch_spawn(sched, type, &options, NULL));
}

static void start_other_processes(filch_sched *sched)
{
    for (uint32_t i = 0; i < play.loops; i++) spawn_as(sched, &loop, i);
    for (uint32_t i = 0; i < play.sleepers; i++) ok(filch_spawn(sched, &sleeper_type, NULL, NULL));
}

/* Sends to itself, so that the worker measures short steps. Starts all other processes in step `phase`. */
static filch_err self_sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    int64_t         *steps = self;
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    now_ns += SHORT_NS;
    if (*steps == play.phase) start_other_processes(sched);
    if (++*steps > play.phase && !play.keep_sending) return filch_done(out, filch_none());
    ok(filch_send(sched, filch_ctx_self(ctx), filch_none()));
    return filch_idle(out);
}

static const filch_type self_sender = { .name = "self_sender", .size = sizeof(int64_t), .step = self_sender_step };

/* Yields for ever, with synchronous completions. Of 1000 steps 980 take SHORT_NS and 20 take TURN_NS. */
static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    int64_t n = ++*(int64_t *)self;
    now_ns += n % 1000 < 980 ? SHORT_NS : TURN_NS;
    (void)filch_now(filch_out_sched(out));
    filch_err err = filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type yielder = { .name = "yielder", .size = sizeof(int64_t), .step = yielder_step };

static filch_err complete_now(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

#if FLI_IO

enum { READERS = 5, DATAGRAMS = 50 };

/* A process that receives datagrams. `sent_ns`: send time of the datagram that the process has not read yet; 0: the
 * process has read all datagrams. */
typedef struct reader {
    filch_stream stream;
    int          port;
    uint64_t     sent_ns;
    uint32_t     read;
} reader;

static reader   readers[READERS];
static uint64_t datagram_late_ns; /* largest delay between the sending and the reading of a datagram */
static uint32_t datagrams;        /* number of datagrams that one step of the datagram_sender sends */
static int      send_socket = -1;

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    enum { OPENED = 1, READ };
    reader   *me = &readers[*(int64_t *)self];
    char      at[128];
    filch_err err = FILCH_OK;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    if (count == 0) err = filch_yield_datagram(out, OPENED, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < count; i++) {
        err |= events[i].error;
        if (events[i].tag == OPENED) {
            me->stream = filch_as_stream(&events[i].data);
            err |= filch_stream_address(out, me->stream, FILCH_ADDRESS_LOCAL, at, sizeof at);
            me->port = atoi(strrchr(at, ':') + 1);
        } else {
            uint64_t late_ns = now_ns - me->sent_ns;
            if (me->read++ > 10 && late_ns > datagram_late_ns) datagram_late_ns = late_ns;
            me->sent_ns = 0;
        }
        err |= filch_yield_receive_from(out, READ, me->stream, 0, FILCH_FOREVER);
    }
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type reader_type = {
    .name = "reader", .size = sizeof(int64_t), .init = loop_init, .step = reader_step
};

/* A loop process that also sends a datagram to each of the first `datagrams` readers, when all earlier datagrams have
 * been read. */
static filch_err datagram_sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_err err = loop_step(self, events, count, out);
    if (is_cancelled(events, count)) return err;
    for (int i = 0; i < READERS; i++) {
        if (readers[i].sent_ns != 0) return err;
    }
    for (uint32_t i = 0; i < datagrams; i++) {
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_addr = { htonl(INADDR_LOOPBACK) },
                                  .sin_port = htons((uint16_t)readers[i].port) };
        if (sendto(send_socket, "x", 1, 0, (struct sockaddr *)&to, sizeof to) != 1) return FILCH_ESYS;
        readers[i].sent_ns = now_ns;
    }
    return err;
}

static const filch_type datagram_sender = {
    .name = "datagram_sender", .size = sizeof(int64_t), .init = loop_init, .step = datagram_sender_step
};

#endif

/* ---- running a scene ---- */

static filch_sched *begin(scene given)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    now_ns = FILCH_SECONDS(1);
    play = given;
    options.workers = FILCH_NO_WORKERS;
    options.fair_every = play.fair_every;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, FILCH_CMD_USER, complete_now, NULL));
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(options.registry);
    ok(filch_spawn(sched, play.yields ? &yielder : &self_sender, NULL, NULL));
    if (play.yields) start_other_processes(sched);
    return sched;
}

static void end(filch_sched *sched)
{
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

/* Runs the scene until each sleeper has slept SLEEPS times. */
static void run(scene given)
{
    filch_sched *sched = begin(given);
    for (int ticks = 0; play.slept < play.sleepers * SLEEPS; ticks++) {
        if (ticks > 100000) fail_msg("only %u of %u sleeps have ended", play.slept, play.sleepers * SLEEPS);
        ok(filch_tick(sched, play.steps_per_tick, NULL));
    }
    end(sched);
}

/* `fair`: values of option fair_every; 0 lets the scheduler choose. `ticks`: values of steps_per_tick. */
static const uint32_t fair[] = { 0, 2, 5, 8 }, ticks[] = { 1, 1000 };

/* A sleeper with a due timer waits for the running step, and for one more step if a fairness pick is due. */
TEST(a_sleep_beside_endless_loops_does_not_wait_for_all_of_them)
{
    for (int64_t phase = 0; phase < PHASES; phase += EACH(1)) {
        for (size_t i = 0; i < 16; i++) {
            run((scene){ .phase = phase,
                         .keep_sending = i >= 8,
                         .loops = LOOPS,
                         .sleepers = 1,
                         .sleep_ns = FILCH_MILLISECONDS(3),
                         .fair_every = fair[i % 4],
                         .steps_per_tick = ticks[i / 4 % 2] });
            assert_in_range(play.first_late_ns, 0, 2 * TURN_NS);
            assert_in_range(play.late_ns, 0, 2 * TURN_NS);
        }
    }
}

/* The timer becomes due while short steps run, and the next turn is a fairness pick. The pick runs one of the loop
 * processes, which return filch_continue for ever. */
TEST(a_sleep_that_ends_just_when_a_loop_is_due_waits_for_that_loop_alone)
{
    for (int64_t phase = 0; phase < PHASES; phase += EACH(1)) {
        for (size_t i = 0; i < 8; i++) {
            run((scene){ .phase = phase,
                         .keep_sending = true,
                         .loops = LOOPS,
                         .sleepers = 1,
                         .sleep_ns = SHORT_NS,
                         .fair_every = fair[i % 4],
                         .steps_per_tick = ticks[i / 4] });
            assert_in_range(play.first_late_ns, 0, 2 * TURN_NS);
            assert_in_range(play.late_ns, 0, 2 * TURN_NS);
        }
    }
}

/* Wakes `sleepers` processes together beside the loops; each takes `awake_ns` then. With a fairness pick at every n-th
 * step, n - 1 of them run between two picks. (The first sleep of each sleeper is not checked, because the sleepers
 * start one by one between the loop processes.) */
static void wake_together(uint32_t sleepers, uint64_t awake_ns)
{
    for (int64_t phase = 0; phase < PHASES; phase += EACH(3)) {
        for (size_t i = 0; i < 8; i++) {
            uint32_t every = fair[i % 4] != 0 ? fair[i % 4] : FLI_FAIR_EVERY;
            uint64_t groups = (sleepers + every - 2) / (every - 1);
            run((scene){ .phase = phase,
                         .loops = LOOPS,
                         .sleepers = sleepers,
                         .sleep_ns = 50 * TURN_NS + 1234567,
                         .awake_ns = awake_ns,
                         .fair_every = fair[i % 4],
                         .steps_per_tick = ticks[i / 4] });
            assert_in_range(play.late_ns, 0, (groups + 1) * TURN_NS + sleepers * awake_ns);
        }
    }
}

TEST(sleepers_that_wake_together_run_between_two_fairness_picks)
{
    wake_together(5, 0);
    wake_together(20, 0);
}

/* Each sleeper takes a long step when it wakes, so the next clock reading begins a series of fairness picks. The
 * sleepers that have woken together with it run before the series all the same. */
TEST(processes_woken_together_run_before_a_series_of_picks)
{
    for (uint32_t sleepers = 2; sleepers <= 10; sleepers += 4) wake_together(sleepers, FILCH_MICROSECONDS(300));
}

/* The process in the inline completion loop reads the clock, and the loop ends when a timer is due. */
TEST(a_sleep_beside_an_inline_completion_loop_waits_for_the_running_step)
{
    for (size_t i = 0; i < 8; i++) {
        run((scene){ .yields = true,
                     .sleepers = 1,
                     .sleep_ns = FILCH_MILLISECONDS(3),
                     .fair_every = fair[i % 4],
                     .steps_per_tick = 1000 });
        assert_in_range(play.late_ns, 0, 2 * TURN_NS);
    }
}

enum { BRIEF = 300, BRIEF_NS = 20000 };

static uint32_t briefs_run;
static uint64_t
    loop_turns_before_last_brief; /* number of steps of the loop processes when the last brief process ran */

/* Takes BRIEF_NS and ends. */
static filch_err brief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    now_ns += BRIEF_NS;
    if (++briefs_run == BRIEF) loop_turns_before_last_brief = play.turns;
    return filch_done(out, filch_none());
}

static const filch_type brief = { .name = "brief", .step = brief_step };

/* Spawns the brief processes, and the loop processes of the scene after them or before them. */
static filch_err brief_parent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const int64_t *loops_last = self;
    filch_sched   *sched = filch_out_sched(out);
    (void)events, (void)count;
    if (*loops_last == 0) start_other_processes(sched);
    for (int i = 0; i < BRIEF; i++) ok(filch_spawn(sched, &brief, NULL, NULL));
    if (*loops_last != 0) start_other_processes(sched);
    return filch_done(out, filch_none());
}

static const filch_type brief_parent = {
    .name = "brief_parent", .size = sizeof(int64_t), .init = loop_init, .step = brief_parent_step
};

/* The brief processes are queued in the deque, because a step spawns them. A series of fairness picks follows each step
 * of a loop process, and these picks run brief processes, whatever the order of the spawns. If each brief process
 * waited for one step of a loop process, the last one would wait for BRIEF such steps, 600 ms. */
TEST(queued_processes_do_not_each_wait_for_a_step_of_a_loop)
{
    for (size_t i = 0; i < 8; i++) {
        for (int64_t loops_last = 0; loops_last < 2; loops_last++) {
            filch_sched *sched = begin((scene){ .fair_every = fair[i % 4], .loops = 2 });
            uint32_t     every = fair[i % 4] != 0 ? fair[i % 4] : FLI_FAIR_EVERY;
            briefs_run = 0;
            spawn_as(sched, &brief_parent, loops_last);
            for (int n = 0; briefs_run < BRIEF && n < 100000; n++) ok(filch_tick(sched, ticks[i / 4], NULL));
            same(briefs_run, BRIEF);
            assert_in_range(loop_turns_before_last_brief, 0, BRIEF / (every - 1) + 4);
            end(sched);
        }
    }
}

/* Takes TURN_NS and ends, like a Lua process that ends inside a C function that cannot be interrupted. */
static filch_err link_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    play.turns++;
    now_ns += TURN_NS;
    if (!play.quiet) (void)filch_now(filch_out_sched(out));
    return filch_done(out, filch_none());
}

static const filch_type link_type = { .name = "link", .step = link_step };

/* Spawns a process of link_type, waits for its end, and spawns the next one, for ever. */
static filch_err chain_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    ok(filch_yield_exec(out, 1, &link_type, NULL));
    return filch_idle(out);
}

static const filch_type chain = { .name = "chain", .step = chain_step };

/* The end of a link wakes the chain in the LIFO slot, and the next link is the newest in the deque. If every second
 * turn is a fairness pick, the picks run links, and the timer waits for some of them. */
TEST(a_sleep_beside_chains_of_long_processes_waits_for_the_running_one)
{
    for (size_t i = 0; i < 8; i++) {
        for (int chains = 1; chains <= 4; chains++) {
            filch_sched *sched = begin((scene){ .fair_every = fair[i % 4], .sleep_ns = FILCH_MILLISECONDS(3) });
            for (int n = 0; n < chains; n++) ok(filch_spawn(sched, &chain, NULL, NULL));
            for (int n = 0; play.turns < 20 && n < 1000; n++) ok(filch_tick(sched, ticks[i / 4], NULL));
            ok(filch_spawn(sched, &sleeper_type, NULL, NULL));
            for (int n = 0; play.slept < SLEEPS && n < 100000; n++) ok(filch_tick(sched, ticks[i / 4], NULL));
            same(play.slept, SLEEPS);
            assert_in_range(play.late_ns, 0, fair[i % 4] == 2 ? 4 * TURN_NS : TURN_NS + SHORT_NS);
            end(sched);
        }
    }
}

static filch_pid helper_pid;
static uint64_t  asked_ns, help_late_ns; /* help_late_ns: largest delay between a message to the helper and its step */
static uint32_t  asks;

static filch_err helper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    if (count > 0 && now_ns - asked_ns > help_late_ns) help_late_ns = now_ns - asked_ns;
    return filch_idle(out);
}

static const filch_type helper = { .name = "helper", .step = helper_step };

/* Takes a long step, sends to the helper, and sleeps. The helper is then in the LIFO slot. */
static filch_err asker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    now_ns += FILCH_MICROSECONDS(300);
    asked_ns = now_ns;
    asks++;
    ok(filch_send(filch_out_sched(out), helper_pid, filch_none()));
    ok(filch_yield_sleep(out, 1, FILCH_MILLISECONDS(20)));
    return filch_wait(out);
}

static const filch_type asker = { .name = "asker", .step = asker_step };

/* A timer is due at each clock reading. After the long step of the asker, the process that the timer wakes runs before
 * the helper, which was in the LIFO slot; the helper runs next, not after all loop processes. */
TEST(a_timer_after_a_long_step_delays_the_process_in_the_lifo_slot_by_its_own_turn)
{
    for (size_t i = 0; i < 8; i++) {
        filch_sched *sched = begin((scene){ .fair_every = fair[i % 4],
                                            .loops = LOOPS,
                                            .sleepers = 1,
                                            .sleep_ns = FILCH_MICROSECONDS(100),
                                            .awake_ns = SHORT_NS });
        asks = 0, help_late_ns = 0;
        ok(filch_spawn(sched, &helper, NULL, &helper_pid));
        ok(filch_spawn(sched, &asker, NULL, NULL));
        for (int n = 0; play.slept < SLEEPS && n < 100000; n++) {
            ok(filch_tick(sched, ticks[i / 4], NULL));
            if (asks > 5 && play.slept >= SLEEPS - 5) break;
        }
        assert_true(asks > 1);
        assert_in_range(help_late_ns, 0, 2 * TURN_NS);
        end(sched);
    }
}

/* The brief processes run between the links: they do not each wait for one link. If the links do not read the clock,
 * the worker notices the first long steps later. */
TEST(queued_processes_do_not_each_wait_for_a_link_of_a_chain)
{
    for (size_t i = 0; i < 12; i++) {
        /* a tick of one step reads the clock only before the step */
        uint32_t     steps = i >= 8 ? ticks[1] : ticks[i / 4];
        filch_sched *sched = begin((scene){ .fair_every = fair[i % 4], .quiet = i >= 8 });
        uint32_t     every = fair[i % 4] != 0 ? fair[i % 4] : FLI_FAIR_EVERY;
        for (int n = 0; n < 2; n++) ok(filch_spawn(sched, &chain, NULL, NULL));
        for (int n = 0; play.turns < 300 && n < 10000; n++) ok(filch_tick(sched, steps, NULL));
        uint64_t before = play.turns;
        briefs_run = 0;
        spawn_as(sched, &brief_parent, 0);
        for (int n = 0; briefs_run < BRIEF && n < 100000; n++) ok(filch_tick(sched, steps, NULL));
        same(briefs_run, BRIEF);
        assert_in_range(loop_turns_before_last_brief - before, 0, 2 * BRIEF / (every - 1) + 8);
        end(sched);
    }
}

enum { MANY_LOOPS = 100 };

/* Spawns MANY_LOOPS loop processes. */
static filch_err crowd_parent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    for (int64_t i = 0; i < MANY_LOOPS; i++) spawn_as(filch_out_sched(out), &loop, i % LOOPS);
    return filch_done(out, filch_none());
}

static const filch_type crowd_parent = {
    .name = "crowd_parent", .size = sizeof(int64_t), .init = loop_init, .step = crowd_parent_step
};

/* The host spawns a process while MANY_LOOPS loop processes wait in the deque. The process is in the global queue, of
 * which every second fairness pick takes the oldest: the process does not wait for all the loop processes. */
TEST(a_process_woken_by_the_host_does_not_wait_for_all_loops)
{
    for (size_t i = 0; i < 8; i++) {
        filch_sched *sched = begin((scene){ .fair_every = fair[i % 4] });
        spawn_as(sched, &crowd_parent, 0);
        for (int n = 0; play.turns < 3 * MANY_LOOPS && n < 100000; n++) ok(filch_tick(sched, ticks[i / 4], NULL));
        briefs_run = BRIEF - 1;
        uint64_t before = play.turns;
        ok(filch_spawn(sched, &brief, NULL, NULL));
        for (int n = 0; briefs_run < BRIEF && n < 100000; n++) ok(filch_tick(sched, 1, NULL));
        same(briefs_run, BRIEF);
        assert_in_range(loop_turns_before_last_brief - before, 0, 3);
        end(sched);
    }
}

/* More timers become due than steps can run. Nevertheless at least every n-th step is a fairness pick, so a loop
 * process runs when all processes that were ready before it have run. */
TEST(due_timers_do_not_starve_loops)
{
    for (int64_t phase = 0; phase < PHASES; phase += EACH(7)) {
        for (size_t i = 0; i < 8; i++) {
            uint32_t every = fair[i % 4] != 0 ? fair[i % 4] : FLI_FAIR_MOST;
            run((scene){ .phase = phase,
                         .loops = LOOPS,
                         .sleepers = 20,
                         .sleep_ns = FILCH_MILLISECONDS(1),
                         .fair_every = fair[i % 4],
                         .steps_per_tick = ticks[i / 4] });
            assert_in_range(play.apart, 1, every * (LOOPS + 20));
        }
    }
}

/* The program pauses between two ticks, after many short steps. The timer becomes due in this pause. Without a clock
 * reading at the start of a tick, the worker would read its clock only many steps later. */
TEST(a_timer_due_at_the_start_of_a_tick_waits_for_one_fairness_pick_at_most)
{
    for (uint32_t phase = 0; phase < PHASES; phase += EACH(1)) {
        for (size_t i = 0; i < 4; i++) {
            filch_sched *sched = begin((scene){ .keep_sending = true,
                                                .quiet = true,
                                                .sleepers = 1,
                                                .sleep_ns = FILCH_MILLISECONDS(3),
                                                .fair_every = fair[i] });
            ok(filch_tick(sched, 1000 + phase, NULL));
            play.loops = LOOPS;
            play.sleepers = 0;
            start_other_processes(sched);
            now_ns += FILCH_MILLISECONDS(3);
            ok(filch_tick(sched, 1000, NULL));
            assert_true(play.slept > 0);
            assert_in_range(play.first_late_ns, 0, 3 * TURN_NS); /* the delay includes the pause between the ticks */
            end(sched);
        }
    }
}

/* fair_every is 1: processes woken by timers run after all processes that were ready before them. */
TEST(sleeps_end_if_every_turn_is_a_fairness_pick)
{
    for (size_t i = 0; i < 2; i++) {
        run((scene){ .phase = 3,
                     .loops = LOOPS,
                     .sleepers = 5,
                     .sleep_ns = FILCH_MILLISECONDS(3),
                     .fair_every = 1,
                     .steps_per_tick = ticks[i] });
        assert_in_range(play.late_ns, 0, (LOOPS + 5) * TURN_NS);
    }
}

/* No process is ready when the timer becomes due. The test goes through all values of fair_countdown. */
TEST(if_no_process_is_ready_a_timer_fires_with_the_first_tick)
{
    for (size_t i = 0; i < 4; i++) {
        filch_sched *sched = begin((scene){ .sleepers = 1, .sleep_ns = FILCH_MILLISECONDS(3), .fair_every = fair[i] });
        ok(filch_tick(sched, 0, NULL));
        for (uint32_t n = 1; n <= SLEEPS; n++) {
            now_ns += FILCH_MILLISECONDS(4);
            ok(filch_tick(sched, 0, NULL));
            same(play.slept, n);
        }
        end(sched);
    }
}

#if FLI_IO

/* Starts readers and loop processes; the first loop process is the datagram_sender. */
static filch_sched *begin_with_readers(scene given, uint32_t at_once)
{
    filch_sched *sched = begin(given);
    memset(readers, 0, sizeof readers);
    datagram_late_ns = 0;
    datagrams = at_once;
    send_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(send_socket >= 0);
    for (int64_t n = 0; n < READERS; n++) spawn_as(sched, &reader_type, n);
    ok(filch_tick(sched, 100, NULL));
    for (int64_t n = 0; n < LOOPS; n++) spawn_as(sched, n == 0 ? &datagram_sender : &loop, n);
    return sched;
}

static void end_with_readers(filch_sched *sched)
{
    end(sched);
    close(send_socket);
}

/* With a fairness pick at every n-th step, n - 1 readers run between two picks. (The first datagrams of a reader are
 * not checked, because a poll interval that began before the loop processes started lasts longer.) */
TEST(readers_with_datagrams_run_between_two_fairness_picks)
{
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t     every = fair[i % 4] != 0 ? fair[i % 4] : FLI_FAIR_EVERY;
        filch_sched *sched = begin_with_readers((scene){ .fair_every = fair[i % 4] }, i < 8 ? 1 : READERS);
        for (int n = 0; readers[0].read < DATAGRAMS; n++) {
            if (n > 100000) fail_msg("only %u datagrams were read", readers[0].read);
            ok(filch_tick(sched, ticks[i / 4 % 2], NULL));
        }
        assert_in_range(datagram_late_ns, 0, (datagrams + every - 2) / (every - 1) * TURN_NS);
        end_with_readers(sched);
    }
}

/* More timers become due than steps can run. Processes woken by timers run before readers of datagrams, but some
 * datagrams must be read too. */
TEST(due_timers_do_not_starve_readers_of_datagrams)
{
    for (uint32_t i = 0; i < 8; i++) {
        scene        given = { .sleepers = 20, .sleep_ns = FILCH_MILLISECONDS(1), .fair_every = fair[i % 4] };
        filch_sched *sched = begin_with_readers(given, 1);
        for (int n = 0; play.slept < play.sleepers * SLEEPS / 2; n++) {
            if (n > 100000) fail_msg("only %u of %u sleeps have ended", play.slept, play.sleepers * SLEEPS / 2);
            ok(filch_tick(sched, ticks[i / 4], NULL));
        }
        assert_true(readers[0].read >= 3);
        end_with_readers(sched);
    }
}

#endif

/* ---- churn and overload ---- */

enum { CHAINS = 50, PROBES = 200, CROWD = 200, CROWD_WAKES = 20 };
#define CHURN_NS FILCH_MICROSECONDS(50)
#define PROBE_NS FILCH_MILLISECONDS(1)
#define CROWD_NS FILCH_MICROSECONDS(10)

/* Computes, spawns its successor and ends. */
static filch_err        churn_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type churn = { .name = "churn", .step = churn_step };

static filch_err churn_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    now_ns += CHURN_NS;
    (void)filch_now(filch_out_sched(out));
    filch_err err = filch_spawn(filch_out_sched(out), &churn, NULL, NULL);
    return err != FILCH_OK && err != FILCH_ECLOSED ? err : filch_done(out, filch_none());
}

/* Results of the prober: the largest delay until it wakes, and until it has the reply. */
static uint64_t  wake_late_ns, reply_late_ns;
static uint32_t  probes;
static filch_pid target;

static filch_err target_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) ok(filch_send(filch_out_sched(out), events[i].from, filch_none()));
    return filch_idle(out);
}

static const filch_type target_type = { .name = "target", .step = target_step };

/* Sleeps until the next probe is due, sends to the target, and gets its reply. */
static filch_err prober_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *due_ns = self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    if (count > 0 && events[0].type == FILCH_EVENT_YIELD) {
        if (now_ns - *due_ns > wake_late_ns) wake_late_ns = now_ns - *due_ns;
        ok(filch_send(filch_out_sched(out), target, filch_none()));
        return filch_idle(out);
    }
    if (count > 0) {
        if (now_ns - *due_ns > reply_late_ns) reply_late_ns = now_ns - *due_ns;
        if (++probes == PROBES) return filch_done(out, filch_none());
    }
    *due_ns = now_ns + PROBE_NS;
    filch_err err = filch_yield_sleep(out, 1, PROBE_NS);
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type prober = { .name = "prober", .size = sizeof(uint64_t), .step = prober_step };

/* Processes that end and leave a successor are always the newest. The prober waits for the running step and for one
 * pick until it wakes, and for at most one pick more until the target and the reply have run. */
TEST(a_process_that_wakes_under_churn_and_the_messages_it_sends_run_before_the_churn)
{
    for (size_t i = 0; i < 8; i++) {
        filch_sched *sched = begin((scene){ .fair_every = fair[i % 4] });
        wake_late_ns = reply_late_ns = 0;
        probes = 0;
        ok(filch_spawn(sched, &target_type, NULL, &target));
        ok(filch_spawn(sched, &prober, NULL, NULL));
        for (int n = 0; n < CHAINS; n++) ok(filch_spawn(sched, &churn, NULL, NULL));
        for (int n = 0; probes < PROBES && n < 1000000; n++) ok(filch_tick(sched, ticks[i / 4], NULL));
        same(probes, PROBES);
        assert_in_range(wake_late_ns, 0, 3 * CHURN_NS);
        assert_in_range(reply_late_ns, 0, 5 * CHURN_NS);
        end(sched);
    }
}

static uint32_t crowd_awake, crowd_wakes; /* crowd_awake: number of processes that have run; crowd_wakes: number of
                                             wake-ups after all have run */
static uint64_t crowd_late_ns;

/* Sleeps for PROBE_NS and computes for CROWD_NS, again and again. */
static filch_err crowd_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    sleeper *me = self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    if (count == 0) crowd_awake++;
    if (count > 0 && crowd_awake == CROWD) {
        uint64_t late_ns = now_ns - me->due_ns;
        if (late_ns > crowd_late_ns) crowd_late_ns = late_ns;
        crowd_wakes++;
    }
    now_ns += CROWD_NS;
    me->due_ns = now_ns + PROBE_NS;
    filch_err err = filch_yield_sleep(out, 1, PROBE_NS);
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type crowd = { .name = "crowd", .size = sizeof(sleeper), .step = crowd_step };

/* CROWD processes need CROWD * CROWD_NS, which is 2 ms, for each wake-up, and sleep 1 ms. So all of them wake 1 ms
 * late, and none wakes later than 1 ms and a few turns after its time. */
TEST(with_more_timers_than_the_worker_can_serve_the_oldest_run_first)
{
    for (size_t i = 0; i < 8; i++) {
        filch_sched *sched = begin((scene){ .fair_every = fair[i % 4] });
        crowd_late_ns = 0;
        crowd_awake = crowd_wakes = 0;
        for (int n = 0; n < CROWD; n++) ok(filch_spawn(sched, &crowd, NULL, NULL));
        for (int n = 0; crowd_wakes < CROWD * CROWD_WAKES && n < 100000; n++) ok(filch_tick(sched, ticks[i / 4], NULL));
        assert_true(crowd_wakes >= CROWD * CROWD_WAKES);
        assert_in_range(crowd_late_ns, 0, CROWD * CROWD_NS - PROBE_NS + FLI_FAIR_MOST * CROWD_NS);
        end(sched);
    }
}

enum { TOGETHER = 40 };

static int64_t  woken_order[TOGETHER];
static uint32_t woken_count;

/* Sleeps once, for as many milliseconds as its number says. */
static filch_err ordered_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t *number = self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    if (count == 0) {
        filch_err err = filch_yield_sleep(out, 1, FILCH_MILLISECONDS((uint64_t)*number));
        return err != FILCH_OK ? err : filch_wait(out);
    }
    woken_order[woken_count++] = *number;
    return filch_done(out, filch_none());
}

static const filch_type ordered = {
    .name = "ordered", .size = sizeof(int64_t), .init = loop_init, .step = ordered_step
};

TEST(of_timers_that_are_due_at_the_same_clock_reading_the_earliest_wakes_its_process_first)
{
    for (size_t i = 0; i < 4; i++) {
        filch_sched *sched = begin((scene){ .fair_every = i == 0 ? 1 : fair[i] });
        woken_count = 0;
        for (int64_t n = 1; n <= TOGETHER; n++) spawn_as(sched, &ordered, n * 7 % (TOGETHER + 1));
        ok(filch_tick(sched, 0, NULL));
        now_ns += FILCH_SECONDS(1);
        ok(filch_tick(sched, 0, NULL));
        same(woken_count, TOGETHER);
        for (uint32_t n = 0; n < TOGETHER; n++) same(woken_order[n], n + 1);
        end(sched);
    }
}

/* ---- many timers at once ---- */

enum { TIMERS = 40, TIMERS_MOST = 1000, NAPPERS = 60 };
#define BUSY_NS FILCH_MICROSECONDS(2)

static uint32_t many_timers,
    timers_read; /* number of timers of the timer_owner, and how many messages of them it got */

/* Arms `many_timers` timers that are due together, and starts the other processes when it has got all their
 * messages. */
static filch_err timer_owner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    bool     *armed = self;
    filch_err err = FILCH_OK;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) timers_read += events[i].type == FILCH_EVENT_MESSAGE;
    for (uint32_t i = 0; !*armed && i < many_timers; i++) err |= filch_yield_timer(out, 1, FILCH_MILLISECONDS(1));
    *armed = true;
    if (timers_read == many_timers) start_other_processes(filch_out_sched(out));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type timer_owner = { .name = "timer_owner", .size = sizeof(bool), .step = timer_owner_step };

/* All timers of one process are due together and wake it once. Then a loop process and a sleeper begin. The sleeper
 * must not wait for as many steps of the loop process as timers have fired. */
TEST(many_timers_of_one_process_do_not_delay_a_sleep_beside_a_loop)
{
    for (size_t i = 0; i < 10; i++) {
        uint32_t     every = i < 8 ? fair[i % 4] : 1;
        filch_sched *sched = begin(
            (scene){ .phase = -1, .loops = 1, .sleepers = 1, .sleep_ns = FILCH_MILLISECONDS(3), .fair_every = every });
        many_timers = every == 1 ? TIMERS_MOST : TIMERS;
        timers_read = 0;
        ok(filch_spawn(sched, &timer_owner, NULL, NULL));
        ok(filch_tick(sched, 0, NULL));
        now_ns += FILCH_MILLISECONDS(2);
        for (int n = 0; play.slept < SLEEPS && n < 100000; n++) ok(filch_tick(sched, ticks[i / 4 % 2], NULL));
        same(timers_read, many_timers);
        same(play.slept, SLEEPS);
        assert_in_range(play.first_late_ns, 0, 3 * TURN_NS);
        assert_in_range(play.late_ns, 0, 3 * TURN_NS);
        end(sched);
    }
}

static uint64_t naps_until_ns;               /* time at which all nappers wake */
static uint64_t step_ns_least, step_ns_most; /* range of the worker's step_ns while nappers wake */
static uint32_t naps, interval_most;         /* `interval_most`: largest clock_interval while nappers wake */

/* Computes for BUSY_NS, for ever. */
static filch_err busy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    now_ns += BUSY_NS;
    return filch_continue(out);
}

static const filch_type busy = { .name = "busy", .step = busy_step };

/* Computes for BUSY_NS, sleeps until naps_until_ns, computes for BUSY_NS again, and ends. */
static filch_err napper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    now_ns += BUSY_NS;
    if (count == 0) {
        filch_err err = filch_yield_sleep(out, 1, naps_until_ns - now_ns);
        return err != FILCH_OK ? err : filch_wait(out);
    }
    const fli_worker *w = filch_out_sched(out)->caller_worker;
    if (w->step_ns < step_ns_least) step_ns_least = w->step_ns;
    if (w->step_ns > step_ns_most) step_ns_most = w->step_ns;
    if (w->clock_interval > interval_most) interval_most = w->clock_interval;
    naps++;
    return filch_done(out, filch_none());
}

static const filch_type napper = { .name = "napper", .step = napper_step };

/* While many timers are due, the worker reads its clock after fewer steps than clock_interval says. These readings must
 * not make the worker believe that its steps are short. */
TEST(a_burst_of_timers_does_not_make_clock_readings_rarer)
{
    for (size_t i = 0; i < 4; i++) {
        filch_sched *sched = begin((scene){ .phase = -1, .fair_every = fair[i] });
        naps = interval_most = 0;
        step_ns_least = UINT64_MAX;
        step_ns_most = 0;
        naps_until_ns = now_ns + FILCH_MILLISECONDS(5);
        for (int n = 0; n < LOOPS; n++) ok(filch_spawn(sched, &busy, NULL, NULL));
        for (int n = 0; n < NAPPERS; n++) ok(filch_spawn(sched, &napper, NULL, NULL));
        ok(filch_tick(sched, 10000, NULL));
        same(naps, NAPPERS);
        assert_in_range(interval_most, 16, 32);
        assert_in_range(step_ns_least, BUSY_NS / 2, 2 * BUSY_NS);
        assert_in_range(step_ns_most, BUSY_NS / 2, 2 * BUSY_NS);
        end(sched);
    }
}

/* A foreign thread has queued a process, and a fairness pick is due: no timer may fire before it. */
TEST(timers_do_not_keep_a_tick_from_a_process_in_the_global_queue)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    now_ns = FILCH_SECONDS(1);
    woken_count = 0;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    spawn_as(sched, &ordered, 1);
    ok(filch_spawn(sched, &target_type, NULL, &pid));
    ok(filch_tick(sched, 0, NULL));
    now_ns += FILCH_SECONDS(1);
    ok(filch_cancel(sched, pid));
    fli_worker *w = sched->caller_worker;
    same(fli_inject_count(&sched->global), 1);
    w->clock_ns = now_ns;
    w->fair_countdown = 1;
    fli_current_set(&w->local);
    assert_true(fli_worker_fire_due(w));
    fli_current_set(NULL);
    same(woken_count, 0);
    ok(filch_tick(sched, 0, NULL));
    same(woken_count, 1);
    end(sched);
}

/* While a worker is in a long step, the sentinel notices its ready processes, timers and descriptors after this timeout
 * at the latest. */
TEST(the_timeout_of_a_sentinel_doubles_up_to_8_ms)
{
    static fli_worker w;
    fli_sentinel_woke(&w, false);
    same(w.idle.sentinel_ns, FILCH_MILLISECONDS(1));
    for (uint64_t ms = 2; ms <= 8; ms *= 2) {
        fli_sentinel_woke(&w, true);
        same(w.idle.sentinel_ns, FILCH_MILLISECONDS(ms));
    }
    fli_sentinel_woke(&w, true);
    same(w.idle.sentinel_ns, FILCH_MILLISECONDS(8));
    fli_sentinel_woke(&w, false);
    same(w.idle.sentinel_ns, FILCH_MILLISECONDS(1));
}

/* More timers are due than the worker may fire before the fairness pick. Returns true if the worker unparks `parked`,
 * while `searching` other workers search. */
static bool late_timers_unpark(uint64_t searching)
{
    static fli_worker parked;
    filch_sched      *sched = begin((scene){ .fair_every = 8 });
    fli_idle         *idle = &sched->idle;
    fli_worker       *w = sched->caller_worker;
    for (int64_t n = 1; n <= TOGETHER; n++) spawn_as(sched, &ordered, n);
    woken_count = 0;
    ok(filch_tick(sched, 0, NULL));
    spawn_as(sched, &ordered, 1); /* a ready process for a fairness pick */
    parked = (fli_worker){ .sched = sched };
    ok(fli_parker_init(&parked.idle.parker));
    parked.idle.is_parked = true;
    idle->parked = idle->sentinel = &parked;
    idle->sentinel_armed = true;
    fli_store_rlx(&idle->word, FLI_PARKED_ONE + FLI_SENTINEL + searching * FLI_SEARCHING_ONE);
    fli_idle_update_hint_locked(idle);
    now_ns += FILCH_SECONDS(1);
    w->fair_countdown = 2;
    w->saw_continue = false;
    /* The measured steps are so short that no worker is unparked for a process woken by a timer: the sentinel will find
     * the process. */
    w->step_ns = 1;
    fli_current_set(&w->local);
    fli_worker_clock(w);
    fli_current_set(NULL);
    bool unparked = !parked.idle.is_parked;
    if (unparked) assert_true(fli_park(&parked.idle.parker, FLI_NEVER));
    idle->parked = idle->sentinel = NULL;
    idle->sentinel_armed = false;
    fli_store_rlx(&idle->word, 0);
    fli_store_rlx(&idle->hint, 0);
    fli_parker_fini(&parked.idle.parker);
    end(sched);
    return unparked;
}

TEST(a_worker_whose_due_timers_are_late_unparks_another_unless_one_searches)
{
    assert_true(late_timers_unpark(0));
    assert_false(late_timers_unpark(1));
}

/* The time between two ticks belongs to the host program: it is no long step. */
TEST(a_pause_between_two_ticks_begins_no_series_of_picks)
{
    filch_sched *sched = begin((scene){ .fair_every = 8, .loops = 2, .quiet = true });
    ok(filch_tick(sched, 1, NULL));
    same(sched->caller_worker->fair_series, 0);
    now_ns += FILCH_SECONDS(1);
    ok(filch_tick(sched, 1, NULL));
    same(sched->caller_worker->fair_series, 0);
    end(sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_between_two_ticks_begins_no_series_of_picks),
        cmocka_unit_test(a_sleep_beside_endless_loops_does_not_wait_for_all_of_them),
        cmocka_unit_test(a_sleep_that_ends_just_when_a_loop_is_due_waits_for_that_loop_alone),
        cmocka_unit_test(sleepers_that_wake_together_run_between_two_fairness_picks),
        cmocka_unit_test(processes_woken_together_run_before_a_series_of_picks),
        cmocka_unit_test(a_timer_after_a_long_step_delays_the_process_in_the_lifo_slot_by_its_own_turn),
        cmocka_unit_test(a_sleep_beside_an_inline_completion_loop_waits_for_the_running_step),
        cmocka_unit_test(queued_processes_do_not_each_wait_for_a_step_of_a_loop),
        cmocka_unit_test(a_sleep_beside_chains_of_long_processes_waits_for_the_running_one),
        cmocka_unit_test(queued_processes_do_not_each_wait_for_a_link_of_a_chain),
        cmocka_unit_test(a_process_woken_by_the_host_does_not_wait_for_all_loops),
        cmocka_unit_test(due_timers_do_not_starve_loops),
        cmocka_unit_test(a_timer_due_at_the_start_of_a_tick_waits_for_one_fairness_pick_at_most),
        cmocka_unit_test(sleeps_end_if_every_turn_is_a_fairness_pick),
        cmocka_unit_test(timers_do_not_keep_a_tick_from_a_process_in_the_global_queue),
        cmocka_unit_test(the_timeout_of_a_sentinel_doubles_up_to_8_ms),
        cmocka_unit_test(a_process_that_wakes_under_churn_and_the_messages_it_sends_run_before_the_churn),
        cmocka_unit_test(with_more_timers_than_the_worker_can_serve_the_oldest_run_first),
        cmocka_unit_test(of_timers_that_are_due_at_the_same_clock_reading_the_earliest_wakes_its_process_first),
        cmocka_unit_test(if_no_process_is_ready_a_timer_fires_with_the_first_tick),
        cmocka_unit_test(a_worker_whose_due_timers_are_late_unparks_another_unless_one_searches),
        cmocka_unit_test(many_timers_of_one_process_do_not_delay_a_sleep_beside_a_loop),
        cmocka_unit_test(a_burst_of_timers_does_not_make_clock_readings_rarer),
#if FLI_IO
        cmocka_unit_test(readers_with_datagrams_run_between_two_fairness_picks),
        cmocka_unit_test(due_timers_do_not_starve_readers_of_datagrams),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
