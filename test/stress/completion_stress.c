/* completion_stress.c - completions that race with the end of the step that yielded: each yield is completed exactly
 * once.
 *
 *     completion_stress YIELDS
 *
 * Processes yield a few commands at a time and then wait, or go idle, until all are completed. The handler chooses at
 * random how a yield is completed: by itself, synchronously; by one of two answering threads, which spin on the
 * receivers that they get; or by both threads at once, with one receiver. So completions arrive before, while and after
 * the worker settles the process. If there are two completions, one must be accepted and the other must return
 * FILCH_ESTALE. Each process checks that every tag arrives once.
 *
 * A receiver is passed in a slot: the handler fills the slot and sets a bit for each thread that must answer. When no
 * slot is free the handler completes the yield itself, so no thread waits for a slot. Two threads that must answer at
 * the same time wait for each other for a short time; the report says how often they met. There are many processes, so
 * that a thread that gets a CPU on a loaded machine finds enough work. A lost completion shows as missing progress:
 * after STRESS_LIMIT without a completion the program prints its state and ends.
 *
 * Exit: 0 no error found; 1 a completion was lost, duplicated or invented; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/stress.h"
#include "support/yield_slice.h"

enum { YIELDERS = 64, SLOTS = 16, AT_ONCE = 8, THREADS = 2, COMMAND = FILCH_CMD_USER };

#define EVERY_SLOT ((UINT64_C(1) << SLOTS) - 1)

/* A receiver that the handler passes to the answering threads. */
typedef struct slot {
    /* Number of completions that threads have made. Bits: low 8 = accepted completions, above = stale completions.
     * writes: the answering threads. PAIR slot.given */
    alignas(FLI_LINE) FLI_ATOMIC(uint32_t) given;
    /* Counts the threads that are about to complete the yield: a thread that waits for the other thread adds 1, and 16
     * more when it gives up waiting; a thread that does not wait adds 17.  writes: the answering threads, by an atomic
     * add; reset together with `given`.  Relaxed, because it only makes the threads complete at the same time. */
    FLI_ATOMIC(uint32_t) arrived;
    /* number of answering threads. Not atomic, like the fields below: ordered by PAIR slot.asked */
    uint32_t       expected;
    filch_receiver receiver;
    int64_t        value;
} slot;

/* The slots of one yielder. */
typedef struct box {
    /* Bits: low SLOTS = the slots that thread 0 must answer, next SLOTS = the slots that thread 1 must answer. writes:
     * the handler sets bits, each thread clears its own bits. PAIR slot.asked */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) asked;
    slot slots[SLOTS];
} box;

typedef struct yielder {
    struct game *game;
    uint32_t     who;
    fli_prng     prng; /* used only by the steps of the yielder */
    /* used only by the handler, which runs on the worker of the yielder but outside its step */
    fli_prng handler_prng;
    uint32_t missing; /* one bit for each tag with a yield that is not completed yet */
    uint64_t asked, answered;
} yielder;

typedef struct game {
    uint64_t         yields; /* number of yields per yielder */
    filch_sched     *sched;
    filch_pid        pids[YIELDERS];
    box              boxes[YIELDERS];
    stress_watch     watch;
    FLI_ATOMIC(bool) over;
    /* Number of completions, for the progress check and the final report, so relaxed. writes: each yielder its own
     * element. */
    struct {
        alignas(FLI_LINE) FLI_ATOMIC(uint64_t) n;
    } answered[YIELDERS];
    /* Numbers of yields: completed by the handler, by one thread, by two threads.  writes: atomic add, relaxed. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) on_the_spot;
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) by_thread;
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) doubled;
    FLI_ATOMIC(uint64_t) met; /* number of yields that both threads completed at the same time */
} game;

/* ---- reports ---- */

static uint64_t progress(game *g)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < YIELDERS; i++) sum += fli_load_rlx(&g->answered[i].n);
    return sum;
}

static void complain(game *g, const char *what)
{
    filch_stats stats = FILCH_STATS_INIT;
    (void)!filch_sched_stats(g->sched, &stats);
    fprintf(stderr,
            "\ncompletion: %s\n  %" PRIu64 " of %" PRIu64 " answered; workers %" PRIu32 ", asleep %" PRIu32
            ", yields %" PRIu64 ", completions %" PRIu64 ", late %" PRIu64 "\n ",
            what, progress(g), g->yields * YIELDERS, stats.workers, stats.asleep, stats.yields, stats.completions,
            stats.late_completions);
    for (uint32_t i = 0; i < YIELDERS; i++) {
        filch_info info = { .size = sizeof info };
        (void)!filch_inspect(g->sched, g->pids[i], &info);
        fprintf(stderr, " %s:%" PRIu64, stress_state_name(info.state), fli_load_rlx(&g->answered[i].n));
    }
    fprintf(stderr, "\n");
    _exit(1);
}

/* ---- yielders ---- */

static filch_err yielder_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(yielder **)self = filch_as_ptr(args);
    return FILCH_OK;
}

/* Returns the number that the command of yield `number` carries; the completion of the yield must return it. */
static int64_t value_of(const yielder *a, uint64_t number)
{
    return (int64_t)(number * YIELDERS + a->who);
}

static void take(yielder *a, const filch_event *event)
{
    game *g = a->game;
    if (event->type != FILCH_EVENT_YIELD) complain(g, "an event without a cause");
    uint32_t bit = UINT32_C(1) << event->tag;
    if (event->tag >= AT_ONCE || (a->missing & bit) == 0) complain(g, "a yield was answered twice");
    if (event->error != FILCH_OK) complain(g, "a completion with an unexpected error");
    uint64_t number = (uint64_t)filch_as_int(&event->data) / YIELDERS;
    if (filch_as_int(&event->data) != value_of(a, number) || number >= a->asked || number + AT_ONCE < a->asked) {
        complain(g, "an answer to another yield");
    }
    a->missing &= ~bit;
    a->answered++;
    fli_store_rlx(&g->answered[a->who].n, a->answered);
}

static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    yielder *a = *(yielder **)self;
    game    *g = a->game;
    for (size_t i = 0; i < count; i++) take(a, &events[i]);
    if (a->answered == g->yields) {
        stress_watch_leave(&g->watch);
        return filch_done(out, filch_none());
    }
    if (a->missing == 0) {
        uint32_t n = 1 + fli_prng_below(&a->prng, 1 + fli_prng_below(&a->prng, AT_ONCE)); /* usually a small number */
        for (uint32_t tag = 0; tag < n && a->asked < g->yields; tag++) {
            stress_must("yield", filch_yield(out, COMMAND, tag, filch_int(value_of(a, a->asked++))));
            a->missing |= UINT32_C(1) << tag;
        }
    }
    return fli_prng_below(&a->prng, 4) == 0 ? filch_idle(out) : filch_wait(out);
}

static const filch_type yielder_type = {
    .name = "yielder", .size = sizeof(yielder *), .init = yielder_init, .step = yielder_step
};

/* ---- answering threads ---- */

static yielder yielders[YIELDERS];

static void dawdle(fli_prng *prng)
{
    for (uint32_t n = fli_prng_below(prng, UINT32_C(1) << fli_prng_below(prng, 6)); n > 0; n--) fli_thread_pause();
}

/* Fills the first free slot of this yielder. Returns its index, or SLOTS if none is free. */
static uint32_t fill(box *of, filch_receiver receiver, int64_t value, uint32_t expected)
{
    uint64_t asked = fli_load_acq(&of->asked); /* PAIR slot.asked, acquire half: the threads have read the slot */
    for (uint32_t i = 0; i < SLOTS; i++) {
        slot *s = &of->slots[i];
        if (((asked | asked >> SLOTS) >> i & 1) != 0) continue;
        /* PAIR slot.given, acquire half: the threads will not read the slot again */
        if (fli_load_acq(&s->given) != 0) continue;
        s->receiver = receiver;
        s->value = value;
        s->expected = expected;
        return i;
    }
    return SLOTS;
}

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    game    *g = user;
    int64_t  value = filch_as_int(&command->data);
    yielder *a = &yielders[value % YIELDERS];
    box     *of = &g->boxes[a->who];
    /* the threads that must complete the yield, one bit each; 0: the handler completes it synchronously */
    uint32_t who = fli_prng_below(&a->handler_prng, 1 << THREADS);
    uint32_t at = who != 0 ? fill(of, receiver, value, who == 3 ? 2 : 1) : SLOTS;
    if (at == SLOTS) {
        /* no slot is free because the answering threads are slow: gives up the CPU for them */
        if (who != 0) yield_slice();
        (void)fli_add_rlx(&g->on_the_spot, 1);
        return filch_complete(receiver, tag, filch_int(value), FILCH_OK);
    }
    uint64_t bits = ((uint64_t)(who & 1) | (uint64_t)(who >> 1) << SLOTS) << at;
    (void)fli_add_rel(&of->asked, bits); /* PAIR slot.asked, release half; the bits are clear, so adding sets them */
    dawdle(&a->handler_prng);
    return FILCH_OK;
}

/* Returns true if both threads that must complete the yield have reached this function. If `patient`, waits for the
 * other thread, for a short time only, because that thread may not be running. */
static bool meet(slot *s, bool patient)
{
    uint32_t before = fli_add_rlx(&s->arrived, patient ? 1 : 17);
    if (before != 0 || !patient) return before == 1;
    for (uint32_t n = 0; n < 4000; n++) {
        if (fli_load_rlx(&s->arrived) != 1) return true;
        fli_thread_pause();
    }
    return fli_add_rlx(&s->arrived, 16) != 1;
}

/* Completes the yield. The thread that completes last checks the number of accepted completions. */
static void answer(game *g, slot *s, bool *patient)
{
    uint32_t expected = s->expected;
    /* After one unsuccessful wait this thread does not wait again in this round. */
    if (expected == 2) *patient = meet(s, *patient);
    bool      met = expected == 2 && *patient;
    filch_err err = filch_complete(s->receiver, s->receiver.tag, filch_int(s->value), FILCH_OK);
    if (err != FILCH_OK && err != FILCH_ESTALE) complain(g, filch_err_text(err));
    /* PAIR slot.given, both halves: the last thread sees the result of the other thread too. */
    uint32_t mine = err == FILCH_OK ? 1 : 256, given = fli_add_acqrel(&s->given, mine) + mine;
    if (given % 256 + given / 256 < expected) return;
    if (given % 256 != 1) complain(g, given % 256 == 0 ? "no answer was accepted" : "two answers were accepted");
    (void)fli_add_rlx(expected == 2 ? &g->doubled : &g->by_thread, 1);
    if (met) (void)fli_add_rlx(&g->met, 1);
    fli_store_rlx(&s->arrived, 0);
    fli_store_rel(&s->given, 0); /* PAIR slot.given, release half: the yielder process may use the slot again */
}

typedef struct answerer {
    game    *game;
    uint32_t who;
} answerer;

static bool answer_some(game *g, uint32_t who, fli_prng *prng)
{
    bool any = false, patient = true;
    for (uint32_t i = 0; i < YIELDERS; i++) {
        box     *of = &g->boxes[i];
        uint64_t mine = fli_load_acq(&of->asked) >> (who * SLOTS) & EVERY_SLOT; /* PAIR slot.asked, acquire half */
        for (; mine != 0; mine &= mine - 1) {
            uint32_t at = (uint32_t)__builtin_ctzll(mine);
            if (fli_prng_below(prng, 8) == 0) dawdle(prng);
            any = true;
            answer(g, &of->slots[at], &patient);
            /* PAIR slot.asked, release half: this thread has read the slot. */
            (void)fli_and_acqrel(&of->asked, ~(UINT64_C(1) << (who * SLOTS + at)));
        }
    }
    return any;
}

/* Binds each thread to its own CPU if there are two CPUs. On one CPU the threads would alternate and never meet. */
static void part(uint32_t who)
{
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < THREADS) return;
    CPU_ZERO(&mine);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && who-- == 0) CPU_SET(cpu, &mine);
    }
    /* the result is ignored: if the call fails, the system places the threads */
    (void)sched_setaffinity(0, sizeof mine, &mine);
}

static void answerer_run(void *arg)
{
    answerer *me = arg;
    fli_prng  prng;
    part(me->who);
    fli_prng_init(&prng, me->who);
    for (uint32_t misses = 0; !fli_load_rlx(&me->game->over);) {
        if (answer_some(me->game, me->who, &prng)) misses = 0;
        else if (++misses % 16 == 0) yield_slice();
        else fli_thread_pause();
    }
}

/* ---- one round ---- */

static void watch(game *g)
{
    stress_news news;
    while ((news = stress_watch_wait(&g->watch, progress(g))) != STRESS_OVER) {
        if (news == STRESS_STANDS_STILL) complain(g, "standing still: an answer was lost");
    }
}

static void spawn_yielders(game *g)
{
    for (uint32_t i = 0; i < YIELDERS; i++) {
        yielders[i] = (yielder){ .game = g, .who = i };
        fli_prng_init(&yielders[i].prng, i);
        fli_prng_init(&yielders[i].handler_prng, i + YIELDERS);
    }
    for (uint32_t i = 0; i < YIELDERS; i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_ptr(&yielders[i]);
        stress_must("spawn", filch_spawn(g->sched, &yielder_type, &opt, &g->pids[i]));
    }
}

static void check(game *g, uint64_t total)
{
    filch_stats stats = FILCH_STATS_INIT;
    stress_must("stats", filch_sched_stats(g->sched, &stats));
    if (stats.yields != total || stats.completions != total) complain(g, "the runtime counted differently");
    if (stats.late_completions != fli_load_rlx(&g->doubled)) complain(g, "a second answer was not counted as late");
}

static uint64_t play(game *g, int32_t workers, uint64_t yields)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    fli_thread      threads[THREADS];
    answerer        answerers[THREADS];
    uint64_t        begun_ns = fli_clock_ns();
    g->yields = yields / YIELDERS + 1;
    stress_must("registry", filch_registry_create(&registry));
    stress_must("registry", filch_registry_add(registry, COMMAND, handle, g));
    opt.workers = workers;
    opt.registry = registry;
    stress_watch_init(&g->watch, YIELDERS);
    stress_must("create", filch_sched_create(&g->sched, &opt));
    for (uint32_t i = 0; i < THREADS; i++) {
        answerers[i] = (answerer){ g, i };
        stress_must("thread", fli_thread_start(&threads[i], "answerer", answerer_run, &answerers[i]));
    }
    spawn_yielders(g);
    watch(g);
    fli_store_rlx(&g->over, true);
    for (uint32_t i = 0; i < THREADS; i++) fli_thread_join(&threads[i]);
    check(g, g->yields * YIELDERS);
    stress_must("stop", filch_sched_stop(g->sched, STRESS_LIMIT, NULL));
    filch_registry_destroy(registry);
    stress_watch_fini(&g->watch);
    printf("%" PRId32 " workers: %" PRIu64 " answered on the spot, %" PRIu64 " by a thread, %" PRIu64
           " by two, who met %" PRIu64 " times, %.1f s\n",
           workers, fli_load_rlx(&g->on_the_spot), fli_load_rlx(&g->by_thread), fli_load_rlx(&g->doubled),
           fli_load_rlx(&g->met), (double)(fli_clock_ns() - begun_ns) / 1e9);
    fflush(stdout);
    return g->yields * YIELDERS;
}

int main(int argc, char **argv)
{
    static game games[3];
    uint64_t    yields, total = 0, begun_ns = fli_clock_ns();
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_C(1) << 40, &yields)) {
        fprintf(stderr, "usage: completion_stress YIELDS\n");
        return 2;
    }
    for (int i = 0; i < 3; i++) total += play(&games[i], 1 << i, yields / 3);
    printf("completion: %" PRIu64 " yields, each answered exactly once (%.1f s)\n", total,
           (double)(fli_clock_ns() - begun_ns) / 1e9);
    return 0;
}
