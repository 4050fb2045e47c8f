/* bench_runtime.h - a runtime without a scheduler, for tests of the lower modules: it has memory, slabs, counters, and
 * hooks that only record their calls. The test acts as the worker that owns the processes. */
#ifndef FILCH_TEST_BENCH_RUNTIME_H
#define FILCH_TEST_BENCH_RUNTIME_H

#include <string.h>

#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "support/alloc.h"
#include "support/check.h"

#define BENCH_NODE 77u
#define BENCH_EVENTS 64

typedef struct bench {
    fli_runtime rt; /* must be the first member, because hooks cast a pointer to `rt` to a pointer to bench */
    test_alloc  alloc;
    fli_local   worker;
    /* The fields below are written by the hooks of `rt`. */
    FLI_ATOMIC(uint64_t) woken;
    FLI_ATOMIC(uint64_t) abandoned;
    uint64_t             cookie, room, no_room, ticks;
    fli_proc            *last_woken;
} bench;

static inline void bench_on_ready(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    bench *b = (bench *)rt;
    fli_add_rlx(&b->woken, 1);
    if (worker != NULL) b->last_woken = p;
}

static inline void bench_on_abandon(fli_runtime *rt, uint64_t cookie)
{
    bench *b = (bench *)rt;
    fli_add_rlx(&b->abandoned, 1);
    b->cookie = cookie;
}

static inline uint64_t bench_on_ticks(fli_runtime *rt, uint64_t ticker)
{
    return ((bench *)rt)->ticks + ticker;
}

static inline void bench_on_room(fli_runtime *rt, fli_proc *p)
{
    (void)p;
    ((bench *)rt)->room++;
}

static inline void bench_on_no_room(fli_runtime *rt, fli_proc *p)
{
    (void)p;
    ((bench *)rt)->no_room++;
}

static inline void bench_make_node(void *object, uint32_t handle)
{
    ((fli_event_node *)object)->self = handle;
}

static inline void bench_make_short_node(void *object, uint32_t handle)
{
    ((fli_event_node *)object)->self = handle | FLI_SHORT_BIT;
}

static inline void bench_make_proc(void *object, uint32_t handle)
{
    fli_proc *p = object;
    p->slot = handle;
    fli_store_rlx(&p->state, fli_word_make(1, FLI_FREE, 0));
}

static inline void bench_begin(bench *b)
{
    memset(b, 0, sizeof *b);
    fli_mem_init(&b->rt.mem, test_alloc_fn, &b->alloc);
    b->rt.node_id = BENCH_NODE;
    b->rt.hooks = (fli_hooks){ .ready = bench_on_ready,
                               .abandon = bench_on_abandon,
                               .ticks = bench_on_ticks,
                               .room = bench_on_room,
                               .no_room = bench_on_no_room };
    b->worker.rt = &b->rt;
    ok(fli_slab_init(&b->rt.nodes, &b->rt.mem, sizeof(fli_event_node), UINT32_MAX - 1, bench_make_node));
    ok(fli_slab_init(&b->rt.short_nodes, &b->rt.mem, FLI_SHORT_NODE_SIZE, FLI_SHORT_BIT - 1, bench_make_short_node));
    ok(fli_slab_init(&b->rt.procs, &b->rt.mem, sizeof(fli_proc), 1000, bench_make_proc));
    fli_current_set(&b->worker);
}

/* Returns the number of event nodes in use, that is, neither in the depot nor in the magazine of b->worker. */
static inline uint32_t bench_nodes_out(bench *b)
{
    const fli_slab *nodes = &b->rt.nodes, *short_nodes = &b->rt.short_nodes;
    uint32_t        full = fli_load_rlx(&b->rt.nodes.fresh) - 1 - nodes->spare_count - nodes->stored;
    uint32_t        brief = fli_load_rlx(&b->rt.short_nodes.fresh) - 1 - short_nodes->spare_count - short_nodes->stored;
    return full - b->worker.nodes.count + brief - b->worker.short_nodes.count;
}

/* Ends the test's runtime. Checks that all event nodes and all memory were returned. */
static inline void bench_end(bench *b)
{
    same(bench_nodes_out(b), 0);
    fli_current_set(NULL);
    fli_slab_fini(&b->rt.procs);
    fli_slab_fini(&b->rt.short_nodes);
    fli_slab_fini(&b->rt.nodes);
    test_alloc_balanced(&b->alloc);
}

/* Creates a process as filch_spawn() does: ACTIVE and owned by the caller. `max` 0 and `units` 0: no limit. */
static inline fli_proc *bench_spawn(bench *b, uint32_t max, uint32_t units, filch_overflow overflow)
{
    fli_proc *p = fli_slab_take(&b->rt.procs, &b->worker.procs);
    assert_non_null(p);
    uint32_t gen = fli_word_gen(fli_state_peek(&p->state));
    p->head_taken = p->completions = p->messages = p->yield_count = 0;
    p->flags = 0;
    fli_store_rlx(&p->mailbox_max, max);
    fli_store_rlx(&p->mailbox_units, units);
    fli_store_rlx(&p->overflow, (uint8_t)overflow);
    fli_store_rlx(&p->drops_reported, 0);
    fli_limit_open(p, gen);
    fli_state_open(&p->state, gen, max != 0 || units != 0);
    return p;
}

static inline uint32_t bench_gen(fli_proc *p)
{
    return fli_word_gen(fli_state_peek(&p->state));
}

static inline filch_pid bench_pid(fli_proc *p)
{
    return (filch_pid){ BENCH_NODE, fli_proc_serial(p) };
}

/* Moves new events of `p` from the stack behind its state word to its private lists. */
static inline void bench_unstack(bench *b, fli_proc *p)
{
    fli_mail_unstack(&b->rt, &b->worker, p, fli_word_head(fli_state_look(&p->state)));
}

/* Settles `p` as a worker does, and frees the mailbox head node if it was read but not freed yet. Returns false if an
 * event has arrived; then the caller still owns `p`. */
static inline bool bench_settle(bench *b, fli_proc *p, unsigned settle_to)
{
    uint32_t seen = p->head_taken, held = fli_mail_held_head(p);
    uint8_t  flags = p->flags;
    p->head_taken = 0;
    p->flags &= (uint8_t)~FLI_PROC_HEAD_HELD;
    if (fli_state_settle(&p->state, seen, settle_to) == FLI_SETTLED) {
        if (held != 0) fli_node_give(&b->rt, &b->worker, fli_node_at(&b->rt, held));
        return true;
    }
    p->head_taken = seen;
    p->flags = flags;
    return false;
}

/* Ends `p`: its yields, its mailbox, its limit, and its slot. Returns the number of unread messages. */
static inline uint32_t bench_finish(bench *b, fli_proc *p)
{
    uint32_t gen = bench_gen(p);
    fli_yield_abandon(&b->rt, &b->worker, p);
    uint32_t unread = fli_mail_discard(&b->rt, &b->worker, p, fli_state_finish(&p->state));
    (void)fli_limit_close(p, gen);
    if (fli_state_free(&p->state)) fli_slab_give(&b->rt.procs, &b->worker.procs, p);
    return unread;
}

#endif
