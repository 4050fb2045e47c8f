/* completion_stress.c - completions racing the end of the step that asked: each yield is answered exactly once.
 *
 *     completion_stress YIELDS
 *
 * Processes yield a few commands at a time and then wait, or go idle. The handler decides by chance who answers:
 * itself, on the spot; one of two answering threads, which spin on the receivers they are handed; or both threads at
 * once, for the same receiver. So answers arrive before, while and after the worker lets go of the process. Of two
 * answers one must be accepted and the other told FILCH_ESTALE; each process ticks off its tags and must see every one
 * once.
 *
 * A receiver travels in a slot: the handler fills it and raises a flag for each thread that shall answer. When no slot
 * is free the handler answers itself, so nobody ever waits for one. An answer that is lost shows as standing still:
 * after LIMIT without one the program tells what it sees and ends.
 *
 * Exit: 0 all well; 1 an answer was lost, doubled or made up; 2 wrong usage, or the runtime refused.
 */
#include <errno.h>
#include <inttypes.h>
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

enum { ASKERS = 16, SLOTS = 8, AT_ONCE = 5, THREADS = 2, COMMAND = FILCH_CMD_USER };

#define LIMIT FILCH_SECONDS(60)

/* A receiver on its way to the answering threads. */
typedef struct slot {
    /* One bit for each thread that shall answer.  writes: the handler, by store; the threads take theirs by and.
     * PAIR slot.asked */
    alignas(FLI_LINE) FLI_ATOMIC(uint32_t) asked;
    /* Answers given: accepted ones count 1, stale ones 256.  writes: the threads.  PAIR slot.given */
    FLI_ATOMIC(uint32_t) given;
    /* Threads about to answer.  writes: the threads, by add; reset with `given`.  Relaxed: only to be there together */
    FLI_ATOMIC(uint32_t) here;
    uint32_t       expected; /* plain, as the rest: by PAIR slot.asked */
    filch_receiver receiver;
    int64_t        value;
} slot;

typedef struct asker {
    struct game *game;
    uint32_t     who;
    fli_prng     prng;         /* of its steps */
    fli_prng     handler_prng; /* of the handler, which runs on the same worker but not inside the step */
    uint32_t     missing;      /* a bit for each tag that is not answered yet */
    uint64_t     asked, answered;
} asker;

typedef struct game {
    uint64_t     yields; /* of each asker */
    filch_sched *sched;
    filch_pid    pids[ASKERS];
    slot         slots[ASKERS][SLOTS];
    fli_mutex    lock;
    fli_cond     ended;
    uint32_t     left; /* askers; under lock */
    FLI_ATOMIC(bool) over;
    /* Relaxed: for the watch and the report.  writes: each asker its own. */
    struct {
        alignas(FLI_LINE) FLI_ATOMIC(uint64_t) n;
    } answered[ASKERS];
    /* How answers came.  writes: by add, relaxed. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) on_the_spot;
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) by_thread;
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) doubled;
} game;

/* ---- telling ---- */

static uint64_t progress(game *g)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ASKERS; i++) sum += fli_load_rlx(&g->answered[i].n);
    return sum;
}

static const char *state_name(int32_t state)
{
    static const char *const names[] = { "gone", "ready", "running", "blocked", "idle", "complete" };
    return state >= 0 && state <= FILCH_STATE_COMPLETE ? names[state] : "?";
}

static void complain(game *g, const char *what)
{
    filch_stats stats = FILCH_STATS_INIT;
    (void)!filch_sched_stats(g->sched, &stats);
    fprintf(stderr,
            "\ncompletion: %s\n  %" PRIu64 " of %" PRIu64 " answered; workers %" PRIu32 ", asleep %" PRIu32
            ", yields %" PRIu64 ", completions %" PRIu64 ", late %" PRIu64 "\n ",
            what, progress(g), g->yields * ASKERS, stats.workers, stats.asleep, stats.yields, stats.completions,
            stats.late_completions);
    for (uint32_t i = 0; i < ASKERS; i++) {
        filch_info info = { .size = sizeof info };
        (void)!filch_inspect(g->sched, g->pids[i], &info);
        fprintf(stderr, " %s:%" PRIu64, state_name(info.state), fli_load_rlx(&g->answered[i].n));
    }
    fprintf(stderr, "\n");
    _exit(1);
}

static void must(const char *what, filch_err err)
{
    if (err == FILCH_OK) return;
    fprintf(stderr, "\ncompletion: %s: %s\n", what, filch_err_text(err));
    _exit(2);
}

/* ---- those who ask ---- */

static filch_err asker_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(asker **)self = filch_as_ptr(args);
    return FILCH_OK;
}

/* What the command carries and the answer must bring back. */
static int64_t value_of(const asker *a, uint64_t number)
{
    return (int64_t)(number * ASKERS + a->who);
}

static void take(asker *a, const filch_event *event)
{
    game *g = a->game;
    if (event->type != FILCH_EVENT_YIELD) complain(g, "an event that nobody caused");
    uint32_t bit = UINT32_C(1) << event->tag;
    if (event->tag >= AT_ONCE || (a->missing & bit) == 0) complain(g, "a yield was answered twice");
    if (event->error != FILCH_OK) complain(g, "an answer with an error that nobody gave");
    uint64_t number = (uint64_t)filch_as_int(&event->data) / ASKERS;
    if (filch_as_int(&event->data) != value_of(a, number) || number >= a->asked || number + AT_ONCE < a->asked) {
        complain(g, "an answer to another yield");
    }
    a->missing &= ~bit;
    a->answered++;
    fli_store_rlx(&g->answered[a->who].n, a->answered);
}

static void leave(game *g)
{
    fli_mutex_lock(&g->lock);
    if (--g->left == 0) fli_cond_signal(&g->ended);
    fli_mutex_unlock(&g->lock);
}

static filch_err asker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    asker *a = *(asker **)self;
    game  *g = a->game;
    for (size_t i = 0; i < count; i++) take(a, &events[i]);
    if (a->answered == g->yields) {
        leave(g);
        return filch_done(out, filch_none());
    }
    if (a->missing == 0) {
        uint32_t n = 1 + fli_prng_below(&a->prng, AT_ONCE);
        for (uint32_t tag = 0; tag < n && a->asked < g->yields; tag++) {
            must("yield", filch_yield(out, COMMAND, tag, filch_int(value_of(a, a->asked++))));
            a->missing |= UINT32_C(1) << tag;
        }
    }
    return fli_prng_below(&a->prng, 4) == 0 ? filch_idle(out) : filch_wait(out);
}

static const filch_type asker_type = {
    .name = "asker", .size = sizeof(asker *), .init = asker_init, .step = asker_step
};

/* ---- those who answer ---- */

static asker askers[ASKERS];

static void dawdle(fli_prng *prng)
{
    for (uint32_t n = fli_prng_below(prng, UINT32_C(1) << fli_prng_below(prng, 6)); n > 0; n--) fli_thread_pause();
}

/* The first free slot of this asker, filled; NULL if there is none. */
static slot *fill(game *g, const asker *a, filch_receiver receiver, int64_t value)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        slot *s = &g->slots[a->who][i];
        /* PAIR slot.asked and PAIR slot.given, acquire halves: the threads have read it for the last time. */
        if (fli_load_acq(&s->asked) != 0 || fli_load_acq(&s->given) != 0) continue;
        s->receiver = receiver;
        s->value = value;
        return s;
    }
    return NULL;
}

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    game    *g = user;
    int64_t  value = filch_as_int(&command->data);
    asker   *a = &askers[value % ASKERS];
    uint32_t who = fli_prng_below(&a->handler_prng, 1 << THREADS); /* nobody: on the spot */
    slot    *s = who != 0 ? fill(g, a, receiver, value) : NULL;
    if (s == NULL) {
        if (who != 0) fli_thread_yield(); /* the threads are behind: lend them our CPU */
        (void)fli_add_rlx(&g->on_the_spot, 1);
        return filch_complete(receiver, tag, filch_int(value), FILCH_OK);
    }
    s->expected = who == 3 ? 2 : 1;
    fli_store_rel(&s->asked, who); /* PAIR slot.asked, release half */
    dawdle(&a->handler_prng);
    return FILCH_OK;
}

/* Two that shall answer at once wait for each other, but not for long: the other one may not be running. */
static void meet(slot *s)
{
    (void)fli_add_rlx(&s->here, 1);
    for (uint32_t n = 0; n < 500 && fli_load_rlx(&s->here) < 2; n++) fli_thread_pause();
}

/* Answers, and checks the sum when it was the last of those asked. */
static void answer(game *g, slot *s)
{
    uint32_t expected = s->expected;
    if (expected == 2) meet(s);
    filch_err err = filch_complete(s->receiver, s->receiver.tag, filch_int(s->value), FILCH_OK);
    if (err != FILCH_OK && err != FILCH_ESTALE) complain(g, filch_err_text(err));
    /* PAIR slot.given, both halves: whoever comes last has the other's answer, too. */
    uint32_t mine = err == FILCH_OK ? 1 : 256, given = fli_add_acqrel(&s->given, mine) + mine;
    if (given % 256 + given / 256 < expected) return;
    if (given % 256 != 1) complain(g, given % 256 == 0 ? "no answer was accepted" : "two answers were accepted");
    (void)fli_add_rlx(expected == 2 ? &g->doubled : &g->by_thread, 1);
    fli_store_rlx(&s->here, 0);
    fli_store_rel(&s->given, 0); /* PAIR slot.given, release half: free again */
}

typedef struct answerer {
    game    *game;
    uint32_t bit;
} answerer;

static bool answer_some(game *g, uint32_t bit, fli_prng *prng)
{
    bool any = false;
    for (uint32_t i = 0; i < ASKERS * SLOTS; i++) {
        slot *s = &g->slots[i / SLOTS][i % SLOTS];
        if ((fli_load_acq(&s->asked) & bit) == 0) continue; /* PAIR slot.asked, acquire half */
        if (fli_prng_below(prng, 8) == 0) dawdle(prng);
        any = true;
        answer(g, s);
        (void)fli_and_acqrel(&s->asked, ~bit); /* PAIR slot.asked, release half: not ours any more */
    }
    return any;
}

static void answerer_run(void *arg)
{
    answerer *me = arg;
    fli_prng  prng;
    fli_prng_init(&prng, me->bit);
    for (uint32_t misses = 0; !fli_load_rlx(&me->game->over);) {
        if (answer_some(me->game, me->bit, &prng)) misses = 0;
        else if (++misses % 16 == 0) fli_thread_yield();
        else fli_thread_pause();
    }
}

/* ---- one round ---- */

static void watch(game *g)
{
    uint64_t before = UINT64_MAX, until = 0;
    fli_mutex_lock(&g->lock);
    while (g->left > 0) {
        uint64_t seen = progress(g);
        if (seen != before) until = fli_clock_after(fli_clock_ns(), LIMIT);
        else if (fli_clock_ns() >= until) complain(g, "standing still: an answer was lost");
        before = seen;
        (void)fli_cond_wait_until(&g->ended, &g->lock, until);
    }
    fli_mutex_unlock(&g->lock);
}

static void spawn_askers(game *g)
{
    for (uint32_t i = 0; i < ASKERS; i++) {
        askers[i] = (asker){ .game = g, .who = i };
        fli_prng_init(&askers[i].prng, i);
        fli_prng_init(&askers[i].handler_prng, i + ASKERS);
    }
    for (uint32_t i = 0; i < ASKERS; i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_ptr(&askers[i]);
        must("spawn", filch_spawn(g->sched, &asker_type, &opt, &g->pids[i]));
    }
}

static void check(game *g, uint64_t total)
{
    filch_stats stats = FILCH_STATS_INIT;
    must("stats", filch_sched_stats(g->sched, &stats));
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
    g->yields = yields / ASKERS + 1;
    g->left = ASKERS;
    must("registry", filch_registry_create(&registry));
    must("registry", filch_registry_add(registry, COMMAND, handle, g));
    opt.workers = workers;
    opt.registry = registry;
    must("lock", fli_mutex_init(&g->lock));
    must("condition", fli_cond_init(&g->ended));
    must("create", filch_sched_create(&g->sched, &opt));
    for (uint32_t i = 0; i < THREADS; i++) {
        answerers[i] = (answerer){ g, UINT32_C(1) << i };
        must("thread", fli_thread_start(&threads[i], "answerer", answerer_run, &answerers[i]));
    }
    spawn_askers(g);
    watch(g);
    fli_store_rlx(&g->over, true);
    for (uint32_t i = 0; i < THREADS; i++) fli_thread_join(&threads[i]);
    check(g, g->yields * ASKERS);
    must("stop", filch_sched_stop(g->sched, LIMIT, NULL));
    filch_registry_destroy(registry);
    fli_cond_fini(&g->ended);
    fli_mutex_fini(&g->lock);
    printf("%" PRId32 " workers: %" PRIu64 " answered on the spot, %" PRIu64 " by a thread, %" PRIu64
           " by two at once, %.1f s\n",
           workers, fli_load_rlx(&g->on_the_spot), fli_load_rlx(&g->by_thread), fli_load_rlx(&g->doubled),
           (double)(fli_clock_ns() - begun_ns) / 1e9);
    fflush(stdout);
    return g->yields * ASKERS;
}

static bool parse(const char *text, uint64_t max, uint64_t *out)
{
    char *rest;
    errno = 0;
    unsigned long long value = strtoull(text, &rest, 10);
    if (errno != 0 || rest == text || *rest != '\0' || value < 1 || value > max) return false;
    *out = value;
    return true;
}

int main(int argc, char **argv)
{
    static game games[3];
    uint64_t    yields, total = 0, begun_ns = fli_clock_ns();
    if (argc != 2 || !parse(argv[1], UINT64_C(1) << 40, &yields)) {
        fprintf(stderr, "usage: completion_stress YIELDS\n");
        return 2;
    }
    for (int i = 0; i < 3; i++) total += play(&games[i], 1 << i, yields / 3);
    printf("completion: %" PRIu64 " yields, each answered exactly once (%.1f s)\n", total,
           (double)(fli_clock_ns() - begun_ns) / 1e9);
    return 0;
}
