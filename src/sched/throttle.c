/* throttle.c - pauses a worker while messages between workers cost more than the additional worker gains.
 *
 * A message to a process on the same worker costs about 15 ns; to a process on another worker it costs 100 to 200 ns,
 * because its cache lines move. Where steps are that short, a second worker can make everything slower: 100 producers
 * and one consumer took 25 ns a message on one worker, and 75 ns on two. There are five reasons for a pause:
 *
 *   remote events   Each message from another worker, and each process that ran last on another worker, adds twice its
 *                   cost to remote_cost_ns; time that passes is subtracted. A worker with a high value spends more than
 *                   half of its time on remote events. It pauses, so that the processes that exchange messages run on
 *                   one worker. (A leaky bucket and not a count per clock reading: a backlog of events is delivered all
 *                   at once, and then none come for many readings.)
 *   backlog         A worker that only sends has no remote events, but may fill a mailbox on another worker faster than
 *                   that worker empties it. The cache lines of the backlog move one by one: receiving a message takes
 *                   as long as eight sends. So each step of the receiver finds more messages and takes longer.
 *                   Condition: all recent steps of the worker sent only to receivers that were runnable already, and
 *                   all workers together receive less than they send. (The receivers are elsewhere: receivers on this
 *                   worker would have run in between.)
 *   contention      The first CAS of one send in four failed: other workers send to the same mailboxes. Eight workers
 *                   that send to one process take fifty times as long for a message as one (docs/design/scale.md). A
 *                   step that sends many messages to such a mailbox takes milliseconds, so filch_should_yield returns 1
 *                   once many sends of the step have been contended.
 *   weak steals     A thief steals single processes whose short steps make no further process ready (example: a process
 *                   spawns many that end at once; 77 ns each on one worker, 160 ns on two)
 *   dead steals     A weak steal is dead if it led to no steps except steps of the stolen processes. Fewer dead steals
 *                   are enough for a pause, because a growing tree of processes always leads to more steps
 *                   (docs/log/2026-11-what-a-second-worker-costs.md).
 *
 * A pause decides how many workers are used. The worker that has a reason starts the pause, and leads it. All other
 * workers join at their next clock reading or when they run dry, until only `active` workers are awake (must_join). At
 * first `active` is 1. There is one pause at a time: `until_ns`, the end of the pause, is set by a CAS. A worker that
 * joins sleeps in its parker until that time, or until the leader ends the pause early. In a pause for contention the
 * leader first waits until the others have joined, JOIN_NS at most, and the length of the pause counts from then on.
 *
 * Each pause is an experiment. The leader compares the rate of all workers before the pause, with no worker paused,
 * with that during the pause, after SETTLE_NS. The rate counts the events that steps received, not the messages sent,
 * because messages that pile up in a mailbox are no gain. If the rate falls by at most an eighth, the pause helped, and
 * the next pause is longer: 1, 4, 16, 64 ms. If not, the next pause is 1 ms again and leaves four times as many workers
 * awake (1 again, if that is more than half of them), and no worker pauses for 4 ms; that time is doubled with each
 * pause in a row that did not help, up to 64 ms (back-off). After a pause with at least 1.5 times the rate, the next
 * decision needs a quarter of the time; after two such pauses in a row, the next pause is 16 times as long.
 * docs/log/2026-11-judging-naps.md and docs/log/2026-11-piles.md have the figures.
 *
 * No other thread depends on a paused worker. Other workers fire its timers when they are due (fli_timers_set_away). It
 * counts neither as parked nor as searching: to others it is a busy worker with an empty queue, so no wake-up can be
 * lost by waking it. At least one worker is not paused; it may be parked, and is then unparked for what the pausing
 * workers moved to the global queue. The leader checks the others after 1 ms, after 2 ms more, then every 4 ms. It ends
 * the pause of all workers if another worker is still in the step in which it was at the last check (in a pause for
 * contention: and has not sent a message since), or if a stop has begun. If all others park meanwhile, these checks are
 * the only activity of the scheduler: 17 at most, and 20 more in a pause for contention.
 *
 * Design: docs/design/worker-throttling.md.
 */
#include "sched/throttle.h"

#include "base/assert.h"
#include "clock/timers.h"
#include "port/clock.h"
#include "proc/runtime.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"

#define REMOTE_NS UINT64_C(200) /* approximate cost of one message from another worker */
#define LOOK_FIRST_NS UINT64_C(1000000)
#define LOOK_LAST_NS UINT64_C(4000000)
#define PAUSE_FIRST_NS UINT64_C(1000000)
#define PAUSE_FACTOR 4
#define PAUSE_LAST_NS UINT64_C(64000000)
#define BACKOFF_FIRST_NS UINT64_C(4000000)
#define BACKOFF_LAST_NS UINT64_C(64000000)

/* Shortest time between two marks (fli_throttle_mark). Marks are not taken more often, because a mark reads the
 * counters of all workers. */
#define MARK_NS UINT64_C(1000000)
/* Upper limit of remote_cost_ns. Without further remote events, remote_cost_ns falls from this limit to 0 in a time of
 * this length. */
#define REMOTE_COST_MAX_NS UINT64_C(1000000)

/* True if `more` is at least 1.5 times `less`. If the rate during a pause is at least 1.5 times the rate before it,
 * twice in a row, this proves that pauses help. One such pause is no proof: the first pause comes when a program
 * begins, and a beginning program is slow for other reasons. */
#define MUCH_FASTER(less, more) (3 * (less) <= 2 * (more))
#define PAUSE_FACTOR_PROVEN 16
/* The measurement of the rate during a pause starts this time after the beginning of the pause: at first, queues and
 * cache lines move to the workers that stay awake. */
#define SETTLE_NS UINT64_C(500000)
/* In a pause for contention, the leader waits at most this time until the other workers have joined. A step that sends
 * a thousand messages to a contended mailbox takes milliseconds, and its worker joins after the step. */
#define JOIN_NS UINT64_C(20000000)

#define SHORT_STEP_NS UINT64_C(500)
/* A worker sends to contended mailboxes if the first CAS of one send in CONTENDED_SHARE fails. */
#define CONTENDED_SHARE 4
/* After a pause that did not help, the number of workers that stay awake in the next pause is multiplied by this
 * factor. */
#define ACTIVE_FACTOR 4

/* REMOTE_COST_HIGH_NS   if remote_cost_ns is higher, the worker should pause
 * AWAKE_NS              a pause begins only after a time of this length in which no worker was paused: the rate in
 *                       this time is compared with the rate during the pause
 * AWAKE_PROVEN_NS       replaces AWAKE_NS if the last pause raised the rate much: see has_comparison()
 * AWAKE_DEAD_NS         replaces AWAKE_NS if the worker pauses because of dead steals
 * BACKLOG_MIN           number of sends to runnable receivers, and of messages sent but not received, that make a
 *                       backlog; 2048 messages are received in about 0.3 ms
 * WEAK_STEALS           weak steals in a row that cause no pause yet (see the head of this file)
 * WEAK_STEALS_KNOWN     replaces WEAK_STEALS if the last pause helped
 * DEAD_STEALS           dead steals in a row that cause no pause yet
 * With FLI_SMALL, the limits are so low that workers pause whenever they may. */
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
    fli_atomic_init(&throttle->until_ns, 0);
    fli_atomic_init(&throttle->active, 1);
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

/* Returns how many events the steps of all workers have received so far; a step without an event counts as one. */
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

/* Returns how many events per millisecond all workers together have received since `mark` was taken. */
static uint64_t rate_since(fli_worker *w, const fli_throttle_mark *mark)
{
    uint64_t passed = w->clock_ns - mark->ns;
    return passed > 0 ? (done_by_all(w->sched) - mark->done) * 1000000 / passed : 0;
}

static fli_throttle_mark mark_of_last_end(fli_throttle *throttle, uint64_t ns)
{
    return (fli_throttle_mark){ .ns = ns,
                                .done = fli_load_rlx(&throttle->ended_done),
                                .sent = fli_load_rlx(&throttle->ended_sent) };
}

/* Updates w->throttle.before, the mark from which the rate without a pause is measured. If the mark is older than the
 * end of the last pause, moves it to that end. With `may_reset`, moves a mark that is older than MARK_NS to the
 * present. */
static void renew_mark(fli_worker *w, bool may_reset)
{
    fli_throttle      *throttle = &w->sched->throttle;
    fli_throttle_mark *mark = &w->throttle.before;
    uint64_t           ended_ns = fli_load_acq(&throttle->ended_ns); /* PAIR throttle.ended, acquire half */
    if (mark->ns < ended_ns) *mark = mark_of_last_end(throttle, ended_ns);
    if (may_reset && w->clock_ns > mark->ns + MARK_NS) measure(w, mark);
}

/* Returns true if the time since the mark `before` is long enough for a comparison with a pause. A shorter time is
 * enough if two conditions hold: the rate during the last pause was at least 1.5 times the rate before it, and at least
 * 1.5 times the present rate. */
static bool has_comparison(fli_worker *w)
{
    uint64_t since_ns = w->throttle.before.ns, proven = fli_load_rlx(&w->sched->throttle.proven_rate);
    if (w->clock_ns >= since_ns + AWAKE_NS) return true;
    return w->clock_ns >= since_ns + AWAKE_PROVEN_NS && proven > 0 &&
           MUCH_FASTER(rate_since(w, &w->throttle.before), proven);
}

static bool is_backing_off(fli_worker *w)
{
    return w->clock_ns < fli_load_rlx(&w->sched->throttle.backoff_until_ns);
}

/* Returns true if the last steps of the worker sent only to receivers that were already runnable, and all workers
 * together send more messages than they receive (BACKLOG_MIN). */
static bool is_building_backlog(fli_worker *w)
{
    fli_worker_throttle *t = &w->throttle;
    uint64_t             steps = fli_counters_steps(&w->local.counters);
    if (t->backlog_steps != steps - t->backlog_checked_at) t->backlog_sends = 0;
    t->backlog_steps = 0;
    t->backlog_checked_at = steps;
    if (FLI_LIKELY(t->backlog_sends < BACKLOG_MIN)) return false;
    return sent_by_all(w->sched) - t->before.sent > done_by_all(w->sched) - t->before.done + BACKLOG_MIN;
}

bool fli_throttle_is_pausing(fli_worker *w)
{
    return w->clock_ns < fli_load_rlx(&w->sched->throttle.until_ns);
}

/* Returns true if more than throttle.active workers are awake. */
static bool are_too_many_awake(filch_sched *sched)
{
    uint32_t idle = fli_idle_parked(&sched->idle) + fli_load_rlx(&sched->throttle.paused);
    return idle + fli_load_rlx(&sched->throttle.active) < sched->worker_count;
}

/* Returns true if a pause is under way, and more than throttle.active workers are awake. */
static bool must_join(fli_worker *w)
{
    return FLI_UNLIKELY(fli_throttle_is_pausing(w)) && are_too_many_awake(w->sched);
}

void fli_throttle_forget_contended(fli_worker *w)
{
    w->local.contended_sends = 0;
    w->local.send_limit = w->sched->opt.send_budget;
}

/* Returns true if many sends of the worker since its last clock reading were contended: other workers sent to the same
 * mailboxes at the same time. Begins a new count. */
static bool is_contended(fli_worker *w)
{
    uint64_t sent = fli_load_rlx(&w->local.counters.sent), passed = sent - w->throttle.sent;
    uint32_t count = w->local.contended_sends;
    bool     contended = count >= FLI_CONTENDED_MIN && count > passed / CONTENDED_SHARE;
    w->throttle.sent = sent;
    fli_throttle_forget_contended(w);
    w->throttle.contended = contended;
    return contended;
}

bool fli_throttle_is_due(fli_worker *w)
{
    fli_worker_throttle *t = &w->throttle;
    uint64_t cost = t->remote_cost_ns + w->local.remote_events * REMOTE_NS * 2, passed = w->clock_ns - t->decayed_at_ns;
    if (FLI_UNLIKELY(must_join(w))) return true;
    bool backlog = is_building_backlog(w), contended = is_contended(w);
    backlog = backlog || contended;
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
    if (must_join(w)) return true;
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
    bool enough = t->dead_steals > DEAD_STEALS
                      ? w->clock_ns >= t->before.ns + AWAKE_DEAD_NS
                      : t->weak_steals > (again ? WEAK_STEALS_KNOWN : WEAK_STEALS) && has_comparison(w);
    return enough && !is_backing_off(w);
}

/* Counts this worker as paused, and returns true. If all other workers are paused, does not count it, and returns
 * false. */
static bool throttle_enter(filch_sched *sched)
{
    /* PAIR throttle.paused, both halves: if two workers begin to pause at the same time, the second one sees the count
     * of the first. */
    if (fli_add_acqrel(&sched->throttle.paused, 1) + 1 < sched->worker_count) return true;
    (void)fli_sub_acqrel(&sched->throttle.paused, 1);
    return false;
}

/* Moves all processes queued at `w` to the global queue. The newest process, which `w` would have run next, goes to the
 * front of that queue: it has just got messages, and must receive them before its senders send more. */
static void spill_to_global(fli_worker *w)
{
    fli_proc *newest = fli_lifo_slot_take(&w->lifo_slot), *p;
    if (newest == NULL) newest = fli_deque_pop(&w->deque);
    while ((p = fli_deque_pop(&w->deque)) != NULL) fli_inject_put(&w->sched->global, p);
    if (newest != NULL) fli_inject_put_first(&w->sched->global, newest);
    fli_idle_notify_global(w->sched);
}

/* Returns true if another worker is still in the step in which it was at the last call. Stores the progress of all
 * workers for the next call of this function. If contended sends are the reason of the pause, a worker that has sent a
 * message since the last call is not stuck: long steps are what the pause shall prevent. */
static bool is_any_worker_stuck(fli_worker *w)
{
    bool stuck = false;
    for (uint32_t i = 0; i < w->sched->worker_count; i++) {
        fli_worker *other = w->sched->workers[i];
        uint64_t    progress = fli_counters_steps(&other->local.counters);
        if (w->throttle.contended) progress += fli_load_rlx(&other->local.counters.sent);
        if (other != w && progress == w->victim_progress[i].steps && fli_load_rlx(&other->status.serial) != 0)
            stuck = true;
        w->victim_progress[i] = (fli_victim_progress){ .steps = progress, .since_ns = w->clock_ns };
    }
    /* The next call must come at least LOOK_FIRST_NS after this one, even if this thread had to wait for a CPU. */
    w->clock_ns = fli_clock_ns();
    return stuck;
}

/* Sleeps until `until_ns`. Returns false if a stop has begun. */
static bool sleep_until(fli_worker *w, uint64_t until_ns)
{
    filch_sched *sched = w->sched;
    bool         over = false;
    while (!over && w->clock_ns < until_ns) {
        fli_mutex_lock(&sched->throttle.lock);
        over = fli_load_rlx(&sched->rt.phase) != FLI_OPEN;
        if (!over) (void)fli_cond_wait_until(&sched->throttle.resume, &sched->throttle.lock, until_ns);
        fli_mutex_unlock(&sched->throttle.lock);
        w->clock_ns = fli_clock_ns();
    }
    return !over;
}

/* Waits until the other workers have joined the pause, JOIN_NS at most. Returns false if the wait ended early: a stop
 * has begun, or a worker is stuck in a step. */
static bool wait_for_others(fli_worker *w)
{
    uint64_t limit_ns = fli_clock_after(w->clock_ns, JOIN_NS);
    (void)is_any_worker_stuck(w);
    while (are_too_many_awake(w->sched) && w->clock_ns < limit_ns) {
        if (!sleep_until(w, fli_clock_after(w->clock_ns, LOOK_FIRST_NS)) || is_any_worker_stuck(w)) return false;
    }
    return true;
}

/* Waits until `until_ns`, and takes the mark `began` after SETTLE_NS. Returns false if the wait ended early: a stop has
 * begun, or a worker is stuck in a step. */
static bool wait_until(fli_worker *w, uint64_t until_ns, fli_throttle_mark *began)
{
    (void)is_any_worker_stuck(w);
    uint64_t look_ns = fli_clock_after(w->clock_ns, LOOK_FIRST_NS), every_ns = LOOK_FIRST_NS;
    if (!sleep_until(w, fli_clock_after(w->clock_ns, SETTLE_NS))) return false;
    measure(w, began);
    while (w->clock_ns < until_ns) {
        if (!sleep_until(w, look_ns < until_ns ? look_ns : until_ns)) return false;
        /* Does not check for stuck workers at the end of the pause: this check could come right after a check that was
         * late, and report a worker as stuck that is not. */
        if (w->clock_ns >= until_ns) break;
        if (is_any_worker_stuck(w)) return false;
        if (every_ns < LOOK_LAST_NS) every_ns *= 2;
        look_ns = fli_clock_after(w->clock_ns, every_ns);
    }
    return true;
}

/* Disables pauses for backoff_ns, and doubles backoff_ns for the next time (exponential back-off). */
static void back_off(fli_worker *w)
{
    fli_throttle *throttle = &w->sched->throttle;
    uint64_t      backoff_ns = fli_load_rlx(&throttle->backoff_ns);
    fli_store_rlx(&throttle->backoff_until_ns, w->clock_ns + backoff_ns);
    if (backoff_ns < BACKOFF_LAST_NS) fli_store_rlx(&throttle->backoff_ns, backoff_ns * 2);
}

bool fli_throttle_helped(uint64_t before, uint64_t during)
{
    return during >= before - before / 8;
}

/* Sets the length of the next pause. After a pause that did not help, also sets how many workers stay awake in the next
 * pause, and starts a back-off. `before` and `during`: events per millisecond before and during this pause. */
static void learn(fli_worker *w, uint64_t pause_ns, uint64_t before, uint64_t during)
{
    fli_throttle *throttle = &w->sched->throttle;
    bool          proven = MUCH_FASTER(before, during), again = proven && fli_load_rlx(&throttle->proven_rate) > 0;
    fli_store_rlx(&throttle->proven_rate, proven ? during : 0);
    if (fli_throttle_helped(before, during)) {
        uint64_t next_ns = pause_ns * (again ? PAUSE_FACTOR_PROVEN : PAUSE_FACTOR);
        fli_store_rlx(&throttle->pause_ns, next_ns < PAUSE_LAST_NS ? next_ns : PAUSE_LAST_NS);
        fli_store_rlx(&throttle->backoff_ns, BACKOFF_FIRST_NS);
    } else {
        uint32_t active = fli_load_rlx(&throttle->active) * ACTIVE_FACTOR;
        fli_store_rlx(&throttle->active, active <= w->sched->worker_count / 2 ? active : 1);
        fli_store_rlx(&throttle->pause_ns, PAUSE_FIRST_NS);
        back_off(w);
    }
}

/* Called at the end of a pause that `w` has led. Stores the time, and how many messages all workers have sent and
 * received so far. The rate before the next pause is measured from these values. */
static void throttle_exit(fli_worker *w)
{
    fli_throttle *throttle = &w->sched->throttle;
    fli_store_rlx(&throttle->ended_sent, sent_by_all(w->sched));
    fli_store_rlx(&throttle->ended_done, done_by_all(w->sched));
    fli_store_rel(&throttle->ended_ns, w->clock_ns); /* PAIR throttle.ended, release half: publishes both counts */
}

/* Sleeps until the end of the pause that another worker has started. `w` sleeps in its own parker, and is not in the
 * list of parked workers. If up to 63 workers slept on a condition variable instead, they would wait for its lock. */
static void follow(fli_worker *w, uint64_t until_ns)
{
    fli_throttle *throttle = &w->sched->throttle;
    spill_to_global(w);
    /* PAIR throttle.follows, both halves (RMWs): this worker sets `follows`, then checks that the pause goes on; a
     * thread that ends the pause sets until_ns to 0, then looks for workers with `follows`. So one of the two sees the
     * RMW of the other. */
    (void)fli_swap_acqrel(&w->throttle.follows, true);
    bool goes_on = fli_add_acqrel(&throttle->until_ns, 0) == until_ns;
    bool unparked = goes_on && fli_park(&w->idle.parker, until_ns);
    /* If another thread has cleared `follows`, it has unparked `w` or will do so. That unpark is consumed here, so that
     * it does not end the next park of `w`. */
    if (!unparked && !fli_swap_acqrel(&w->throttle.follows, false)) (void)fli_park(&w->idle.parker, FLI_NEVER);
    w->clock_ns = fli_clock_ns();
}

/* Unparks all workers that follow a pause. Called after until_ns has changed. Thread: any. */
static void unpark_followers(filch_sched *sched)
{
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_worker *w = sched->workers[i];
        if (fli_swap_acqrel(&w->throttle.follows, false)) fli_unpark(&w->idle.parker); /* PAIR throttle.follows */
    }
}

/* Ends for all workers the pause with the planned end `end_ns`. Does nothing if that pause is already over: until_ns
 * may then belong to a new pause of another leader. */
static void end_own_pause(filch_sched *sched, uint64_t end_ns)
{
    if (fli_cas_acqrel(&sched->throttle.until_ns, &end_ns, 0)) unpark_followers(sched); /* PAIR throttle.follows */
}

/* Leads a pause of `pause_ns` with the planned end `end_ns`, and judges it. All other workers join the pause, except
 * throttle.active of them. If contended sends are the reason of the pause, `pause_ns` begins when the other workers
 * have joined: until then, workers in long steps keep the mailboxes contended, and a rate measured then would say
 * nothing about the pause. */
static void lead(fli_worker *w, uint64_t pause_ns, uint64_t end_ns, bool backlogged)
{
    uint64_t          before = rate_since(w, &w->throttle.before);
    bool              contended = w->throttle.contended;
    fli_throttle_mark began;
    spill_to_global(w);
    /* If a pause ended early, its rate says nothing about the next pause. A back-off follows a pause that ended early,
     * so that the workers stay awake: if another worker is stuck in a step, they must run the processes queued at the
     * stuck worker. No back-off follows a pause that was for a backlog: awake workers would only send more messages to
     * the stuck worker. */
    bool whole = (!contended || wait_for_others(w)) && wait_until(w, w->clock_ns + pause_ns, &began);
    if (whole) learn(w, pause_ns, before, rate_since(w, &began));
    else if (!backlogged) back_off(w);
    /* If the pause ended early or was for contention, its planned end may not have come yet. */
    if (!whole || contended) end_own_pause(w->sched, end_ns);
    throttle_exit(w);
}

void fli_throttle_pause(fli_worker *w)
{
    filch_sched *sched = w->sched;
    bool         backlogged = w->throttle.backlog_sends >= BACKLOG_MIN;
    w->throttle.remote_cost_ns = 0;
    w->throttle.weak_steals = 0;
    w->throttle.dead_steals = 0;
    w->throttle.backlog_sends = 0;
    if (!throttle_enter(sched)) return;
    /* Until the end of the pause the workers that are awake fire the timers of `w` when they are due. */
    fli_timers_set_away(&sched->timers, w->local.index, true);
    uint64_t pause_ns = fli_load_rlx(&sched->throttle.pause_ns), until_ns = fli_load_rlx(&sched->throttle.until_ns);
    /* PAIR throttle.until, both halves: of two workers that start a pause at the same time, one leads it and the other
     * joins it. */
    uint64_t end_ns = w->clock_ns + pause_ns + (w->throttle.contended ? JOIN_NS : 0);
    if (w->clock_ns >= until_ns && fli_cas_acqrel(&sched->throttle.until_ns, &until_ns, end_ns))
        lead(w, pause_ns, end_ns, backlogged);
    else follow(w, until_ns);
    (void)is_contended(w); /* forgets the contended sends before the pause: they say nothing about the time after it */
    w->throttle.contended = false;
    fli_timers_set_away(&sched->timers, w->local.index, false);
    (void)fli_sub_acqrel(&sched->throttle.paused, 1); /* PAIR throttle.paused */
}

void fli_throttle_end_all(filch_sched *sched)
{
    fli_mutex_lock(&sched->throttle.lock);
    fli_cond_broadcast(&sched->throttle.resume);
    fli_mutex_unlock(&sched->throttle.lock);
    (void)fli_swap_acqrel(&sched->throttle.until_ns, 0); /* PAIR throttle.follows */
    unpark_followers(sched);
}
