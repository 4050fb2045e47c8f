/* talk.c - when workers talk more than they work, one of them takes a nap.
 *
 * A message to a process on the same worker costs some 25 ns; to one on another worker 100 to 200, because its lines
 * have to come over. Where steps are that short, a second worker can make everything slower: 100 producers and one
 * consumer ran at 25 ns a message on one worker and at 75 on two. So each worker counts the messages that came to it
 * from other workers, and the processes that were there before. Each is a debt of twice what it costs, about, and time
 * pays it off. Who is deep in debt spends more than half of the time on what comes from others: it hands its queue to
 * them and naps, and processes that talk to each other meet on one worker. A debt, not a row of readings: what has piled
 * up while a process was out of its turn comes all at once, and then nothing for many readings.
 *
 * Who only sends is not in debt, and yet it may do harm: a mailbox on another worker that it fills faster than that worker
 * empties it. What has piled up there comes over line by line, one message in the time that it takes to send eight, so
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
 * mailbox grows as long as one only sends and the other only receives, and that is no gain but a debt, too. If less is
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
#include "sched/talk.h"

#include "port/clock.h"
#include "sched/sched.h"

#define REMOTE_NS UINT64_C(200) /* what one message from another worker costs, about */
#define LOOK_FIRST_NS UINT64_C(1000000)
#define LOOK_LAST_NS UINT64_C(4000000)
#define NAP_FIRST_NS UINT64_C(1000000)
#define NAP_LONGER 4
#define NAP_LAST_NS UINT64_C(64000000)
#define PATIENCE_FIRST_NS UINT64_C(4000000)
#define PATIENCE_LAST_NS UINT64_C(64000000)

/* What was done before a nap is counted from not longer ago than this, and at most so often: it means to look at all
 * workers. */
#define MARK_NS UINT64_C(1000000)
/* A debt does not grow beyond this: whoever is done talking is out of it before long. */
#define DEBT_MAX_NS UINT64_C(1000000)

/* A nap during which half as much again was done leaves little doubt, and two of them none. One is not enough: the first
 * comes when everything begins, and that is slow for other reasons. */
#define CLEARLY(less, more) (3 * (less) <= 2 * (more))
#define NAP_CLEARLY_LONGER 16

#define SHORT_STEP_NS UINT64_C(500)

/* How deep a debt is too deep, how long everybody must have been awake before a nap (the second: if the last one was clear),
 * how many messages are a pile (2048 are drained in some 0.3 ms), and steals in a row (the second: if the last nap was
 * good). How many barren ones, and how long awake then. The small build naps at every chance. */
#ifdef FLI_SMALL
#define DEBT_DEEP_NS UINT64_C(0)
#define AWAKE_NS UINT64_C(0)
#define AWAKE_CLEAR_NS UINT64_C(0)
#define PILE 1
#define POOR_STEALS 1
#define POOR_STEALS_KNOWN 1
#define BARREN_STEALS 1
#define AWAKE_BARREN_NS UINT64_C(0)
#else
#define DEBT_DEEP_NS UINT64_C(200000)
#define AWAKE_NS UINT64_C(400000)
#define AWAKE_CLEAR_NS UINT64_C(100000)
#define PILE 2048
#define POOR_STEALS 128
#define POOR_STEALS_KNOWN 32
#define BARREN_STEALS 32
#define AWAKE_BARREN_NS UINT64_C(100000)
#endif

filch_err fli_talk_init(fli_talk *talk)
{
    fli_atomic_init(&talk->napping, 0);
    fli_atomic_init(&talk->nap_ns, NAP_FIRST_NS);
    fli_atomic_init(&talk->patience_ns, PATIENCE_FIRST_NS);
    fli_atomic_init(&talk->patient_until_ns, 0);
    fli_atomic_init(&talk->over_ns, 0);
    fli_atomic_init(&talk->over_done, 0);
    fli_atomic_init(&talk->over_sent, 0);
    fli_atomic_init(&talk->clear_rate, 0);
    filch_err err = fli_mutex_init(&talk->lock);
    if (err != FILCH_OK) return err;
    err = fli_cond_init(&talk->rouse);
    if (err != FILCH_OK) fli_mutex_fini(&talk->lock);
    return err;
}

void fli_talk_fini(fli_talk *talk)
{
    fli_cond_fini(&talk->rouse);
    fli_mutex_fini(&talk->lock);
}

/* What all workers have done so far: events that steps were given, and steps without any. */
static uint64_t done_by_all(filch_sched *sched)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_worker *w = sched->workers[i];
        done += fli_counters_steps(&w->local.counters) + fli_load_rlx(&w->talk.batched);
    }
    return done;
}

static uint64_t sent_by_all(filch_sched *sched)
{
    uint64_t sent = 0;
    for (uint32_t i = 0; i < sched->worker_count; i++) sent += fli_load_rlx(&sched->workers[i]->local.counters.sent);
    return sent;
}

static void measure(fli_worker *w, fli_talk_mark *mark)
{
    mark->ns = w->clock_ns;
    mark->done = done_by_all(w->sched);
    mark->sent = sent_by_all(w->sched);
}

/* Per millisecond, since the mark. */
static uint64_t rate_since(fli_worker *w, const fli_talk_mark *mark)
{
    uint64_t passed = w->clock_ns - mark->ns;
    return passed > 0 ? (done_by_all(w->sched) - mark->done) * 1000000 / passed : 0;
}

static fli_talk_mark last_over(fli_talk *talk, uint64_t ns)
{
    return (fli_talk_mark){ .ns = ns, .done = fli_load_rlx(&talk->over_done), .sent = fli_load_rlx(&talk->over_sent) };
}

/* The mark is at the end of the last nap at the earliest; and if we are free to set it, not long ago. */
static void renew(fli_worker *w, bool is_free)
{
    fli_talk      *talk = &w->sched->talk;
    fli_talk_mark *mark = &w->talk.before;
    uint64_t       over_ns = fli_load_acq(&talk->over_ns); /* PAIR talk.over, acquire half */
    if (mark->ns < over_ns) *mark = last_over(talk, over_ns);
    if (is_free && w->clock_ns > mark->ns + MARK_NS) measure(w, mark);
}

/* Is there something to compare a nap with? The last one may have made it plain: if now, everybody awake, clearly less
 * is done than during it, it need not be watched for long. */
static bool is_known(fli_worker *w)
{
    uint64_t since_ns = w->talk.before.ns, clear = fli_load_rlx(&w->sched->talk.clear_rate);
    if (w->clock_ns >= since_ns + AWAKE_NS) return true;
    return w->clock_ns >= since_ns + AWAKE_CLEAR_NS && clear > 0 && CLEARLY(rate_since(w, &w->talk.before), clear);
}

static bool is_patient(fli_worker *w)
{
    return w->clock_ns < fli_load_rlx(&w->sched->talk.patient_until_ns);
}

/* Has the worker done nothing of late but send to processes that were ready already, and pile up what nobody receives? They
 * are elsewhere, or they would have had their turns here. */
static bool is_piling_up(fli_worker *w)
{
    fli_talker *t = &w->talk;
    uint64_t    steps = fli_counters_steps(&w->local.counters);
    if (t->unheard_steps != steps - t->asked_at) t->unheard = 0;
    t->unheard_steps = 0;
    t->asked_at = steps;
    if (FLI_LIKELY(t->unheard < PILE)) return false;
    return sent_by_all(w->sched) - t->before.sent > done_by_all(w->sched) - t->before.done + PILE;
}

bool fli_talk_is_too_much(fli_worker *w)
{
    fli_talker *t = &w->talk;
    uint64_t    debt = t->debt_ns + w->local.heard * REMOTE_NS * 2, passed = w->clock_ns - t->paid_ns;
    bool        piles = is_piling_up(w);
    w->local.heard = 0;
    t->paid_ns = w->clock_ns;
    if (FLI_LIKELY(debt <= passed)) {
        t->debt_ns = 0;
        renew(w, !piles);
        return FLI_UNLIKELY(piles) && !is_patient(w);
    }
    t->debt_ns = debt - passed < DEBT_MAX_NS ? debt - passed : DEBT_MAX_NS;
    renew(w, false);
    return (piles || (t->debt_ns > DEBT_DEEP_NS && is_known(w))) && !is_patient(w);
}

void fli_talk_stole(fli_worker *w, uint32_t count)
{
    w->talk.loot = count;
    w->talk.loot_at = fli_counters_steps(&w->local.counters);
}

bool fli_talk_is_poor(fli_worker *w)
{
    fli_talker *t = &w->talk;
    if (t->loot == 0) return false;
    uint64_t steps = fli_counters_steps(&w->local.counters) - t->loot_at;
    bool     poor = steps <= 2 * (uint64_t)t->loot && w->step_ns < SHORT_STEP_NS;
    bool     barren = poor && steps <= t->loot;
    t->loot = 0;
    w->clock_ns = fli_clock_ns();
    t->poor = poor ? t->poor + 1 : 0;
    t->barren = barren ? t->barren + 1 : 0;
    renew(w, t->poor <= 1);
    bool again = fli_load_rlx(&w->sched->talk.nap_ns) > NAP_FIRST_NS;
    bool enough = t->barren > BARREN_STEALS ? w->clock_ns >= t->before.ns + AWAKE_BARREN_NS
                                            : t->poor > (again ? POOR_STEALS_KNOWN : POOR_STEALS) && is_known(w);
    return enough && !is_patient(w);
}

/* A place among the nappers, if somebody stays up. */
static bool lie_down(filch_sched *sched)
{
    /* PAIR talk.napping, both halves: two that try at once see each other. */
    if (fli_add_acqrel(&sched->talk.napping, 1) + 1 < sched->worker_count) return true;
    (void)fli_sub_acqrel(&sched->talk.napping, 1);
    return false;
}

/* Everything that is queued here, to the others. The newest, whom we would have run next, is who was just sent to: he
 * goes first, the others must not send on without him. */
static void hand_over(fli_worker *w)
{
    fli_proc *newest = fli_lifo_slot_take(&w->lifo_slot), *p;
    if (newest == NULL) newest = fli_deque_pop(&w->deque);
    while ((p = fli_deque_pop(&w->deque)) != NULL) fli_inject_put(&w->sched->global, p);
    if (newest != NULL) fli_inject_put_first(&w->sched->global, newest);
    fli_idle_submitted(w->sched);
}

/* Has a worker finished no step since the last look? Remembers what it saw. */
static bool is_anybody_stuck(fli_worker *w)
{
    bool stuck = false;
    for (uint32_t i = 0; i < w->sched->worker_count; i++) {
        fli_worker *other = w->sched->workers[i];
        uint64_t    steps = fli_counters_steps(&other->local.counters);
        if (other != w && steps == w->sightings[i].steps && fli_load_rlx(&other->window.serial) != 0) stuck = true;
        w->sightings[i] = (fli_sighting){ .steps = steps, .since_ns = w->clock_ns };
    }
    return stuck;
}

/* Waits until then, or until everything is to stop, or somebody is stuck. True: it was the time. */
static bool wait_until(fli_worker *w, uint64_t until_ns)
{
    filch_sched *sched = w->sched;
    uint64_t     every_ns = LOOK_FIRST_NS;
    (void)is_anybody_stuck(w);
    while (w->clock_ns < until_ns) {
        uint64_t look_ns = fli_clock_after(w->clock_ns, every_ns);
        if (every_ns < LOOK_LAST_NS) every_ns *= 2;
        fli_mutex_lock(&sched->talk.lock);
        bool over = fli_load_rlx(&sched->rt.phase) != FLI_OPEN;
        if (!over) (void)fli_cond_wait_until(&sched->talk.rouse, &sched->talk.lock, look_ns < until_ns ? look_ns : until_ns);
        fli_mutex_unlock(&sched->talk.lock);
        w->clock_ns = fli_clock_ns();
        if (over || is_anybody_stuck(w)) return false;
    }
    return true;
}

/* None for a while, and for longer the next time. */
static void put_off(fli_worker *w)
{
    fli_talk *talk = &w->sched->talk;
    uint64_t  patience_ns = fli_load_rlx(&talk->patience_ns);
    fli_store_rlx(&talk->patient_until_ns, w->clock_ns + patience_ns);
    if (patience_ns < PATIENCE_LAST_NS) fli_store_rlx(&talk->patience_ns, patience_ns * 2);
}

bool fli_talk_was_good(uint32_t workers, uint64_t before, uint64_t during)
{
    return during >= before - before / (4 * workers);
}

static void learn(fli_worker *w, uint64_t nap_ns, uint64_t before, uint64_t during)
{
    fli_talk *talk = &w->sched->talk;
    bool      clear = CLEARLY(before, during), again = clear && fli_load_rlx(&talk->clear_rate) > 0;
    fli_store_rlx(&talk->clear_rate, clear ? during : 0);
    if (fli_talk_was_good(w->sched->worker_count, before, during)) {
        uint64_t next_ns = nap_ns * (again ? NAP_CLEARLY_LONGER : NAP_LONGER);
        fli_store_rlx(&talk->nap_ns, next_ns < NAP_LAST_NS ? next_ns : NAP_LAST_NS);
        fli_store_rlx(&talk->patience_ns, PATIENCE_FIRST_NS);
    } else {
        fli_store_rlx(&talk->nap_ns, NAP_FIRST_NS);
        put_off(w);
    }
}

/* For whoever measures next: everybody who was awake before it is again. */
static void get_up(fli_worker *w)
{
    fli_talk *talk = &w->sched->talk;
    fli_store_rlx(&talk->over_sent, sent_by_all(w->sched));
    fli_store_rlx(&talk->over_done, done_by_all(w->sched));
    fli_store_rel(&talk->over_ns, w->clock_ns); /* PAIR talk.over, release half: with the count that belongs to it */
    (void)fli_sub_acqrel(&talk->napping, 1);    /* PAIR talk.napping */
}

void fli_talk_nap(fli_worker *w)
{
    filch_sched *sched = w->sched;
    bool piled = w->talk.unheard >= PILE;
    w->talk.debt_ns = 0;
    w->talk.poor = 0;
    w->talk.barren = 0;
    w->talk.unheard = 0;
    if (!lie_down(sched)) return;
    uint64_t      before = rate_since(w, &w->talk.before), nap_ns = fli_load_rlx(&sched->talk.nap_ns);
    fli_talk_mark began;
    hand_over(w);
    measure(w, &began);
    /* One that was broken off says nothing about the next, but there is somebody now to look after; unless all we would do
     * for him is to send him more. */
    if (wait_until(w, w->clock_ns + nap_ns)) learn(w, nap_ns, before, rate_since(w, &began));
    else if (!piled) put_off(w);
    get_up(w);
}

void fli_talk_over(filch_sched *sched)
{
    fli_mutex_lock(&sched->talk.lock);
    fli_cond_broadcast(&sched->talk.rouse);
    fli_mutex_unlock(&sched->talk.lock);
}
