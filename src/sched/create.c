/* create.c - creates a scheduler. In this order; freed in the reverse order:
 *
 *   1. options: read, checked, defaults filled in
 *   2. memory for processes and events, queues, timers, work pool
 *   3. worker structures, with caller_worker
 *   4. threads; if one cannot be started, the others are ended
 */
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "base/versioned.h"
#include "clock/timers.h"
#include "dispatch/registry.h"
#include "dispatch/send_waiters.h"
#include "io/io.h"
#include "port/cpu.h"
#include "port/random.h"
#include "port/wakefd.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "sched/builtin.h"
#include "sched/cap.h"
#include "sched/find.h"
#include "sched/idle.h"
#include "sched/out.h"
#include "sched/ready.h"
#include "sched/refuser.h"
#include "sched/report.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "sched/throttle.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"
#include "work/pool.h"

#define WORKERS_MAX 1024
#define PROCESSES_MAX (UINT32_MAX / 2)

static void fill_u32(uint32_t *field, uint32_t value)
{
    if (*field == 0) *field = value;
}

static void fill_u64(uint64_t *field, uint64_t value)
{
    if (*field == 0) *field = value;
}

/* Checks the limits documented in filch.h. */
static filch_err check_options(const filch_options *opt)
{
    if (opt->workers < FILCH_NO_WORKERS) return filch_invalid("options.workers is below FILCH_NO_WORKERS");
    if (opt->workers > WORKERS_MAX) return filch_invalid("options.workers is over 1024");
    if (opt->max_processes > PROCESSES_MAX) return filch_invalid("options.max_processes is over 2^31 - 1");
    if (opt->batch_max > FLI_BATCH_MAX) return filch_invalid("options.batch_max is over 1024");
    if (opt->global_batch > FLI_GLOBAL_BATCH_MAX) return filch_invalid("options.global_batch is over 256");
    if (opt->work_threads > WORKERS_MAX) return filch_invalid("options.work_threads is over 1024");
    if (opt->blackbox > FILCH_BLACKBOX_MAX) return filch_invalid("options.blackbox is over FILCH_BLACKBOX_MAX");
    if (opt->spare != 0 || opt->spare_too != 0)
        return filch_invalid("options.spare is not 0: begin with the FILCH_*_INIT macro");
    return FILCH_OK;
}

/* Reads the caller's struct and replaces 0 by the default where 0 means "the default". */
static filch_err read_options(const filch_options *given, filch_options *opt)
{
    filch_err err = FLI_VERSIONED_READ(opt, given, "options", FILCH_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    fill_u32(&opt->max_processes, 1u << 26);
    fill_u32(&opt->batch_max, 64);
    fill_u32(&opt->send_budget, 64);
    fill_u32(&opt->global_batch, 16);
    fill_u32(&opt->spin_tight, 3);
    fill_u32(&opt->spin_yield, 12);
    fill_u32(&opt->work_threads, 4);
    fill_u32(&opt->work_queue, 1024);
    err = check_options(opt);
    if (err != FILCH_OK) return err;
    fill_u64(&opt->node, fli_random_u64());
    fill_u64(&opt->seed, fli_random_u64());
    return FILCH_OK;
}

static void make_node(void *object, uint32_t handle)
{
    ((fli_event_node *)object)->self = handle;
}

static void make_short_node(void *object, uint32_t handle)
{
    ((fli_event_node *)object)->self = handle | FLI_SHORT_BIT;
}

static void make_proc(void *object, uint32_t handle)
{
    fli_proc *p = object;
    p->slot = handle;
    fli_store_rlx(&p->state, fli_word_make(1, FLI_FREE, 0));
}

/* If a generation in a page of a slab has reached this limit, the page is not returned to the system. A returned page
 * loses its generations, so all its objects must continue with the largest of them: slots of processes would soon have
 * used up their generations, and the generation of a node might wrap around to one that was used before. */
#define PROC_GEN_RETURNED (FLI_GEN_LAST / 2)
#define NODE_GEN_RETURNED (UINT32_C(1) << 29)

static uint32_t node_generation(void *object)
{
    fli_event_node *node = object;
    uint32_t        generation = fli_load_rlx(&node->stamp) / FLI_STAMP_GENERATION;
#ifdef FLI_SMALL
    /* In the test build a page of a slab is smaller than a page of the system, so the system clears nothing when the
     * slab page is returned. The stamp is cleared here instead. */
    fli_store_rlx(&node->stamp, 0);
#endif
    return generation < NODE_GEN_RETURNED ? generation : FLI_SLAB_STAYS;
}

/* Initializes a node of a returned page as a free node. Of the first bytes of a free node only `self` and `stamp` have
 * a meaning. */
static void remake_node(void *object, uint32_t handle, uint32_t generation)
{
    fli_event_node *node = object;
    node->self = handle;
    fli_store_rlx(&node->stamp, generation * FLI_STAMP_GENERATION + FLI_STAMP_FREE);
}

/* Short nodes hold messages only: no handle to a short node is kept after the message was read, so they have no
 * generation. */
static uint32_t short_node_generation(void *object)
{
    (void)object;
    return 0;
}

static void remake_short_node(void *object, uint32_t handle, uint32_t generation)
{
    (void)generation;
    make_short_node(object, handle);
}

static uint32_t proc_generation(void *object)
{
    fli_proc *p = object;
    uint32_t  generation = fli_word_gen(fli_state_peek(&p->state));
    return generation < PROC_GEN_RETURNED ? generation : FLI_SLAB_STAYS;
}

/* Initializes a slot as a free slot, in a page that was returned to the system. The slot still has the bytes that it
 * had as a free slot, or its bytes are zeros. In both cases the slot is blank (finish.c), so only the slot number and
 * the state word are written. */
static void remake_proc(void *object, uint32_t handle, uint32_t generation)
{
    fli_proc *p = object;
    p->slot = handle;
    fli_store_rlx(&p->state, fli_word_make(generation, FLI_FREE, 0));
}

static const fli_slab_return_ops node_return_ops = { .generation = node_generation, .remake = remake_node };
static const fli_slab_return_ops short_node_return_ops = { .generation = short_node_generation,
                                                           .remake = remake_short_node };
static const fli_slab_return_ops proc_return_ops = { .generation = proc_generation, .remake = remake_proc };

static void on_abandon(fli_runtime *rt, uint64_t cookie)
{
    fli_timers_abandon(&((filch_sched *)rt)->timers, cookie);
}

static void on_alarm(fli_runtime *rt, uint64_t cookie)
{
    fli_io_alarm(&((filch_sched *)rt)->io, cookie);
}

static uint64_t on_ticks(fli_runtime *rt, uint64_t ticker)
{
    return fli_timers_ticks(&((filch_sched *)rt)->timers, ticker);
}

static void on_room(fli_runtime *rt, fli_proc *p)
{
    fli_send_waiters_retry(&((filch_sched *)rt)->send_waiters, rt, p);
}

static void on_no_room(fli_runtime *rt, fli_proc *p)
{
    fli_refuser_run((filch_sched *)rt, fli_send_waiters_detach(&((filch_sched *)rt)->send_waiters, p));
}

static void on_cut(fli_runtime *rt, uint64_t serial, uint64_t bytes)
{
    fli_stop_cut((filch_sched *)rt, serial, bytes);
}

static filch_err runtime_init(filch_sched *sched, const fli_mem *mem)
{
    fli_runtime         *rt = &sched->rt;
    const filch_options *opt = &sched->opt;
    rt->mem = *mem;
    rt->node_id = opt->node;
    rt->payload_max = opt->payload_max;
    rt->route = opt->route;
    rt->route_user = opt->route_user;
    rt->on_log = opt->on_log;
    rt->on_log_user = opt->on_log_user;
    rt->hooks = (fli_hooks){ .ready = fli_ready,
                             .abandon = on_abandon,
                             .alarm = on_alarm,
                             .ticks = on_ticks,
                             .room = on_room,
                             .no_room = on_no_room,
                             .cut = on_cut };
    fli_atomic_init(&rt->phase, FLI_OPEN);
    filch_err err = fli_slab_init(&rt->nodes, mem, sizeof(fli_event_node), FLI_SHORT_BIT - 1, make_node);
    if (err != FILCH_OK) return err;
    err = fli_slab_init(&rt->short_nodes, mem, FLI_SHORT_NODE_SIZE, FLI_SHORT_BIT - 1, make_short_node);
    if (err != FILCH_OK) goto no_short_nodes;
    /* Enough slots for max_processes living processes and for the spare slots in the magazines of the workers. */
    uint32_t slots = opt->max_processes + sched->worker_total * FLI_MAGAZINE;
    err = fli_slab_init(&rt->procs, mem, sizeof(fli_proc), slots, make_proc);
    if (err != FILCH_OK) goto no_procs;
    fli_trim_init(&sched->trim);
    bool returns = opt->alloc == NULL;
#ifdef FLI_SMALL
    /* Only memory from malloc can be returned. The allocators that tests supply use malloc. */
    returns = true;
#endif
    if (returns) {
        fli_slab_allow_return(&rt->nodes, &node_return_ops);
        fli_slab_allow_return(&rt->short_nodes, &short_node_return_ops);
        fli_slab_allow_return(&rt->procs, &proc_return_ops);
    }
    return FILCH_OK;
no_procs:
    fli_slab_fini(&rt->short_nodes);
no_short_nodes:
    fli_slab_fini(&rt->nodes);
    return err;
}

static void runtime_fini(fli_runtime *rt)
{
    fli_slab_fini(&rt->procs);
    fli_slab_fini(&rt->short_nodes);
    fli_slab_fini(&rt->nodes);
}

static filch_err worker_create(filch_sched *sched, uint32_t index, fli_worker **out)
{
    const fli_mem *mem = &sched->rt.mem;
    uint32_t       batch = sched->opt.batch_max;
    filch_err      err = FILCH_ENOMEM;
    fli_worker    *w = fli_zalloc_aligned(mem, sizeof *w, FLI_LINE);
    if (w == NULL) goto no_worker;
    w->sched = sched;
    w->local.rt = &sched->rt;
    w->local.fast_rt = FLI_NO_FAST_RT;
    w->local.index = index;
    w->local.worker_mark = fli_worker_mark(index);
    w->local.number = index + 1;
    w->idle_word = fli_proc_idle_word(index);
    w->fast_steps = sched->rt.sim == NULL && sched->opt.long_step_ns == 0;
    w->local.send_limit = sched->opt.send_budget;
    fli_out_init(&w->out, &w->local);
    w->fair_countdown = w->fair_every = sched->opt.fair_every;
    w->clock_interval = 1;
    w->step_ns = 1;
    w->sample_in = 1;
    fli_ready_sample(w);
    fli_event_prefill(&sched->rt, &w->message);
    fli_prng_init(&w->prng, sched->opt.seed + index);
    w->events = fli_alloc(mem, batch * sizeof *w->events);
    if (w->events == NULL) goto no_events;
    w->local.inline_result = w->events;
    w->messages = fli_alloc(mem, batch * sizeof *w->messages);
    if (w->messages == NULL) goto no_messages;
    for (uint32_t i = 0; i < batch; i++) fli_event_prefill(&sched->rt, &w->messages[i]);
    w->nodes = fli_alloc(mem, FLI_NODES_ROOM(batch) * sizeof *w->nodes);
    if (w->nodes == NULL) goto no_nodes;
    w->victim_progress = fli_zalloc(mem, sched->worker_total * sizeof *w->victim_progress);
    if (w->victim_progress == NULL) goto no_sightings;
    fli_lifo_slot_init(&w->lifo_slot);
    err = fli_deque_init(&w->deque, mem);
    if (err != FILCH_OK) goto no_deque;
    err = fli_parker_init(&w->idle.parker);
    if (err != FILCH_OK) goto no_parker;
    w->idle.sentinel_ns = w->idle.backup_ns = FILCH_MILLISECONDS(1);
    *out = w;
    return FILCH_OK;
no_parker:
    fli_deque_fini(&w->deque);
no_deque:
    fli_free(mem, w->victim_progress, sched->worker_total * sizeof *w->victim_progress);
no_sightings:
    fli_free(mem, w->nodes, FLI_NODES_ROOM(batch) * sizeof *w->nodes);
no_nodes:
    fli_free(mem, w->messages, batch * sizeof *w->messages);
no_messages:
    fli_free(mem, w->events, batch * sizeof *w->events);
no_events:
    fli_free_aligned(mem, w, sizeof *w, FLI_LINE);
no_worker:
    return err;
}

static void worker_destroy(filch_sched *sched, fli_worker *w)
{
    const fli_mem *mem = &sched->rt.mem;
    uint32_t       batch = sched->opt.batch_max;
    fli_parker_fini(&w->idle.parker);
    fli_deque_fini(&w->deque);
    fli_free(mem, w->out.pending, w->out.pending_room * sizeof *w->out.pending);
    fli_free(mem, w->victim_progress, sched->worker_total * sizeof *w->victim_progress);
    fli_free(mem, w->nodes, FLI_NODES_ROOM(batch) * sizeof *w->nodes);
    fli_free(mem, w->messages, batch * sizeof *w->messages);
    fli_free(mem, w->events, batch * sizeof *w->events);
    fli_free_aligned(mem, w, sizeof *w, FLI_LINE);
}

static void workers_destroy(filch_sched *sched, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) worker_destroy(sched, sched->workers[i]);
    fli_free(&sched->rt.mem, sched->workers, sched->worker_total * sizeof *sched->workers);
}

static filch_err workers_create(filch_sched *sched)
{
    sched->workers = fli_zalloc(&sched->rt.mem, sched->worker_total * sizeof *sched->workers);
    if (sched->workers == NULL) return FILCH_ENOMEM;
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        filch_err err = worker_create(sched, i, &sched->workers[i]);
        if (err == FILCH_OK) continue;
        workers_destroy(sched, i);
        return err;
    }
    sched->caller_worker = sched->workers[sched->worker_count];
    return FILCH_OK;
}

static filch_err stop_init(fli_stop *stop)
{
    filch_err err = fli_mutex_init(&stop->lock);
    if (err != FILCH_OK) return err;
    err = fli_cond_init(&stop->changed);
    if (err != FILCH_OK) fli_mutex_fini(&stop->lock);
    return err;
}

static void stop_fini(fli_stop *stop)
{
    fli_cond_fini(&stop->changed);
    fli_mutex_fini(&stop->lock);
}

static void wake_fd_close(filch_sched *sched)
{
    fli_alarmfd_close(&sched->alarm);
    if (sched->wake_fd >= 0 && sched->poll_fd == sched->wake_fd) fli_wakefd_close(sched->wake_fd);
}

/* Opens wake_fd for a scheduler without workers: this descriptor wakes the thread of the program that calls filch_tick.
 * With I/O, wake_fd is the wake descriptor of the poller, and the program polls the descriptor of the poller. */
static filch_err wake_fd_open(filch_sched *sched)
{
    filch_err err = fli_io_open(&sched->io);
    if (err != FILCH_OK && err != FILCH_ECOMMAND) return err;
    sched->wake_fd = err == FILCH_OK ? fli_io_wake_fd(&sched->io) : -1;
    sched->poll_fd = err == FILCH_OK ? fli_io_fd(&sched->io) : -1;
    if (err == FILCH_ECOMMAND) {
        err = fli_wakefd_open(&sched->wake_fd);
        if (err != FILCH_OK) return err;
        sched->poll_fd = sched->wake_fd;
    }
    err = fli_alarmfd_open(&sched->alarm, sched->poll_fd);
    if (err != FILCH_OK) wake_fd_close(sched);
    return err;
}

/* Initializes all parts of the scheduler except the worker threads and the registry. */
static filch_err parts_init(filch_sched *sched, const fli_mem *mem)
{
    filch_err err = runtime_init(sched, mem);
    if (err != FILCH_OK) goto no_runtime;
    err = fli_inject_init(&sched->global, &sched->rt.mem, offsetof(fli_proc, link));
    if (err != FILCH_OK) goto no_global;
    err = fli_idle_init(&sched->idle);
    if (err != FILCH_OK) goto no_idle;
    err = fli_throttle_init(&sched->throttle);
    if (err != FILCH_OK) goto no_throttle;
    err = fli_timers_init(&sched->timers, &sched->rt, sched->worker_total, fli_now(&sched->rt));
    if (err != FILCH_OK) goto no_timers;
    err = fli_send_waiters_init(&sched->send_waiters);
    if (err != FILCH_OK) goto no_send_waiters;
    err = fli_workpool_init(&sched->workpool, mem, sched->opt.work_threads, sched->opt.work_queue);
    if (err != FILCH_OK) goto no_workpool;
    sched->workpool.by_hand = sched->rt.sim != NULL;
    err = fli_io_init(&sched->io, &sched->rt, &sched->timers, &sched->workpool, sched->worker_total);
    if (err != FILCH_OK) goto no_io;
    err = stop_init(&sched->stop);
    if (err != FILCH_OK) goto no_stop;
    if (sched->worker_count == 0) err = wake_fd_open(sched);
    if (err != FILCH_OK) goto no_wakefd;
    err = workers_create(sched);
    if (err != FILCH_OK) goto no_workers;
    return FILCH_OK;
no_workers:
    wake_fd_close(sched);
no_wakefd:
    stop_fini(&sched->stop);
no_stop:
    fli_io_fini(&sched->io);
no_io:
    fli_workpool_close(&sched->workpool);
    fli_workpool_fini(&sched->workpool);
no_workpool:
    fli_send_waiters_fini(&sched->send_waiters);
no_send_waiters:
    fli_timers_fini(&sched->timers);
no_timers:
    fli_throttle_fini(&sched->throttle);
no_throttle:
    fli_idle_fini(&sched->idle);
no_idle:
    fli_inject_fini(&sched->global);
no_global:
    runtime_fini(&sched->rt);
no_runtime:
    return err;
}

/* Asserts that every event node has been freed. */
static void check_nodes(filch_sched *sched)
{
    fli_slab *nodes = &sched->rt.nodes, *short_nodes = &sched->rt.short_nodes;
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        fli_slab_empty(nodes, &sched->workers[i]->local.nodes);
        fli_slab_empty(short_nodes, &sched->workers[i]->local.short_nodes);
    }
    fli_event_node *spare = fli_load_rlx(&sched->rt.spare_node);
    if (spare != NULL) fli_node_give(&sched->rt, NULL, spare);
    FLI_ASSERT(fli_slab_is_whole(nodes));
    FLI_ASSERT(fli_slab_is_whole(short_nodes));
}

/* Frees the scheduler. Thread: any; no other thread uses the scheduler, and its threads have ended. */
void fli_sched_free(filch_sched *sched)
{
    fli_mem mem = sched->rt.mem;
    /* Called first, because other schedulers of the program may use this scheduler until fini() returns. */
    sched->rt.model_ops->fini(&sched->rt);
    check_nodes(sched);
    workers_destroy(sched, sched->worker_total);
    wake_fd_close(sched);
    stop_fini(&sched->stop);
    fli_io_fini(&sched->io);
    fli_workpool_fini(&sched->workpool);
    fli_send_waiters_fini(&sched->send_waiters);
    fli_timers_fini(&sched->timers);
    fli_throttle_fini(&sched->throttle);
    fli_idle_fini(&sched->idle);
    fli_inject_fini(&sched->global);
    runtime_fini(&sched->rt);
    filch_registry_destroy(sched->registry);
    fli_cap_end(&mem);
    fli_free_aligned(&mem, sched, sizeof *sched, FLI_LINE);
    fli_cap_drop(&mem);
}

static filch_err threads_start(filch_sched *sched)
{
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        filch_err err = fli_thread_start(&sched->workers[i]->thread, "filch", fli_worker_run, sched->workers[i]);
        if (err == FILCH_OK) continue;
        fli_idle_leave(sched);
        while (i-- > 0) fli_thread_join(&sched->workers[i]->thread);
        return err;
    }
    return FILCH_OK;
}

static filch_err take_registry(filch_sched *sched)
{
    filch_registry *registry = sched->opt.registry;
    if (registry == NULL) {
        filch_err err = fli_builtin_registry(&registry);
        if (err != FILCH_OK) return err;
        fli_registry_use(registry);
        /* drops the creator's reference: only the reference of this scheduler is left */
        filch_registry_destroy(registry);
    } else {
        fli_registry_use(registry);
    }
    sched->registry = registry;
    return FILCH_OK;
}

static uint32_t workers_wanted(const filch_options *opt)
{
    if (opt->workers == FILCH_NO_WORKERS) return 0;
    uint32_t count = opt->workers != 0 ? (uint32_t)opt->workers : fli_cpu_count();
    return count < WORKERS_MAX ? count : WORKERS_MAX;
}

filch_err fli_sched_make(filch_sched **out, const filch_options *options, fli_simulator *sim,
                         const fli_upper_ops *upper)
{
    filch_options opt;
    filch_err     err = read_options(options, &opt);
    if (err != FILCH_OK) return err;
    fli_mem mem;
    fli_mem_init(&mem, opt.alloc, opt.alloc_user);
    err = fli_mem_probe(&mem);
    if (err != FILCH_OK) return err;
    uint32_t worker_count = workers_wanted(&opt);
    err = fli_cap_create(&mem, opt.memory_max, worker_count + 1);
    if (err != FILCH_OK) return err;
    filch_sched *sched = fli_zalloc_aligned(&mem, sizeof *sched, FLI_LINE);
    if (sched == NULL) {
        fli_cap_drop(&mem);
        return FILCH_ENOMEM;
    }
    sched->opt = opt;
    sched->fair_most = opt.fair_every != 0 ? opt.fair_every : FLI_FAIR_MOST;
    fill_u32(&sched->opt.fair_every, FLI_FAIR_EVERY);
    sched->learns = opt.search_ns == 0;
    fill_u64(&sched->opt.search_ns, FILCH_MICROSECONDS(50));
    sched->rt.sim = sim;
    sched->rt.model_ops = upper->model;
    sched->rt.record_ops = upper->record;
    sched->program = fli_program_self();
    sched->wake_fd = sched->poll_fd = sched->alarm.poll = -1;
    sched->worker_count = worker_count;
    sched->worker_total = worker_count + 1;
    fli_cap_begin(&mem, &sched->rt);
    err = take_registry(sched);
    if (err != FILCH_OK) goto no_registry;
    err = parts_init(sched, &mem);
    if (err != FILCH_OK) goto no_parts;
    if (sim == NULL) err = threads_start(sched);
    if (err != FILCH_OK) goto no_threads;
    *out = sched;
    return FILCH_OK;
no_threads:
    fli_workpool_close(&sched->workpool);
    fli_sched_free(sched);
    return err;
no_parts:
    filch_registry_destroy(sched->registry);
no_registry:
    fli_cap_end(&mem);
    fli_free_aligned(&mem, sched, sizeof *sched, FLI_LINE);
    fli_cap_drop(&mem);
    return err;
}

filch_memory filch_sched_memory(const filch_sched *sched)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    if (sched != NULL) mem = sched->rt.mem;
    return (filch_memory){ .alloc = mem.alloc, .user = mem.user };
}
