/* fixture.h - a scheduler under test, and actors: processes that run a function of the test (a play) and record what
 * they saw. Included by each program of this folder.
 *
 * The fixture counts every byte that the scheduler allocates, and checks that each block is freed with its size:
 * fixture_end fails if a block was not freed. Actors belong to the test, so the test can read them after their process
 * has ended. A play may run on a worker, where a test cannot assert: so the play records what it finds, and the test
 * checks that.
 */
#ifndef FILCH_TEST_FIXTURE_H
#define FILCH_TEST_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/patience.h"
#include "support/until.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

typedef struct fixture {
    filch_sched        *sched;
    bool                ticks; /* true: the scheduler has no workers, and the thread of the test runs everything */
    FLI_ATOMIC(int64_t) bytes, blocks;
    FLI_ATOMIC(bool)    miscounted; /* true: a block was freed with a wrong size, or written past its end */
    FLI_ATOMIC(bool)    deny;       /* all allocations fail */
} fixture;

/* Header in front of each allocated block. Its size is a multiple of the strictest alignment, so that the block after
 * it is aligned for every type. */
typedef union fixture_block {
    size_t      size;
    max_align_t align;
} fixture_block;

/* Bytes that fixture_alloc() puts behind each block. A changed byte shows that the block was written past its end. */
static const char fixture_fence[] = "outside of block";

static inline bool fixture_is_fenced(const fixture_block *block)
{
    return memcmp((const char *)(block + 1) + block->size, fixture_fence, sizeof fixture_fence) == 0;
}

static inline void *fixture_alloc(void *user, void *old, size_t old_size, size_t size)
{
    fixture       *w = user;
    fixture_block *block = old != NULL ? (fixture_block *)old - 1 : NULL;
    if (block != NULL && (block->size != old_size || !fixture_is_fenced(block))) fli_store_rlx(&w->miscounted, true);
    if (size == 0) {
        fli_add_rlx(&w->bytes, -(int64_t)old_size);
        fli_add_rlx(&w->blocks, -1);
        free(block);
        return NULL;
    }
    if (fli_load_rlx(&w->deny)) return NULL;
    block = realloc(block, sizeof *block + size + sizeof fixture_fence);
    if (block == NULL) return NULL;
    block->size = size;
    memcpy((char *)(block + 1) + size, fixture_fence, sizeof fixture_fence);
    fli_add_rlx(&w->bytes, (int64_t)size - (int64_t)old_size);
    if (old == NULL) fli_add_rlx(&w->blocks, 1);
    return block + 1;
}

/* Creates a scheduler with the given options. If `workers` is FILCH_NO_WORKERS, the test's thread runs everything. */
static inline void fixture_begin_with(fixture *w, int32_t workers, filch_options opt)
{
    *w = (fixture){ .ticks = workers == FILCH_NO_WORKERS };
    opt.workers = workers;
    opt.alloc = fixture_alloc;
    opt.alloc_user = w;
    ok(filch_sched_create(&w->sched, &opt));
}

static inline void fixture_begin(fixture *w, int32_t workers)
{
    fixture_begin_with(w, workers, (filch_options)FILCH_OPTIONS_INIT);
}

/* Stops the scheduler, expects the result `expected`, and checks that all memory was freed. */
static inline void fixture_end_as(fixture *w, uint64_t deadline_ns, filch_err expected)
{
    same(filch_sched_stop(w->sched, deadline_ns, NULL), expected);
    same(fli_load_rlx(&w->blocks), 0);
    same(fli_load_rlx(&w->bytes), 0);
    assert_false(fli_load_rlx(&w->miscounted));
}

static inline void fixture_end(fixture *w)
{
    fixture_end_as(w, FILCH_SECONDS(60), FILCH_OK);
}

/* Runs the scheduler until there is no work at present. Only for a scheduler without workers. */
static inline uint32_t fixture_tick(fixture *w)
{
    uint32_t ran = 0, sum = 0;
    do {
        ok(filch_tick(w->sched, 0, &ran));
        sum += ran;
    } while (ran > 0);
    return sum;
}

static inline void fixture_turn(fixture *w)
{
    if (w->ticks) (void)fixture_tick(w);
    yield_slice();
}

static inline filch_stats fixture_stats(fixture *w)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(w->sched, &stats));
    return stats;
}

#define FOR_EVER_NS FILCH_SECONDS(120)
#define STANDSTILL_NS FILCH_SECONDS(3) /* a test fails if no process is stepped for this time */

typedef struct fixture_wait {
    patience all, still;
    uint64_t steps; /* number of steps at the last check */
} fixture_wait;

static inline fixture_wait fixture_wait_begin(void)
{
    return (fixture_wait){ .all = patience_begin(FOR_EVER_NS),
                           .still = patience_begin(STANDSTILL_NS),
                           .steps = UINT64_MAX };
}

/* Returns true if FOR_EVER_NS has passed since the wait began, or if no process was stepped for STANDSTILL_NS. */
static inline bool fixture_wait_is_over(fixture *w, fixture_wait *wait)
{
    if (patience_is_over(&wait->still)) {
        uint64_t before = wait->steps;
        wait->steps = fixture_stats(w).steps;
        if (wait->steps == before) return true;
        wait->still = patience_begin(STANDSTILL_NS);
    }
    return patience_is_over(&wait->all);
}

/* Waits until a condition is true. If the scheduler has no workers, runs it while waiting. */
#define UNTIL(w, condition)                                                              \
    do {                                                                                 \
        fixture_wait until_wait = fixture_wait_begin();                                  \
        while (!(condition)) {                                                           \
            fixture_turn(w);                                                             \
            if (fixture_wait_is_over(w, &until_wait)) fail_msg("never: %s", #condition); \
        }                                                                                \
    } while (0)

static inline filch_info fixture_inspect(fixture *w, filch_pid pid)
{
    filch_info info = { .size = sizeof info };
    ok(filch_inspect(w->sched, pid, &info));
    return info;
}

static inline bool same_pid(filch_pid a, filch_pid b)
{
    return a.node == b.node && a.serial == b.serial;
}

static inline bool is_null_pid(filch_pid pid)
{
    return pid.node == 0 && pid.serial == 0;
}

/* Returns the number of rounds of a loop: FILCH_TEST_SCALE percent of `full` (default 100), at least `least`. */
static inline uint32_t fixture_scale(uint32_t full, uint32_t least)
{
    const char *percent = getenv("FILCH_TEST_SCALE");
    uint64_t    n = percent != NULL ? (uint64_t)full * strtoul(percent, NULL, 10) / 100 : full;
    return n > least ? (uint32_t)n : least;
}

/* ---- actors ---- */

/* What an actor records about an event. */
typedef struct sighting {
    int32_t    type;
    filch_err  error;
    uint64_t   tag;
    filch_pid  from;
    filch_kind kind;
    int64_t    number; /* result of filch_as_int() on the payload of the event */
    uint32_t   step;   /* number of the step that got the event, from 1 */
} sighting;

#define SIGHTINGS_MAX 64

typedef struct actor actor;
typedef filch_err (*play_fn)(actor *me, const filch_event *events, size_t count, filch_out *out);

struct actor {
    play_fn    play;
    void      *user; /* used by the play function only, as are `stage` and `note` */
    int64_t    stage;
    filch_err  note;
    filch_pid  pid;
    uint32_t   steps;
    size_t     count_max; /* maximum number of events in one step */
    sighting   seen[SIGHTINGS_MAX];
    size_t     seen_count; /* number of all events, including those that did not fit into `seen` */
    uint32_t   inits, closes;
    filch_err  exit_error;
    filch_data result; /* the result of the process; on_exit has taken a reference by filch_keep() */
    /* number of on_exit calls, written last: when it is 1, the test may read the fields above */
    FLI_ATOMIC(uint32_t) exits;
};

static inline filch_err actor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    actor *me = filch_as_ptr(args);
    if (method != NULL) return FILCH_EMETHOD;
    if (me == NULL) return FILCH_EINVAL;
    *(actor **)self = me;
    me->pid = filch_ctx_self(ctx);
    me->inits++;
    return FILCH_OK;
}

static inline filch_err actor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    actor *me = *(actor **)self;
    me->steps++;
    if (count > me->count_max) me->count_max = count;
    for (size_t i = 0; i < count; i++, me->seen_count++) {
        if (me->seen_count >= SIGHTINGS_MAX) continue;
        me->seen[me->seen_count] = (sighting){ .type = events[i].type,
                                               .error = events[i].error,
                                               .tag = events[i].tag,
                                               .from = events[i].from,
                                               .kind = filch_kind_of(&events[i].data),
                                               .number = filch_as_int(&events[i].data),
                                               .step = me->steps };
    }
    return me->play(me, events, count, out);
}

static inline void actor_close(void *self)
{
    (*(actor **)self)->closes++;
}

static inline void actor_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    actor *me = user;
    if (!same_pid(pid, me->pid)) error = FILCH_EUSER;
    me->exit_error = error;
    if (filch_keep(result, &me->result) != FILCH_OK) me->exit_error = FILCH_ENOMEM;
    fli_add_rel(&me->exits, 1);
}

static const filch_type actor_type = {
    .name = "actor", .size = sizeof(actor *), .init = actor_init, .step = actor_step, .close = actor_close
};

/* Starts the actor `me`, which runs `play`. `opt` are the options of the spawn: a mailbox limit, inherited values. */
static inline void actor_start_with(fixture *w, actor *me, play_fn play, filch_spawn_options opt)
{
    me->play = play;
    opt.args = filch_ptr(me);
    opt.on_exit = actor_exit;
    opt.on_exit_user = me;
    ok(filch_spawn(w->sched, &actor_type, &opt, NULL));
}

static inline void actor_start(fixture *w, actor *me, play_fn play)
{
    actor_start_with(w, me, play, (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT);
}

static inline bool is_over(actor *me)
{
    return fli_load_acq(&me->exits) > 0;
}

/* Waits for the end of `me`. Checks that it ended with `error` and was closed once. Drops its result if it was kept. */
static inline void actor_ends(fixture *w, actor *me, filch_err error)
{
    UNTIL(w, is_over(me));
    same(me->exit_error, error);
    same(me->inits, 1);
    same(me->closes, 1);
    same(fli_load_rlx(&me->exits), 1);
    filch_drop(&me->result);
}

static inline bool has_cancel(const filch_event *events, size_t count)
{
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL;
}

/* A play function that idles, and ends the process on a cancel. */
static inline filch_err play_idle(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

#endif
