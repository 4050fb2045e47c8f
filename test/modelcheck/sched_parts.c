/* sched_parts.c - the scheduler's atomic words: the idle word (real sched/parking.c, find.c, ready.c), the signal that
 * makes the wake descriptor of a scheduler without workers readable (tick.c), and the word by which stop excludes
 * spawns (spawn.c, stop.c). The functions that these files call in other modules are replaced below: steps only count,
 * and there are no timers and no thread pool. */
#include "clock/timers.h"
#include "parts.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/stats.h"
#include "sched/step.h"
#include "sched/torn.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "work/pool.h"

typedef struct fixture {
    filch_sched sched;
    fli_worker  workers[3];
    fli_worker *list[3];
    fli_proc    procs[3];
    int         payload[3]; /* not atomic: written before a process is queued, read by the worker that runs it */
    fli_mutex   lock;
    fli_cond    changed;
    uint32_t    done; /* number of steps; protected by the lock */
    /* After this many steps the workers are told to end; 0: a thread that waits in wait_for() tells them. Not
     * atomic. */
    uint32_t expected;
    /* number of steps if `expected` is not 0; if `expected` is 0, `done` counts the steps */
    FLI_ATOMIC(uint32_t) finished;
    FLI_ATOMIC(uint32_t) readable; /* stands for the wake descriptor: 1 if it is readable */
    uint32_t             ticks[FLI_WEAK_THREADS + 1], ran[FLI_WEAK_THREADS + 1];
    filch_err            results[FLI_WEAK_THREADS + 1];
    bool                 ends; /* option of the model programs about a stop: true if a step ends its process */
    fli_proc            *last; /* the only process of a program with `ends` */
} fixture;

static fixture *w;

/* ---- replacements ---- */

uint64_t fli_timers_next_ns(const fli_timers *timers)
{
    (void)timers;
    return FLI_NEVER;
}
uint64_t fli_timers_help_ns(const fli_timers *timers, uint32_t index)
{
    (void)timers, (void)index;
    return FLI_NEVER;
}
bool fli_timers_any(const fli_timers *timers)
{
    (void)timers;
    return false;
}
void fli_timers_set_away(fli_timers *timers, uint32_t index, bool away)
{
    (void)timers, (void)index, (void)away;
}

/* Does nothing: no memory is returned to the system in these programs. */
void fli_trim_init(fli_trim *trim)
{
    (void)trim;
}

void fli_trim_plan(filch_sched *sched)
{
    (void)sched;
}

uint64_t fli_trim_due_ns(filch_sched *sched)
{
    (void)sched;
    return FLI_NEVER;
}

void fli_trim_run(filch_sched *sched, uint64_t now_ns)
{
    (void)sched;
    (void)now_ns;
}

uint64_t fli_trim_returned_bytes(filch_sched *sched)
{
    (void)sched;
    return 0;
}

uint64_t fli_timers_count(const fli_timers *timers)
{
    (void)timers;
    return 0;
}
void fli_workpool_close(fli_workpool *pool)
{
    (void)pool;
}
bool fli_workpool_join(fli_workpool *pool, uint64_t until_ns)
{
    (void)pool, (void)until_ns;
    return true;
}
uint32_t fli_workpool_running(fli_workpool *pool, fli_job_owner *owners, uint32_t room)
{
    (void)pool, (void)owners, (void)room;
    return 0;
}
uint32_t fli_workpool_busy(fli_workpool *pool)
{
    (void)pool;
    return 0;
}
void fli_sched_free(filch_sched *sched)
{
    (void)sched;
}

/* Uses relaxed accesses, because a descriptor does not order memory accesses. */
void fli_wakefd_signal(int fd)
{
    (void)fd;
    (void)fli_swap_rlx(&w->readable, 1);
}
void fli_wakefd_clear(int fd)
{
    (void)fd;
    (void)fli_swap_rlx(&w->readable, 0);
}

/* Does nothing: no timer is set in these programs. */
void fli_alarmfd_set(fli_alarmfd *alarm, uint64_t at_ns)
{
    (void)alarm, (void)at_ns;
}

/* Does nothing: no step throws an exception in these programs. */
void fli_torn_note(fli_worker *worker)
{
    (void)worker;
}
void fli_torn_mend(fli_worker *worker)
{
    (void)worker;
}

void fli_worker_clock(fli_worker *worker)
{
    worker->clock_ns = fli_clock_ns();
}

/* Does what sched/finish.c does for a process without relations, messages and yields. */
static void finish(fli_worker *worker, fli_proc *p)
{
    (void)fli_state_finish(&p->state);
    if (fli_state_free(&p->state)) fli_slab_give(&w->sched.rt.procs, &worker->local.procs, p);
    fli_store_rel(&worker->local.counters.ended, fli_load_rlx(&worker->local.counters.ended) + 1);
}

void fli_step(fli_worker *worker, fli_proc *p)
{
    if (w->ends) {
        must(fli_word_state(fli_state_look(&p->state)) == FLI_ACTIVE, "a process that is run is ACTIVE");
        finish(worker, p);
        return;
    }
    int *payload = p->self;
    must((*payload)++ == 7, "a process is run once, and its payload is seen");
    w->ran[fli_weak_self]++;
}

bool fli_worker_turn(fli_worker *worker)
{
    fli_proc *p = fli_find_near(worker);
    if (p == NULL) return false;
    fli_step(worker, p);
    return true;
}
bool fli_worker_fire_due(fli_worker *worker)
{
    (void)worker;
    return false; /* no timer is due: these programs set no timers */
}

/* ---- setup ---- */

static void make_proc(void *object, uint32_t handle)
{
    fli_proc *p = object;
    p->slot = handle;
    fli_store_rlx(&p->state, fli_word_make(1, FLI_FREE, 0));
}

static void setup_with(uint32_t workers)
{
    w = fli_weak_new(sizeof *w);
    filch_sched *sched = &w->sched;
    fli_mem_init(&sched->rt.mem, fli_weak_alloc, NULL);
    sched->rt.node_id = 1;
    sched->rt.hooks.ready = fli_ready;
    sched->opt.fair_every = 8;
    sched->opt.global_batch = 1;
    sched->opt.max_processes = 100;
    sched->worker_count = workers;
    sched->worker_total = workers + 1;
    sched->workers = w->list;
    (void)!fli_slab_init(&sched->rt.procs, &sched->rt.mem, sizeof(fli_proc), 1000, make_proc);
    (void)!fli_inject_init(&sched->global, &sched->rt.mem, offsetof(fli_proc, link));
    (void)!fli_idle_init(&sched->idle);
    (void)!fli_mutex_init(&sched->stop.lock);
    (void)!fli_cond_init(&sched->stop.changed);
    for (uint32_t i = 0; i <= workers; i++) {
        fli_worker *worker = &w->workers[i];
        w->list[i] = worker;
        worker->local.rt = &sched->rt;
        worker->sched = sched;
        worker->victim_progress = fli_weak_new(3 * sizeof(fli_victim_progress));
        worker->slow_push_from = 1000;
        worker->local.ready = fli_ready_next;
        (void)!fli_deque_init(&worker->deque, &sched->rt.mem);
        (void)!fli_parker_init(&worker->idle.parker);
        worker->idle.sentinel_ns = 1000000;
    }
    sched->caller_worker = w->list[workers];
    (void)!fli_mutex_init(&w->lock);
    (void)!fli_cond_init(&w->changed);
    for (int i = 0; i < 3; i++) w->procs[i].self = &w->payload[i];
}

static void setup_1(void)
{
    setup_with(1);
}
static void setup_2(void)
{
    setup_with(2);
}
static void setup_2_expected(void)
{
    setup_with(2);
    w->expected = 2;
}
static void setup_tick(void)
{
    setup_with(0);
}
static void setup_stop(void)
{
    setup_with(0);
    w->ends = true;
    w->sched.rt.payload_max = 1000;
    w->sched.program = fli_program_self();
}

/* ---- idle ---- */

static void run(fli_worker *worker, fli_proc *p)
{
    fli_step(worker, p);
    if (w->expected > 0) {
        if (fli_add_acqrel(&w->finished, 1) + 1 == w->expected) fli_idle_leave(&w->sched);
        return;
    }
    fli_mutex_lock(&w->lock);
    w->done++;
    fli_mutex_unlock(&w->lock);
    fli_cond_signal(&w->changed);
}

static void work(void)
{
    fli_worker *worker = w->list[fli_weak_self - 1];
    fli_current_set(&worker->local);
    for (;;) {
        fli_proc *p = fli_idle_find(worker);
        if (p == NULL) return;
        run(worker, p);
        while ((p = fli_find_near(worker)) != NULL) run(worker, p);
    }
}

static void submit(int i)
{
    w->payload[i] = 7;
    fli_ready(&w->sched.rt, fli_current_worker(&w->sched.rt), &w->procs[i]);
}

/* Waits until processes have made `count` steps, then tells the workers to end. */
static void wait_for(uint32_t count)
{
    fli_mutex_lock(&w->lock);
    while (w->done < count) fli_cond_wait(&w->changed, &w->lock);
    fli_mutex_unlock(&w->lock);
    fli_idle_leave(&w->sched);
}

static void submit_one(void)
{
    submit(0);
    wait_for(1);
}

static void submit_two(void)
{
    submit(0);
    submit(1);
    wait_for(2);
}

static void submit_other(void)
{
    submit(1);
}

/* Acts as a worker inside a step that makes two processes ready. After the step the worker runs the processes of its
 * local deque, and parks. */
static void push_and_work(void)
{
    fli_current_set(&w->list[fli_weak_self - 1]->local);
    submit(0);
    submit(1);
    fli_worker *worker = w->list[fli_weak_self - 1];
    fli_proc   *p;
    while ((p = fli_find_near(worker)) != NULL) run(worker, p);
    work();
}

static void wait_2(void)
{
    wait_for(2);
}

static void check_idle(void)
{
    uint64_t word = fli_load_rlx(&w->sched.idle.word);
    must((word & 0xffffffff) == 0, "no worker is counted as parked or searching");
    must(fli_load_rlx(&w->sched.idle.hint) == (word & FLI_SENTINEL), "the hint says that no worker is parked");
    for (int i = 0; i < 3; i++) must(w->payload[i] == 0 || w->payload[i] == 8, "each queued process was run");
    fli_weak_outcome(w->ran[1] * 16 + w->ran[2]);
}

/* ---- the wake descriptor of a scheduler without workers ---- */

static void tick(void)
{
    uint32_t  n = 0;
    filch_err err = filch_tick(&w->sched, 0, &n);
    must(err == FILCH_OK || err == FILCH_EBUSY, "a tick runs, or another tick is running");
    w->ticks[fli_weak_self] += n;
}

static void tick_twice(void)
{
    tick();
    tick();
}

static void tick_one_step(void)
{
    (void)!filch_tick(&w->sched, 1, NULL);
}

static void submit_0(void)
{
    submit(0);
}

static void submit_both(void)
{
    submit(0);
    submit(1);
}

static void check_wakefd(void)
{
    bool left = fli_inject_count(&w->sched.global) > 0 || fli_worker_queued(w->sched.caller_worker) > 0;
    if (left) must(fli_load_rlx(&w->readable) == 1, "while a process is queued the wake descriptor is readable");
    fli_weak_outcome(left);
}

/* ---- spawn against stop ---- */

static filch_err no_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count, (void)out;
    return FILCH_OK;
}

static const filch_type type = { .name = "part", .step = no_step };

static void spawn(void)
{
    w->results[fli_weak_self] = filch_spawn(&w->sched, &type, NULL, NULL);
    must(w->results[fli_weak_self] == FILCH_OK || w->results[fli_weak_self] == FILCH_ECLOSED,
         "spawn succeeds or returns ECLOSED");
}

static void stop(void)
{
    filch_err err = filch_sched_close(&w->sched, FILCH_FOREVER, NULL);
    must(err == FILCH_OK, "stop waits until all processes have ended");
    must(fli_stats_alive(&w->sched) == 0, "after stop no process is alive");
    must(fli_inject_count(&w->sched.global) == 0, "after stop no process is queued");
    w->results[fli_weak_self] = err;
}

/* Stops the scheduler, unless another thread is in a stop or in filch_tick(). */
static void stop_unless_busy(void)
{
    filch_err err = filch_sched_close(&w->sched, FILCH_FOREVER, NULL);
    must(err == FILCH_OK || err == FILCH_EBUSY, "a stop stops, or another thread is stopping or ticking");
    w->results[fli_weak_self] = err;
}

/* Calls filch_tick(), unless a stop has closed the scheduler, or another thread is in a stop or in filch_tick(). */
static void tick_unless_busy(void)
{
    filch_err err = filch_tick(&w->sched, 0, NULL);
    must(err == FILCH_OK || err == FILCH_EBUSY || err == FILCH_ECLOSED,
         "a tick runs, or another thread ticks or has stopped the scheduler");
    w->results[fli_weak_self] = err;
}

static void setup_stop_one(void)
{
    setup_stop();
    must(filch_spawn(&w->sched, &type, NULL, NULL) == FILCH_OK, "a process is spawned");
}

static void check_stopped(void)
{
    must(w->results[1] == FILCH_OK || w->results[2] == FILCH_OK, "one of the two threads is not busy");
    uint64_t alive = fli_stats_alive(&w->sched);
    if (fli_load_rlx(&w->sched.rt.phase) == FLI_CLOSED) must(alive == 0, "after stop no process is alive");
    fli_weak_outcome(alive * 4096 + (uint64_t)w->results[1] * 64 + (uint64_t)w->results[2]);
}

static void check_closed(void)
{
    must(fli_stats_alive(&w->sched) == 0, "after stop no process is spawned");
    must(fli_inject_count(&w->sched.global) == 0, "after stop no process is queued");
    fli_weak_outcome((uint64_t)w->results[2] * 64 + (uint64_t)w->results[3]);
}

/* ---- the end of a process, and the count of live processes that a stop reads ---- */

static void setup_ended(void)
{
    setup_with(1);
    w->ends = true;
    w->last = fli_slab_take(&w->sched.rt.procs, &w->list[0]->local.procs);
    fli_state_open(&w->last->state, 1, false);
    fli_store_rlx(&w->list[0]->local.counters.spawned, 1);
}

/* Runs the last step of the only process, which ends the process. */
static void last_step(void)
{
    w->payload[0] = 7;
    fli_step(w->list[0], w->last);
}

static void count_alive(void)
{
    uint64_t alive = fli_stats_alive(&w->sched);
    must(alive <= 1, "no more processes are counted than were spawned");
    if (alive == 0)
        must(w->payload[0] == 7 && w->list[0]->local.procs.count > 0, "a process counted as ended has freed its slot");
}

/* A process ends, and its on_exit spawns another process that stays alive. The live processes are counted as in
 * sched/finish.c and spawn.c. */
static void leave_and_spawn(void)
{
    fli_counters *counters = &w->list[0]->local.counters;
    fli_count(&counters->leaving, 1);
    fli_store_rel(&counters->ended, fli_load_rlx(&counters->ended) + 1);
    fli_count(&counters->spawned, 1);
    fli_store_rel(&counters->leaving, fli_load_rlx(&counters->leaving) - 1);
}

/* The limit is two processes, but the first process ends before the second is spawned. */
static void setup_limit(void)
{
    setup_ended();
    w->sched.opt.max_processes = 2;
}

static void end_and_spawn(void)
{
    fli_counters *counters = &w->list[0]->local.counters;
    fli_store_rel(&counters->ended, fli_load_rlx(&counters->ended) + 1);
    fli_stats_count_spawned(&w->sched.rt, &w->list[0]->local, 1);
}

/* As end_and_spawn(), but the second process is spawned as by a foreign thread. */
static void end_and_spawn_foreign(void)
{
    fli_counters *counters = &w->list[0]->local.counters;
    fli_store_rel(&counters->ended, fli_load_rlx(&counters->ended) + 1);
    fli_stats_count_spawned(&w->sched.rt, NULL, 1);
}

static void look_at_limit(void)
{
    must(!fli_stats_is_full(&w->sched), "the limit is not reached if fewer processes were alive all the time");
}

static void count_one(void)
{
    uint64_t alive = fli_stats_alive(&w->sched);
    must(alive >= 1 && alive <= 3, "the count is not 0 while on_exit runs");
    fli_weak_outcome(alive);
}

const fli_weak_program parts_sched[] = {
    { .name = "idle_1",
      .promise = "a submit while the only worker parks",
      .setup = setup_1,
      .threads = { work, submit_one },
      .check = check_idle },
    { .name = "idle_1_twice",
      .promise = "two submits while the only worker parks",
      .setup = setup_1,
      .threads = { work, submit_two },
      .check = check_idle },
    { .name = "idle_2",
      .promise = "a submit while two workers park",
      .setup = setup_2,
      .threads = { work, work, submit_one },
      .check = check_idle,
      .bound = 1 },
    { .name = "idle_2_submitters",
      .promise = "two submitters, two workers",
      .setup = setup_2_expected,
      .threads = { work, work, submit_0, submit_other },
      .check = check_idle,
      .bound = FLI_WEAK_NO_PREEMPTION },
    { .name = "idle_push",
      .promise = "a worker pushes to its local deque while the other worker parks",
      .setup = setup_2,
      .threads = { push_and_work, work, wait_2 },
      .check = check_idle,
      .bound = 1 },
    { .name = "tick_signal",
      .promise = "two ticks, two threads that queue",
      .setup = setup_tick,
      .threads = { tick_twice, submit_0, submit_other },
      .check = check_wakefd },
    { .name = "tick_one_step",
      .promise = "a tick that stops after one step",
      .setup = setup_tick,
      .threads = { tick_one_step, submit_both },
      .check = check_wakefd },
    { .name = "tick_owner",
      .promise = "two threads tick, one queues",
      .setup = setup_tick,
      .threads = { tick, tick, submit_0 },
      .check = check_wakefd },
    { .name = "finish_ended",
      .promise = "when stop counts a process as ended, its slot is free",
      .setup = setup_ended,
      .threads = { last_step, count_alive } },
    { .name = "finish_leaving",
      .promise = "while on_exit runs, and after it has spawned, stop counts a process",
      .setup = setup_ended,
      .threads = { leave_and_spawn, count_one } },
    { .name = "finish_limit",
      .promise = "a process that ended before another was spawned does not count for the limit of processes",
      .setup = setup_limit,
      .threads = { end_and_spawn, look_at_limit } },
    { .name = "finish_limit_foreign",
      .promise = "the same if a foreign thread spawns",
      .setup = setup_limit,
      .threads = { end_and_spawn_foreign, look_at_limit } },
    { .name = "spawn_stop_1",
      .promise = "a spawn of a foreign thread against stop",
      .setup = setup_stop,
      .threads = { stop, spawn },
      .check = check_closed },
    { .name = "spawn_stop_2",
      .promise = "two spawns of foreign threads against stop",
      .setup = setup_stop,
      .threads = { stop, spawn, spawn },
      .check = check_closed,
      .bound = 1 },
    { .name = "stop_twice",
      .promise = "two stops: the second sees what the first did, or is refused",
      .setup = setup_stop_one,
      .threads = { stop_unless_busy, stop_unless_busy },
      .check = check_stopped },
    { .name = "tick_stop",
      .promise = "a tick against a stop: one after the other, or one is refused",
      .setup = setup_stop_one,
      .threads = { stop_unless_busy, tick_unless_busy },
      .check = check_stopped },
    { 0 },
};
