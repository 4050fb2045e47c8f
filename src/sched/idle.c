/* idle.c - what workers do when they run dry.
 *
 * A worker that finds nothing *searches*: a few attempts with a pause, a few that give up the time slice, and, if it is
 * the only searcher, on for about as long as a sleep and a wake would cost. Then it sleeps until its bell rings. Where
 * calls come far apart searches are in vain, and shrink to nothing: they would cost a processor its rest and, on a system
 * that favours threads that ran little, the worker its quick start at the next call (measured without any runtime: 5 us to
 * wake a thread that runs 2 us each time, 13 us if it runs 20).
 *
 * No lost wake-up. The worker counts itself asleep, by a read-modify-write of `word`, and then looks at all queues
 * once more; a submitter queues its process, then does a read-modify-write of the same word and looks at the counts.
 * The two are ordered. If the submitter comes second, it sees a sleeper and no searcher, and wakes one. If the worker
 * comes second, it has acquired what the submitter queued, and its last look finds it. (PAIR idle.word)
 * A failed steal is not "nothing": fli_find_far says retry, and the worker goes round again.
 *
 * Handing over. While everybody sleeps there is nobody to find what is queued but the one who is woken for it. So a
 * submitter takes a sleeper from among them, under the lock, leaves the process with it, and rings its bell: no queue, no
 * search. The sleeper is raised to work, not to search, so nobody relies on it for anything else: who submits next finds
 * it awake and nobody searching, queues, and wakes another. The bell carries the process (PAIR parker.signal); should the one
 * who was woken not come to a processor for a while, whoever has searched in vain meanwhile takes it from him: both by a
 * swap, so one of them has it (PAIR idle.handoff). The watch keeps its alarm: it is chosen only when it is the only one.
 *
 * No herd. A submitter wakes nobody while somebody searches, and one at most. The last searcher that finds work wakes
 * the next if there is more, or if anything is queued and nobody watches. A worker that pushes to its own deque only
 * looks at the word (no read-modify-write): it will run the process itself, so nothing can be lost; it wakes somebody
 * only if it has more than it can do in the time a wake takes, or if nobody watches over it.
 *
 * The watch. While anybody works or a timer runs, one sleeper sets an alarm: for the next timer, or after 1 ms (then
 * 2, 4, 8) to see whether a worker is stuck in a long step with processes queued behind it, and to take those. When
 * nobody works and no timer runs there is no alarm: an idle runtime makes no system call at all. Alarms for timers keep
 * a gap between them when they are dense. A second sleeper stands in for the watch, one millisecond later
 * (then 2, 4, while it finds the watch in its place), because the watch itself may be called to work.
 *
 * Descriptors. While any is waited for, one sleeper, the *poller*, sleeps in the system's poll call with its alarm, and
 * is woken by its bell. Who falls asleep takes the place if it is free: so when everybody sleeps, it is taken. A poller
 * that leaves to work while nobody watches wakes another, who takes the place: a step may be long. Whoever
 * takes a worker from among the sleepers does so under the lock, and sees there which way it sleeps; the bell stays
 * rung until the poller itself has heard it. What is reported the poller delivers to its own deque: no other thread is
 * involved. Workers that work look at the descriptors when they look at the clock, and searchers each time.
 *
 * (One gap is left: a worker woken out of total silence that arms
 * a timer and then blocks inside a handler, which handlers must not do, keeps that timer waiting.)
 * Design: docs/design/parking.md.
 */
#include "sched/idle.h"

#include "base/assert.h"
#include "port/clock.h"
#include "sched/sched.h"

/* A sleep that is so many times as long as a search makes the next search shorter. */
#define LONG_PARK 4
#define SENTINEL_FIRST_NS UINT64_C(1000000)
#define SENTINEL_LAST_NS UINT64_C(8000000)
/* After an alarm, a worker that ran fewer steps than this goes back to sleep without a search. */
#define BRIEF_STEPS 1024
/* How long after the watch's alarm the stand-in's rings; twice as long each time it finds all well. The last stays well
 * below WATCH_LAST_NS, which is_watched counts on. */
#define BACKUP_FIRST_NS UINT64_C(1000000)
#define BACKUP_LAST_NS UINT64_C(4000000)

/* After several timers were handed out at once, no alarm for timers rings before so long. A sleep and a wake cost 11 to
 * 28 us of a processor: one for each timer would be more than there is when timers are dense. One that is alone is not
 * kept waiting. 100,000 timers a second are late by 136 us at the median. See docs/design/timers.md. */
#define TIMER_GAP_NS UINT64_C(150000)
/* Where more than so many were due at once, each sleep that is spared counts for more: a little longer. */
#define TIMERS_MANY 8
#define TIMER_GAP_MANY_NS UINT64_C(250000)

/* Waking costs the waker 11-17 us and the sleeper 33-58 us (measured on a 2-core machine): below this much queued work
 * it does not pay. */
#define WORTH_WAKE_NS UINT64_C(25000)

filch_err fli_idle_init(fli_idle *idle)
{
    fli_atomic_init(&idle->word, 0);
    fli_atomic_init(&idle->search_ns, FLI_NEVER);
    idle->parked = idle->sentinel = idle->backup = idle->poller = NULL;
    idle->sentinel_until_ns = FLI_NEVER;
    fli_atomic_init(&idle->timers_from_ns, 0);
    fli_atomic_init(&idle->backup_until_ns, FLI_NEVER);
    idle->sentinel_armed = false;
    fli_atomic_init(&idle->leaving, false);
    return fli_mutex_init(&idle->lock);
}

void fli_idle_fini(fli_idle *idle)
{
    fli_mutex_fini(&idle->lock);
}

uint32_t fli_idle_parked(fli_idle *idle)
{
    return fli_parked_in(fli_load_rlx(&idle->word));
}

static void list_parked_locked(fli_idle *idle, fli_worker *w)
{
    w->idle.is_parked = true;
    w->idle.prev = NULL;
    w->idle.next = idle->parked;
    if (idle->parked != NULL) idle->parked->idle.prev = w;
    idle->parked = w;
}

/* Makes `w` the watch. `guards`: its alarm also looks after the workers that work. */
static void set_sentinel_locked(fli_idle *idle, fli_worker *w, uint64_t until_ns, bool guards)
{
    if (guards != idle->sentinel_armed) {
        (void)fli_add_acqrel(&idle->word, guards ? FLI_SENTINEL : (uint64_t)0 - FLI_SENTINEL); /* PAIR idle.word */
    }
    idle->sentinel = w;
    idle->sentinel_until_ns = until_ns;
    idle->sentinel_armed = guards;
}

/* Makes `w` the stand-in of the watch, or nobody. */
static void set_backup_locked(fli_idle *idle, fli_worker *w, uint64_t until_ns)
{
    idle->backup = w;
    fli_store_rlx(&idle->backup_until_ns, until_ns);
}

/* Takes `w` from among the sleepers. `as`: FLI_SEARCHING_ONE, it searches now; 0, it works. */
static inline void unlist_parked_as_locked(fli_idle *idle, fli_worker *w, uint64_t as)
{
    if (w->idle.prev != NULL) w->idle.prev->idle.next = w->idle.next;
    else idle->parked = w->idle.next;
    if (w->idle.next != NULL) w->idle.next->idle.prev = w->idle.prev;
    w->idle.is_parked = false;
    if (idle->backup == w) set_backup_locked(idle, NULL, FLI_NEVER);
    if (idle->sentinel == w) set_sentinel_locked(idle, NULL, FLI_NEVER, false);
    (void)fli_add_acqrel(&idle->word, as - FLI_PARKED_ONE); /* PAIR idle.word */
}

static void unlist_parked_locked(fli_idle *idle, fli_worker *w)
{
    unlist_parked_as_locked(idle, w, FLI_SEARCHING_ONE);
}

/* Ends the sleep of `w`, which has been raised; `polls`: it was the poller then. Outside the lock. */
static void unpark(filch_sched *sched, fli_worker *w, bool polls)
{
    if (polls) fli_io_ring(&sched->io);
    else fli_unpark(&w->idle.parker);
}

/* Who is woken: the one that fell asleep last, but the watch and the poller after all others. */
static fli_worker *choose_locked(fli_idle *idle)
{
    for (fli_worker *w = idle->parked; w != NULL; w = w->idle.next) {
        if (w != idle->sentinel && w != idle->poller) return w;
    }
    fli_worker *w = idle->parked;
    return w != NULL && w == idle->sentinel && w->idle.next != NULL ? w->idle.next : w;
}

static bool all_parked(const filch_sched *sched)
{
    return fli_parked_in(fli_load_rlx(&sched->idle.word)) == sched->worker_count;
}

bool fli_idle_handoff(filch_sched *sched, fli_proc *p)
{
    fli_idle *idle = &sched->idle;
    if (!all_parked(sched)) return false; /* a hint; under the lock it is certain, for there the count changes */
    fli_mutex_lock(&idle->lock);
    fli_worker *w = all_parked(sched) ? choose_locked(idle) : NULL;
    bool        polls = w != NULL && w == idle->poller;
    if (w != NULL) {
        fli_store_rel(&w->idle.handoff, p); /* PAIR idle.handoff, release half: what led to it being ready */
        w->idle.has_handoff = true;
        unlist_parked_as_locked(idle, w, 0);
    }
    fli_mutex_unlock(&idle->lock);
    if (w == NULL) return false;
    unpark(sched, w, polls);
    FLI_TALLY(&sched->rt, fli_current_worker(&sched->rt), wakes, 1);
    return true;
}

/* Wakes one sleeper, unless somebody searches already. */
static void wake_one(filch_sched *sched)
{
    fli_idle   *idle = &sched->idle;
    fli_worker *w = NULL;
    fli_mutex_lock(&idle->lock);
    if (fli_searching_in(fli_load_rlx(&idle->word)) == 0) w = choose_locked(idle);
    bool polls = w != NULL && w == idle->poller;
    if (w != NULL) unlist_parked_locked(idle, w);
    fli_mutex_unlock(&idle->lock);
    if (w == NULL) return;
    unpark(sched, w, polls);
    FLI_TALLY(&sched->rt, fli_current_worker(&sched->rt), wakes, 1);
}

void fli_idle_notify_global(filch_sched *sched)
{
    /* PAIR idle.word, both halves: adds nothing, and orders us with every worker that is about to sleep. */
    uint64_t word = fli_add_acqrel(&sched->idle.word, 0);
    if (fli_parked_in(word) > 0 && fli_searching_in(word) == 0) wake_one(sched);
}

/* Will a sleeper look after us before long, by himself? */
static bool has_sentinel(const fli_worker *w, uint64_t word)
{
    return (word & FLI_SENTINEL) != 0 || fli_load_rlx(&w->sched->idle.backup_until_ns) < w->clock_ns + SENTINEL_LAST_NS;
}

/* Have we more than we can do in the time a wake takes? */
static bool is_worth_wake(fli_worker *w)
{
    uint32_t queued = fli_worker_queued(w);
    return queued >= 2 && queued * w->step_ns >= WORTH_WAKE_NS;
}

void fli_idle_notify_local(fli_worker *w)
{
    uint64_t word = fli_load_rlx(&w->sched->idle.word);
    if (FLI_LIKELY(fli_parked_in(word) == 0 || fli_searching_in(word) > 0)) return;
    if (has_sentinel(w, word) && !is_worth_wake(w)) return;
    wake_one(w->sched);
}

void fli_idle_note_timers(fli_worker *w, uint32_t timers)
{
    uint64_t gap_ns = timers > TIMERS_MANY ? TIMER_GAP_MANY_NS : TIMER_GAP_NS;
    if (timers > 1) fli_store_rlx(&w->sched->idle.timers_from_ns, fli_clock_after(w->clock_ns, gap_ns));
}

uint64_t fli_idle_timer_ns(filch_sched *sched)
{
    uint64_t next = fli_timers_next_ns(&sched->timers), from = fli_load_rlx(&sched->idle.timers_from_ns);
    return next > from ? next : from;
}

static void start_searching(fli_idle *idle)
{
    (void)fli_add_acqrel(&idle->word, FLI_SEARCHING_ONE); /* PAIR idle.word */
}

/* Timers run, and of those asleep nobody has set an alarm for them? */
static bool timers_unattended(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    if (fli_timers_next_ns(&sched->timers) == FLI_NEVER) return false;
    fli_mutex_lock(&idle->lock);
    bool deaf = idle->sentinel == NULL && idle->backup == NULL;
    fli_mutex_unlock(&idle->lock);
    return deaf;
}

/* Somebody begins to work, and nobody watches over him. Should somebody, though nothing is queued? In a step he hears of
 * no descriptor; and that the step takes too long, only others can say while it does. See docs/design/parking.md. */
static bool needs_sentinel(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    if (sched->opt.on_long_step != NULL && sched->opt.long_step_ns != 0) return true;
    if (!fli_io_has_fds(&sched->io)) return false;
    fli_mutex_lock(&idle->lock);
    bool deaf = idle->poller == NULL;
    fli_mutex_unlock(&idle->lock);
    return deaf;
}

/* Work was found. The last searcher to leave wakes the next one if it has seen more than it took. A single process in
 * a deque is left to its worker and the watch; where nobody watches, the next one comes for it too, or takes up the
 * watch. Otherwise it would wait for as long as its worker stays in a step; and so would timers and descriptors. */
static void stop_searching(fli_worker *w)
{
    filch_sched *sched = w->sched;
    uint64_t     word = fli_add_acqrel(&sched->idle.word, (uint64_t)0 - FLI_SEARCHING_ONE) - FLI_SEARCHING_ONE;
    w->idle.sentinel_ns = SENTINEL_FIRST_NS;
    w->idle.backup_ns = BACKUP_FIRST_NS;
    if (fli_searching_in(word) > 0 || fli_parked_in(word) == 0) return;
    bool watched = has_sentinel(w, word), more = fli_find_visible(sched, watched ? 2 : 1);
    /* What the alarm brought is ours alone: a few timers are not worth a second worker. */
    if (watched && w->idle.timeout_at != 0) more = is_worth_wake(w);
    if (!watched && needs_sentinel(sched)) more = true;
    if (more || fli_inject_count(&sched->global) > 0 || timers_unattended(sched)) wake_one(sched);
}

/* Until when `w`, counted asleep, may sleep: for ever, unless it takes up the watch. */
static uint64_t deadline_locked(fli_worker *w)
{
    filch_sched *sched = w->sched;
    fli_idle    *idle = &sched->idle;
    uint64_t     timer = fli_idle_timer_ns(sched), until = timer;
    bool         guards = fli_parked_in(fli_load_rlx(&idle->word)) < sched->worker_count;
    if (guards) {
        uint64_t look = fli_clock_after(fli_clock_ns(), w->idle.sentinel_ns);
        if (look < until) until = look;
    }
    /* Earlier than the watch would wake: take over. The old one finds out when its alarm rings. */
    if (idle->sentinel == NULL || idle->sentinel == w || until < idle->sentinel_until_ns) {
        if (idle->backup == w) set_backup_locked(idle, NULL, FLI_NEVER); /* nobody stands in for himself */
        if (until != FLI_NEVER) set_sentinel_locked(idle, w, until, guards);
        else if (idle->sentinel == w) set_sentinel_locked(idle, NULL, FLI_NEVER, false);
        return until;
    }
    if (timer != FLI_NEVER && (idle->backup == NULL || idle->backup == w)) {
        uint64_t later = fli_clock_after(idle->sentinel_until_ns, w->idle.backup_ns);
        set_backup_locked(idle, w, later);
        return later;
    }
    if (idle->backup == w) set_backup_locked(idle, NULL, FLI_NEVER);
    return FLI_NEVER;
}

/* The alarm of `w` has rung. False: there is nothing to do for it, it sleeps on. */
static bool heeds_timeout_locked(fli_worker *w)
{
    const fli_idle *idle = &w->sched->idle;
    /* The watch is another, and not overdue; or there is none, and alarm_locked will make it this one. */
    if (idle->sentinel == w || fli_clock_ns() >= fli_clock_after(idle->sentinel_until_ns, BACKUP_FIRST_NS)) return true;
    if (w->idle.backup_ns < BACKUP_LAST_NS) w->idle.backup_ns *= 2;
    return false;
}

typedef enum wake {
    UNPARKED, /* somebody has work for us, or there was some after all */
    TIMEOUT,  /* ours rang */
    LEAVE   /* everybody goes home */
} wake;

/* Sleeps as the poller: without the lock, in the system. True: its time is up. */
static bool wait_in_poller(fli_worker *w, uint64_t until_ns, fli_io_batch *batch)
{
    fli_idle *idle = &w->sched->idle;
    idle->poller = w;
    fli_mutex_unlock(&idle->lock);
    fli_io_collect(&w->sched->io, until_ns, batch, UINT32_MAX);
    fli_mutex_lock(&idle->lock);
    idle->poller = NULL;
    return w->idle.is_parked && batch->count == 0 && until_ns != FLI_NEVER && fli_clock_ns() >= until_ns;
}

/* Called: to work, or to go home. */
static wake reason_unparked(fli_idle *idle)
{
    return fli_load_rlx(&idle->leaving) ? LEAVE : UNPARKED;
}

/* Nobody watches over those who work: then `w`, about to sleep, will, as alarm_locked is to find. It says so with the same
 * change of the word that counts it asleep. A moment later would be too late: who pushes every 20 ns would see somebody
 * asleep and nobody on the watch in between, and wake him. */
static bool become_sentinel_locked(fli_worker *w)
{
    fli_idle *idle = &w->sched->idle;
    if (idle->sentinel != NULL || fli_parked_in(fli_load_rlx(&idle->word)) + 1 >= w->sched->worker_count) return false;
    idle->sentinel = w;
    idle->sentinel_armed = true;
    return true;
}

/* Leaves a node for the next message from outside: the one we gave back last, it is warm. A thread outside has no
 * magazine, and would take a cold one from the depot, under its lock. */
static void leave_spare_node(fli_worker *w)
{
    fli_runtime *rt = &w->sched->rt;
    if (w->local.nodes.count == 0 || fli_load_rlx(&rt->spare_node) != NULL) return;
    fli_event_node *node = w->local.nodes.objects[--w->local.nodes.count];
    node = fli_swap_acqrel(&rt->spare_node, node); /* PAIR runtime.spare_node, release half: the node is as we left it */
    if (node != NULL) fli_node_give(rt, &w->local, node); /* another worker was faster: it has his instead */
}

/* Sleeps until woken, until the alarm, or until there is something after all. Comes back searching, or hired.
 *
 * Whoever raises a sleeper that is not the poller rings its bell, once: who hears it has been raised and need not ask
 * under the lock. Whose alarm rings may have been raised at the same moment; then the ring is on its way, and is waited
 * for, or the next sleep would hear it. */
static wake park(fli_worker *w)
{
    filch_sched *sched = w->sched;
    fli_idle    *idle = &sched->idle;
    wake         why = UNPARKED;
    fli_io_batch batch = { .count = 0 };
    leave_spare_node(w);
    fli_mutex_lock(&idle->lock);
    list_parked_locked(idle, w);
    uint64_t guard = become_sentinel_locked(w) ? FLI_SENTINEL : 0;
    /* PAIR idle.word, both halves: from here on a submitter sees us asleep, or we see what it queued. */
    (void)fli_add_acqrel(&idle->word, FLI_PARKED_ONE - FLI_SEARCHING_ONE + guard);
    if (fli_inject_count(&sched->global) > 0 || fli_find_visible(sched, 2) || fli_load_rlx(&idle->leaving)) {
        unlist_parked_locked(idle, w);
        fli_mutex_unlock(&idle->lock);
        return reason_unparked(idle);
    }
    fli_count(&w->local.counters.sleeps, 1);
    if (fli_load_rlx(&sched->rt.phase) == FLI_CLOSING) fli_stop_nudge(sched);
    for (;;) {
        uint64_t until = deadline_locked(w);
        bool     late;
        if (fli_io_has_fds(&sched->io) && idle->poller == NULL) {
            late = wait_in_poller(w, until, &batch);
            /* Called by the world, if not by somebody else meanwhile. */
            if (batch.count > 0 && w->idle.is_parked) unlist_parked_locked(idle, w);
            if (!w->idle.is_parked) break;
        } else {
            fli_mutex_unlock(&idle->lock);
            if (fli_park(&w->idle.parker, until)) return reason_unparked(idle);
            fli_mutex_lock(&idle->lock);
            if (!w->idle.is_parked) {
                fli_mutex_unlock(&idle->lock);
                (void)fli_park(&w->idle.parker, FLI_NEVER);
                return reason_unparked(idle);
            }
            late = fli_clock_ns() >= until;
        }
        if (!late || !heeds_timeout_locked(w)) continue;
        unlist_parked_locked(idle, w);
        why = TIMEOUT;
        break;
    }
    if (fli_load_rlx(&idle->leaving)) why = LEAVE;
    fli_mutex_unlock(&idle->lock);
    if (batch.count == 0) return why;
    w->clock_ns = fli_now(&sched->rt);
    fli_worker_begin_poll_interval(w, batch.count);
    fli_io_deliver(&sched->io, &batch);
    return why;
}

static fli_proc *take_handoff(fli_worker *from)
{
    if (fli_load_rlx(&from->idle.handoff) == NULL) return NULL;
    return fli_swap_acqrel(&from->idle.handoff, NULL); /* PAIR idle.handoff, acquire half */
}

/* What was left with somebody who has been woken and has not come for it. */
static fli_proc *steal_handoff(fli_worker *w)
{
    fli_proc *p = NULL;
    for (uint32_t i = 0; p == NULL && i < w->sched->worker_count; i++) {
        if (w->sched->workers[i] != w) p = take_handoff(w->sched->workers[i]);
    }
    return p;
}

/* One attempt: timers, own deque, global queue, the others. */
static fli_proc *search_once(fli_worker *w, bool *retry)
{
    fli_worker_clock(w);
    fli_proc *p = fli_find_near(w);
    return p != NULL ? p : fli_find_far(w, false, retry);
}

/* The worker was called after so long a sleep. A search as long as that would have met the call awake: then search as
 * long as the options allow. If it was much longer, the search before it was in vain, and the next one is shorter. */
static void adapt_search(fli_worker *w, uint64_t parked_for_ns)
{
    if (!w->sched->learns) return;
    FLI_ATOMIC(uint64_t) *search = &w->sched->idle.search_ns;
    uint64_t most = w->sched->opt.search_ns, now = fli_load_rlx(search);
    if (parked_for_ns <= most) fli_store_rlx(search, most);
    else if (parked_for_ns / LONG_PARK > most) fli_store_rlx(search, now < most ? now / 4 : most / 4);
}

/* The ladder: tight, yielding, then alone on the search budget. Where searches are in vain, tight only, and
 * shorter each time. False: time to sleep. */
static bool keep_searching(fli_worker *w, uint32_t attempts, uint64_t began_ns)
{
    const filch_options *opt = &w->sched->opt;
    /* However patient the options: nobody keeps stop waiting. */
    if (fli_load_rlx(&w->sched->rt.phase) != FLI_OPEN) return false;
    uint64_t search_ns = fli_load_rlx(&w->sched->idle.search_ns);
    bool     in_vain = search_ns < opt->search_ns;
    if (in_vain && w->clock_ns - began_ns >= search_ns) return false;
    if (in_vain || attempts <= opt->spin_tight) {
        fli_thread_pause();
        return true;
    }
    if (attempts > (uint64_t)opt->spin_tight + opt->spin_yield) {
        bool alone = fli_searching_in(fli_load_rlx(&w->sched->idle.word)) == 1;
        if (!alone || w->clock_ns - began_ns > opt->search_ns) return false;
        fli_thread_pause();
        return true;
    }
    fli_thread_yield();
    return true;
}

/* The alarm woke us, and there was little to do: one look, and back to sleep. The next thing to happen is the next
 * alarm; searching until then would keep a processor busy for nothing. */
static bool is_brief(const fli_worker *w)
{
    return w->idle.timeout_at != 0 && fli_counters_steps(&w->local.counters) - w->idle.timeout_at < BRIEF_STEPS;
}

/* Called to work out of silence: has somebody watch over that, if need be. */
static void on_full_idle_wake(fli_worker *w)
{
    filch_sched *sched = w->sched;
    uint64_t     word = fli_idle_look(&sched->idle);
    if (fli_parked_in(word) > 0 && !has_sentinel(w, word) && needs_sentinel(sched)) wake_one(sched);
}

/* Woken with a process in hand: no search, and no look at the timers, before its step. NULL: somebody who searched was
 * faster, and we search too. */
static fli_proc *take_handoff_or_search(fli_worker *w, uint64_t parked_ns)
{
    w->idle.has_handoff = false;
    fli_proc *p = take_handoff(w);
    if (p == NULL) {
        start_searching(&w->sched->idle);
        return NULL;
    }
    w->clock_ns = fli_now(&w->sched->rt);
    adapt_search(w, w->clock_ns - parked_ns);
    w->idle.timeout_at = 0;
    w->idle.sentinel_ns = SENTINEL_FIRST_NS;
    w->idle.backup_ns = BACKUP_FIRST_NS;
    on_full_idle_wake(w);
    return p;
}

fli_proc *fli_idle_find(fli_worker *w)
{
    fli_idle *idle = &w->sched->idle;
    uint32_t  attempts = 0;
    bool      brief = is_brief(w);
    if (FLI_UNLIKELY(w->may_rerun && fli_throttle_steals_are_weak(w))) fli_throttle_pause(w);
    start_searching(idle);
    uint64_t began_ns = fli_clock_ns();
    for (;;) {
        bool      retry = false;
        fli_proc *p = search_once(w, &retry);
        if (p == NULL && (retry || (!brief && keep_searching(w, ++attempts, began_ns)))) continue;
        if (p == NULL) p = steal_handoff(w);
        if (p != NULL) {
            stop_searching(w);
            return p;
        }
        uint64_t parked_ns = w->clock_ns;
        wake why = park(w);
        if (w->idle.has_handoff && (p = take_handoff_or_search(w, parked_ns)) != NULL) return p;
        brief = why == TIMEOUT;
        w->idle.timeout_at = brief ? fli_counters_steps(&w->local.counters) : 0;
        if (!brief) w->idle.sentinel_ns = SENTINEL_FIRST_NS;
        else if (w->idle.sentinel_ns < SENTINEL_LAST_NS) w->idle.sentinel_ns *= 2;
        attempts = 0;
        began_ns = fli_clock_ns();
        if (why == UNPARKED) adapt_search(w, began_ns - parked_ns);
        if (why == LEAVE) {
            (void)fli_add_acqrel(&idle->word, (uint64_t)0 - FLI_SEARCHING_ONE); /* PAIR idle.word */
            return NULL;
        }
    }
}

void fli_idle_leave(filch_sched *sched)
{
    fli_idle *idle = &sched->idle;
    fli_mutex_lock(&idle->lock);
    fli_store_rlx(&idle->leaving, true);
    while (idle->parked != NULL) {
        fli_worker *w = idle->parked;
        unlist_parked_locked(idle, w);
        unpark(sched, w, w == idle->poller);
    }
    fli_mutex_unlock(&idle->lock);
}
