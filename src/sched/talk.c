/* talk.c - when workers talk more than they work, one of them takes a nap.
 *
 * A message to a process on the same worker costs some 30 ns; to one on another worker 100 to 200, because its lines
 * have to come over. Where steps are that short, a second worker can make everything slower: 100 producers and one
 * consumer ran at 30 ns a message on one worker and at 110 on two. So each worker counts the messages that came to it
 * from other workers, and the processes that were there before. If at its readings of the clock they account for more
 * than half of the time, several times in a row, it hands its queue to the others and naps; processes that talk to each
 * other then meet on one worker.
 *
 * The same for a thief that gets little out of it: what it steals are single short steps that lead to nothing more (a
 * process that spawns many that end at once: 77 ns each on one worker, 160 on two).
 *
 * It is an experiment each time. What all workers did per nanosecond (steps and sends) is measured before the nap and
 * during it. If it went better without us, the next nap, whosever it is, is four times as long, up to 64 ms; if not,
 * there is no nap for a while.
 *
 * Nobody needs to know. A napping worker counts neither as asleep nor as searching: to all others it looks like one that
 * is busy and has an empty queue, so nothing depends on it and no wake-up can be lost to it. There is always one that
 * does not nap. The napper looks up every millisecond: it is back at once when a worker has not finished a step since
 * the last look, or when everything is to stop. If all others go to sleep meanwhile, these looks, 64 at most, are what
 * is left of the work; after them nothing stirs.
 */
#include "sched/talk.h"

#include "port/clock.h"
#include "sched/sched.h"

#define REMOTE_NS UINT64_C(200) /* what one message from another worker costs, about */
#define LOOK_NS UINT64_C(1000000)
#define NAP_FIRST_NS UINT64_C(1000000)
#define NAP_LAST_NS UINT64_C(64000000)
#define PATIENCE_NS UINT64_C(64000000)

#define SHORT_STEP_NS UINT64_C(500)

/* Readings, and steals, in a row. The small build naps at every chance. */
#ifdef FLI_SMALL
#define TALKY_READINGS 1
#define POOR_STEALS 1
#else
#define TALKY_READINGS 8
#define POOR_STEALS 128
#endif

filch_err fli_talk_init(fli_talk *talk)
{
    fli_atomic_init(&talk->napping, 0);
    fli_atomic_init(&talk->nap_ns, NAP_FIRST_NS);
    fli_atomic_init(&talk->patient_until_ns, 0);
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

/* What all workers have done so far. */
static uint64_t done_by_all(filch_sched *sched)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_counters *counters = &sched->workers[i]->local.counters;
        done += fli_load_rlx(&counters->steps) + fli_load_rlx(&counters->sent);
    }
    return done;
}

static void measure(fli_worker *w, fli_talk_mark *mark)
{
    mark->ns = w->clock_ns;
    mark->done = done_by_all(w->sched);
}

/* Per microsecond, since the mark. */
static uint64_t rate_since(fli_worker *w, const fli_talk_mark *mark)
{
    uint64_t passed = w->clock_ns - mark->ns;
    return passed > 0 ? (done_by_all(w->sched) - mark->done) * 1000 / passed : 0;
}

bool fli_talk_is_too_much(fli_worker *w, uint64_t passed_ns)
{
    fli_talker *t = &w->talk;
    uint32_t    heard = w->local.heard;
    w->local.heard = 0;
    if (FLI_LIKELY(heard * REMOTE_NS * 2 <= passed_ns) ||
        w->clock_ns < fli_load_rlx(&w->sched->talk.patient_until_ns)) {
        t->readings = 0;
        return false;
    }
    if (t->readings++ == 0) measure(w, &t->before);
    return t->readings > TALKY_READINGS;
}

void fli_talk_stole(fli_worker *w, uint32_t count)
{
    w->talk.loot = count;
    w->talk.loot_at = fli_load_rlx(&w->local.counters.steps);
}

bool fli_talk_is_poor(fli_worker *w)
{
    fli_talker *t = &w->talk;
    if (t->loot == 0) return false;
    uint64_t steps = fli_load_rlx(&w->local.counters.steps) - t->loot_at;
    bool     poor = steps <= 2 * (uint64_t)t->loot && w->step_ns < SHORT_STEP_NS;
    t->loot = 0;
    w->clock_ns = fli_clock_ns();
    if (!poor || w->clock_ns < fli_load_rlx(&w->sched->talk.patient_until_ns)) {
        t->poor = 0;
        return false;
    }
    if (t->poor++ == 0) measure(w, &t->before);
    return t->poor > POOR_STEALS;
}

/* A place among the nappers, if somebody stays up. */
static bool lie_down(filch_sched *sched)
{
    /* PAIR talk.napping, both halves: two that try at once see each other. */
    if (fli_add_acqrel(&sched->talk.napping, 1) + 1 < sched->worker_count) return true;
    (void)fli_sub_acqrel(&sched->talk.napping, 1);
    return false;
}

/* Everything that is queued here, to the others; the newest first, as we would have run it: that is who was just sent
 * to, and the others must not send on without him. */
static void hand_over(fli_worker *w)
{
    fli_proc *p;
    while ((p = fli_deque_pop(&w->deque)) != NULL) fli_inject_put(&w->sched->global, p);
    fli_idle_submitted(w->sched);
}

/* Has a worker finished no step since the last look? Remembers what it saw. */
static bool is_anybody_stuck(fli_worker *w)
{
    bool stuck = false;
    for (uint32_t i = 0; i < w->sched->worker_count; i++) {
        fli_worker *other = w->sched->workers[i];
        uint64_t    steps = fli_load_rlx(&other->local.counters.steps);
        if (other != w && steps == w->sightings[i].steps && fli_load_rlx(&other->window.serial) != 0) stuck = true;
        w->sightings[i] = (fli_sighting){ .steps = steps, .since_ns = w->clock_ns };
    }
    return stuck;
}

/* Waits until then, or until everything is to stop, or somebody is stuck. True: it was the time. */
static bool wait_until(fli_worker *w, uint64_t until_ns)
{
    filch_sched *sched = w->sched;
    (void)is_anybody_stuck(w);
    while (w->clock_ns < until_ns) {
        uint64_t look_ns = fli_clock_after(w->clock_ns, LOOK_NS);
        fli_mutex_lock(&sched->talk.lock);
        bool over = fli_load_rlx(&sched->rt.phase) != FLI_OPEN;
        if (!over) (void)fli_cond_wait_until(&sched->talk.rouse, &sched->talk.lock, look_ns < until_ns ? look_ns : until_ns);
        fli_mutex_unlock(&sched->talk.lock);
        w->clock_ns = fli_clock_ns();
        if (over || is_anybody_stuck(w)) return false;
    }
    return true;
}

void fli_talk_nap(fli_worker *w)
{
    fli_talk *talk = &w->sched->talk;
    w->talk.readings = w->talk.poor = 0;
    if (!lie_down(w->sched)) return;
    uint64_t      rate = rate_since(w, &w->talk.before), nap_ns = fli_load_rlx(&talk->nap_ns);
    fli_talk_mark began;
    hand_over(w);
    measure(w, &began);
    bool whole = wait_until(w, w->clock_ns + nap_ns);
    if (whole && rate_since(w, &began) >= rate) {
        if (nap_ns < NAP_LAST_NS) fli_store_rlx(&talk->nap_ns, nap_ns * 4);
    } else {
        fli_store_rlx(&talk->nap_ns, NAP_FIRST_NS);
        fli_store_rlx(&talk->patient_until_ns, w->clock_ns + PATIENCE_NS);
    }
    (void)fli_sub_acqrel(&w->sched->talk.napping, 1); /* PAIR talk.napping */
}

void fli_talk_over(filch_sched *sched)
{
    fli_mutex_lock(&sched->talk.lock);
    fli_cond_broadcast(&sched->talk.rouse);
    fli_mutex_unlock(&sched->talk.lock);
}
