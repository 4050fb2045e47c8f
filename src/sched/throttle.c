/* throttle.c - when workers talk more than they work, one of them takes a nap.
 *
 * A message to a process on the same worker costs some 25 ns; to one on another worker 100 to 200, because its lines
 * have to come over. Where steps are that short, a second worker can make everything slower: 100 producers and one
 * consumer ran at 25 ns a message on one worker and at 75 on two. So each worker counts the messages that came to it
 * from other workers, and the processes that were there before. Each is a debt of twice what it costs, about, and time
 * pays it off. Who is deep in debt spends more than half of the time on what comes from others: it hands its queue to
 * them and naps, and processes that talk to each other meet on one worker. A cost, not a row of readings: what has backlogged
 * up while a process was out of its turn comes all at once, and then nothing for many readings.
 *
 * Who only sends is not in cost, and yet it may do harm: a mailbox on another worker that it fills faster than that worker
 * empties it. What has backlogged up there comes over line by line, one message in the time that it takes to send eight, so
 * each look into the mailbox finds more and takes longer than the last; and if the system has taken that worker's processor
 * away, nothing stops the sender. So a worker that does nothing but send to processes that are ready already, while all
 * together receive less than they send, naps, too. Those it sends to are elsewhere: here they would have had their turns.
 *
 * The same for a thief that gets little out of it: what it steals are single short steps that lead to nothing more (a
 * process that spawns many that end at once: 77 ns each on one worker, 160 on two). Where they lead to nothing at all, the
 * thief has run what it stole and not one step more, fewer of them tell, and sooner: a tree that grows always leads
 * to more (docs/design/worker-throttling.md).
 *
 * It is an experiment each time. What all workers do per nanosecond is measured before the nap, with everybody awake, and
 * during it. Done is what was received: the events that steps were given. What was sent is not: with two workers a
 * mailbox grows as long as one only sends and the other only receives, and that is no gain but a cost, too. If less is
 * lost than a quarter of what a worker should be worth, the nap was good, and the next one, whosever it is, is longer: 1,
 * 4, 16, 64 ms. If not, the next is a short one again, and there is none for 4 ms, or for twice as long each time this
 * happens again, up to 64. After a nap during which half as much again was done, less need be seen: if with everybody
 * awake it is as little as before, that is known after a quarter of the time; and after two such naps the next is 16 times
 * as long. docs/design/worker-throttling.md has the figures.
 *
 * Nobody needs to know. A napping worker counts neither as asleep nor as searching: to all others it looks like one that
 * is busy and has an empty queue, so nothing depends on it and no wake-up can be lost to it. There is always one that
 * does not nap. The napper looks up after 1 ms, 2 more, and then every 4: it is back at once when a worker has not
 * finished a step since the last look, or when everything is to stop. If all others go to sleep meanwhile, these looks, 17
 * at most, are what is left of the work; after them nothing stirs.
 */
#include "sched/throttle.h"

#include "port/clock.h"
#include "sched/sched.h"

#define REMOTE_NS UINT64_C(200) /* what one message from another worker costs, about */
#define LOOK_FIRST_NS UINT64_C(1000000)
#define LOOK_LAST_NS UINT64_C(4000000)
#define PAUSE_FIRST_NS UINT64_C(1000000)
#define PAUSE_FACTOR 4
#define PAUSE_LAST_NS UINT64_C(64000000)
#define BACKOFF_FIRST_NS UINT64_C(4000000)
#define BACKOFF_LAST_NS UINT64_C(64000000)

/* What was done before a nap is counted from not longer ago than this, and at most so often: it means to look at all
 * workers. */
#define MARK_NS UINT64_C(1000000)
/* A debt does not grow beyond this: whoever is done talking is out of it before long. */
#define REMOTE_COST_MAX_NS UINT64_C(1000000)

/* A nap during which half as much again was done leaves little doubt, and two of them none. One is not enough: the first
 * comes when everything begins, and that is slow for other reasons. */
#define MUCH_FASTER(less, more) (3 * (less) <= 2 * (more))
#define PAUSE_FACTOR_PROVEN 16

#define SHORT_STEP_NS UINT64_C(500)

/* How deep a debt is too deep, how long everybody must have been awake before a nap (the second: if the last one was clear),
 * how many messages are a pile (2048 are drained in some 0.3 ms), and steals in a row (the second: if the last nap was
 * good). How many barren ones, and how long awake then. The small build naps at every chance. */
#ifdef FLI_SMALL
#define REMOTE_COST_HIGH_NS UINT64_C(0)
#define AWAKE_NS UINT64_C(0)
#define AWAKE_PROVEN_NS UINT64_C(0)
#define BACKLOG_MIN 1
#define WEAK_STEALS 1
#define WEAK_STEALS_KNOWN 1
#define DEAD_STEALS 1
#define AWAKE_DEAD_NS UINT64_C(0)
#else
#define REMOTE_COST_HIGH_NS UINT64_C(200000)
#define AWAKE_NS UINT64_C(400000)
#define AWAKE_PROVEN_NS UINT64_C(100000)
#define BACKLOG_MIN 2048
#define WEAK_STEALS 128
#define WEAK_STEALS_KNOWN 32
#define DEAD_STEALS 32
#define AWAKE_DEAD_NS UINT64_C(100000)
#endif

filch_err fli_throttle_init(fli_throttle *throttle)
{
    fli_atomic_init(&throttle->paused, 0);
    fli_atomic_init(&throttle->pause_ns, PAUSE_FIRST_NS);
    fli_atomic_init(&throttle->backoff_ns, BACKOFF_FIRST_NS);
    fli_atomic_init(&throttle->backoff_until_ns, 0);
    fli_atomic_init(&throttle->ended_ns, 0);
    fli_atomic_init(&throttle->ended_done, 0);
    fli_atomic_init(&throttle->ended_sent, 0);
    fli_atomic_init(&throttle->proven_rate, 0);
    filch_err err = fli_mutex_init(&throttle->lock);
    if (err != FILCH_OK) return err;
    err = fli_cond_init(&throttle->resume);
    if (err != FILCH_OK) fli_mutex_fini(&throttle->lock);
    return err;
}

void fli_throttle_fini(fli_throttle *throttle)
{
    fli_cond_fini(&throttle->resume);
    fli_mutex_fini(&throttle->lock);
}

/* What all workers have done so far: events that steps were given, and steps without any. */
static uint64_t done_by_all(filch_sched *sched)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_worker *w = sched->workers[i];
        done += fli_counters_steps(&w->local.counters) + fli_load_rlx(&w->throttle.batched);
    }
    return done;
}

static uint64_t sent_by_all(filch_sched *sched)
{
    uint64_t sent = 0;
    for (uint32_t i = 0; i < sched->worker_count; i++) sent += fli_load_rlx(&sched->workers[i]->local.counters.sent);
    return sent;
}

static void measure(fli_worker *w, fli_throttle_mark *mark)
{
    mark->ns = w->clock_ns;
    mark->done = done_by_all(w->sched);
    mark->sent = sent_by_all(w->sched);
}

/* Per millisecond, since the mark. */
static uint64_t rate_since(fli_worker *w, const fli_throttle_mark *mark)
{
    uint64_t passed = w->clock_ns - mark->ns;
    return passed > 0 ? (done_by_all(w->sched) - mark->done) * 1000000 / passed : 0;
}

static fli_throttle_mark mark_of_last_end(fli_throttle *throttle, uint64_t ns)
{
    return (fli_throttle_mark){ .ns = ns, .done = fli_load_rlx(&throttle->ended_done), .sent = fli_load_rlx(&throttle->ended_sent) };
}

/* The mark is at the end of the last nap at the earliest; and if we are free to set it, not long ago. */
static void renew_mark(fli_worker *w, bool may_reset)
{
    fli_throttle      *throttle = &w->sched->throttle;
    fli_throttle_mark *mark = &w->throttle.before;
    uint64_t       ended_ns = fli_load_acq(&throttle->ended_ns); /* PAIR throttle.ended, acquire half */
    if (mark->ns < ended_ns) *mark = mark_of_last_end(throttle, ended_ns);
    if (may_reset && w->clock_ns > mark->ns + MARK_NS) measure(w, mark);
}

/* Is there something to compare a nap with? The last one may have made it plain: if now, everybody awake, clearly less
 * is done than during it, it need not be watched for long. */
static bool has_comparison(fli_worker *w)
{
    uint64_t since_ns = w->throttle.before.ns, proven = fli_load_rlx(&w->sched->throttle.proven_rate);
    if (w->clock_ns >= since_ns + AWAKE_NS) return true;
    return w->clock_ns >= since_ns + AWAKE_PROVEN_NS && proven > 0 && MUCH_FASTER(rate_since(w, &w->throttle.before), proven);
}

static bool is_backing_off(fli_worker *w)
{
    return w->clock_ns < fli_load_rlx(&w->sched->throttle.backoff_until_ns);
}

/* Has the worker done nothing of late but send to processes that were ready already, and pile up what nobody receives? They
 * are elsewhere, or they would have had their turns here. */
static bool is_building_backlog(fli_worker *w)
{
    fli_worker_throttle *t = &w->throttle;
    uint64_t    steps = fli_counters_steps(&w->local.counters);
    if (t->backlog_steps != steps - t->backlog_checked_at) t->backlog_sends = 0;
    t->backlog_steps = 0;
    t->backlog_checked_at = steps;
    if (FLI_LIKELY(t->backlog_sends < BACKLOG_MIN)) return false;
    return sent_by_all(w->sched) - t->before.sent > done_by_all(w->sched) - t->before.done + BACKLOG_MIN;
}

bool fli_throttle_is_due(fli_worker *w)
{
    fli_worker_throttle *t = &w->throttle;
    uint64_t    cost = t->remote_cost_ns + w->local.remote_events * REMOTE_NS * 2, passed = w->clock_ns - t->decayed_at_ns;
    bool        backlog = is_building_backlog(w);
    w->local.remote_events = 0;
    t->decayed_at_ns = w->clock_ns;
    if (FLI_LIKELY(cost <= passed)) {
        t->remote_cost_ns = 0;
        renew_mark(w, !backlog);
        return FLI_UNLIKELY(backlog) && !is_backing_off(w);
    }
    t->remote_cost_ns = cost - passed < REMOTE_COST_MAX_NS ? cost - passed : REMOTE_COST_MAX_NS;
    renew_mark(w, false);
    return (backlog || (t->remote_cost_ns > REMOTE_COST_HIGH_NS && has_comparison(w))) && !is_backing_off(w);
}

void fli_throttle_note_steal(fli_worker *w, uint32_t count)
{
    w->throttle.last_steal = count;
    w->throttle.last_steal_at = fli_counters_steps(&w->local.counters);
}

bool fli_throttle_steals_are_weak(fli_worker *w)
{
    fli_worker_throttle *t = &w->throttle;
    if (t->last_steal == 0) return false;
    uint64_t steps = fli_counters_steps(&w->local.counters) - t->last_steal_at;
    bool     weak = steps <= 2 * (uint64_t)t->last_steal && w->step_ns < SHORT_STEP_NS;
    bool     dead = weak && steps <= t->last_steal;
    t->last_steal = 0;
    w->clock_ns = fli_clock_ns();
    t->weak_steals = weak ? t->weak_steals + 1 : 0;
    t->dead_steals = dead ? t->dead_steals + 1 : 0;
    renew_mark(w, t->weak_steals <= 1);
    bool again = fli_load_rlx(&w->sched->throttle.pause_ns) > PAUSE_FIRST_NS;
    bool enough = t->dead_steals > DEAD_STEALS ? w->clock_ns >= t->before.ns + AWAKE_DEAD_NS
                                            : t->weak_steals > (again ? WEAK_STEALS_KNOWN : WEAK_STEALS) && has_comparison(w);
    return enough && !is_backing_off(w);
}

/* A place among the nappers, if somebody stays up. */
static bool throttle_enter(filch_sched *sched)
{
    /* PAIR throttle.paused, both halves: two that try at once see each other. */
    if (fli_add_acqrel(&sched->throttle.paused, 1) + 1 < sched->worker_count) return true;
    (void)fli_sub_acqrel(&sched->throttle.paused, 1);
    return false;
}

/* Everything that is queued here, to the others. The newest, whom we would have run next, is who was just sent to: he
 * goes first, the others must not send on without him. */
static void spill_to_global(fli_worker *w)
{
    fli_proc *newest = fli_lifo_slot_take(&w->lifo_slot), *p;
    if (newest == NULL) newest = fli_deque_pop(&w->deque);
    while ((p = fli_deque_pop(&w->deque)) != NULL) fli_inject_put(&w->sched->global, p);
    if (newest != NULL) fli_inject_put_first(&w->sched->global, newest);
    fli_idle_notify_global(w->sched);
}

/* Has a worker finished no step since the last look? Remembers what it saw. */
static bool is_any_worker_stuck(fli_worker *w)
{
    bool stuck = false;
    for (uint32_t i = 0; i < w->sched->worker_count; i++) {
        fli_worker *other = w->sched->workers[i];
        uint64_t    steps = fli_counters_steps(&other->local.counters);
        if (other != w && steps == w->victim_progress[i].steps && fli_load_rlx(&other->status.serial) != 0) stuck = true;
        w->victim_progress[i] = (fli_victim_progress){ .steps = steps, .since_ns = w->clock_ns };
    }
    return stuck;
}

/* Waits until then, or until everything is to stop, or somebody is stuck. True: it was the time. */
static bool wait_until(fli_worker *w, uint64_t until_ns)
{
    filch_sched *sched = w->sched;
    uint64_t     every_ns = LOOK_FIRST_NS;
    (void)is_any_worker_stuck(w);
    while (w->clock_ns < until_ns) {
        uint64_t look_ns = fli_clock_after(w->clock_ns, every_ns);
        if (every_ns < LOOK_LAST_NS) every_ns *= 2;
        fli_mutex_lock(&sched->throttle.lock);
        bool over = fli_load_rlx(&sched->rt.phase) != FLI_OPEN;
        if (!over) (void)fli_cond_wait_until(&sched->throttle.resume, &sched->throttle.lock, look_ns < until_ns ? look_ns : until_ns);
        fli_mutex_unlock(&sched->throttle.lock);
        w->clock_ns = fli_clock_ns();
        if (over || is_any_worker_stuck(w)) return false;
    }
    return true;
}

/* None for a while, and for longer the next time. */
static void back_off(fli_worker *w)
{
    fli_throttle *throttle = &w->sched->throttle;
    uint64_t  backoff_ns = fli_load_rlx(&throttle->backoff_ns);
    fli_store_rlx(&throttle->backoff_until_ns, w->clock_ns + backoff_ns);
    if (backoff_ns < BACKOFF_LAST_NS) fli_store_rlx(&throttle->backoff_ns, backoff_ns * 2);
}

bool fli_throttle_helped(uint32_t workers, uint64_t before, uint64_t during)
{
    return during >= before - before / (4 * workers);
}

static void learn(fli_worker *w, uint64_t pause_ns, uint64_t before, uint64_t during)
{
    fli_throttle *throttle = &w->sched->throttle;
    bool      proven = MUCH_FASTER(before, during), again = proven && fli_load_rlx(&throttle->proven_rate) > 0;
    fli_store_rlx(&throttle->proven_rate, proven ? during : 0);
    if (fli_throttle_helped(w->sched->worker_count, before, during)) {
        uint64_t next_ns = pause_ns * (again ? PAUSE_FACTOR_PROVEN : PAUSE_FACTOR);
        fli_store_rlx(&throttle->pause_ns, next_ns < PAUSE_LAST_NS ? next_ns : PAUSE_LAST_NS);
        fli_store_rlx(&throttle->backoff_ns, BACKOFF_FIRST_NS);
    } else {
        fli_store_rlx(&throttle->pause_ns, PAUSE_FIRST_NS);
        back_off(w);
    }
}

/* For whoever measures next: everybody who was awake before it is again. */
static void throttle_exit(fli_worker *w)
{
    fli_throttle *throttle = &w->sched->throttle;
    fli_store_rlx(&throttle->ended_sent, sent_by_all(w->sched));
    fli_store_rlx(&throttle->ended_done, done_by_all(w->sched));
    fli_store_rel(&throttle->ended_ns, w->clock_ns); /* PAIR throttle.ended, release half: with the count that belongs to it */
    (void)fli_sub_acqrel(&throttle->paused, 1);    /* PAIR throttle.paused */
}

void fli_throttle_pause(fli_worker *w)
{
    filch_sched *sched = w->sched;
    bool backlogged = w->throttle.backlog_sends >= BACKLOG_MIN;
    w->throttle.remote_cost_ns = 0;
    w->throttle.weak_steals = 0;
    w->throttle.dead_steals = 0;
    w->throttle.backlog_sends = 0;
    if (!throttle_enter(sched)) return;
    uint64_t      before = rate_since(w, &w->throttle.before), pause_ns = fli_load_rlx(&sched->throttle.pause_ns);
    fli_throttle_mark began;
    spill_to_global(w);
    measure(w, &began);
    /* One that was broken off says nothing about the next, but there is somebody now to look after; unless all we would do
     * for him is to send him more. */
    if (wait_until(w, w->clock_ns + pause_ns)) learn(w, pause_ns, before, rate_since(w, &began));
    else if (!backlogged) back_off(w);
    throttle_exit(w);
}

void fli_throttle_end_all(filch_sched *sched)
{
    fli_mutex_lock(&sched->throttle.lock);
    fli_cond_broadcast(&sched->throttle.resume);
    fli_mutex_unlock(&sched->throttle.lock);
}
