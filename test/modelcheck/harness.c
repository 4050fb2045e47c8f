/* harness.c - see harness.h. */
#include "harness.h"

#include <string.h>

harness *b;

static void on_ready(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    (void)rt, (void)worker;
    b->woke[fli_weak_self]++;
    harness_drive(p);
}

static filch_err on_ready_local(fli_local *worker, fli_proc *p)
{
    on_ready(worker->rt, worker, p);
    return FILCH_OK;
}

static void on_abandon(fli_runtime *rt, uint64_t cookie)
{
    (void)rt, (void)cookie;
}

static uint64_t on_ticks(fli_runtime *rt, uint64_t ticker)
{
    (void)rt;
    return ticker;
}

static void on_room(fli_runtime *rt, fli_proc *p)
{
    fli_send_waiters_retry(&b->room, rt, p);
}

static void on_no_room(fli_runtime *rt, fli_proc *p)
{
    fli_waiting detached = fli_send_waiters_detach(&b->room, p);
    fli_send_waiters_refuse(rt, &detached, UINT32_MAX);
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

void harness_setup(void)
{
    b = fli_weak_new(sizeof *b);
    fli_mem_init(&b->rt.mem, fli_weak_alloc, NULL);
    b->rt.node_id = HARNESS_NODE;
    b->rt.hooks.ready = on_ready;
    b->rt.hooks.abandon = on_abandon;
    b->rt.hooks.ticks = on_ticks;
    b->rt.hooks.room = on_room;
    b->rt.hooks.no_room = on_no_room;
    (void)!fli_slab_init(&b->rt.nodes, &b->rt.mem, sizeof(fli_event_node), 1000, make_node);
    (void)!fli_slab_init(&b->rt.short_nodes, &b->rt.mem, FLI_SHORT_NODE_SIZE, 1000, make_short_node);
    (void)!fli_slab_init(&b->rt.procs, &b->rt.mem, sizeof(fli_proc), 1000, make_proc);
    (void)!fli_send_waiters_init(&b->room);
    /* Each thread gets spare event nodes in its magazine, so that it need not lock the depot. */
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) {
        fli_local *worker = &b->worker[i];
        worker->rt = &b->rt;
        worker->index = i;
        worker->number = i + 1;
        /* `serial` must not be 0, because the fast path of a send requires that the worker is inside a step */
        worker->serial = i + 1;
        worker->fast_rt = &b->rt;
        worker->ready = on_ready_local;
        fli_slab_give(&b->rt.nodes, &worker->nodes, fli_slab_take(&b->rt.nodes, &worker->nodes));
    }
    b->worker[0].procs.count = 0;
}

fli_local *harness_worker(void)
{
    fli_local *worker = &b->worker[fli_weak_self];
    if (fli_weak_self != 0) fli_current_set(worker);
    return worker;
}

fli_proc *harness_spawn(uint32_t mailbox_max, filch_overflow overflow)
{
    fli_proc *p = fli_slab_take(&b->rt.procs, &harness_worker()->procs);
    uint32_t  gen = fli_word_gen(fli_state_peek(&p->state));
    p->head_taken = p->completions = p->messages = p->yield_count = 0;
    p->flags = 0;
    fli_store_rlx(&p->mailbox_max, mailbox_max);
    fli_store_rlx(&p->mailbox_units, 0);
    fli_store_rlx(&p->overflow, (uint8_t)overflow);
    memset(harness_life_of(p), 0, sizeof(harness_life));
    fli_limit_open(p, gen);
    fli_state_open(&p->state, gen, mailbox_max != 0);
    return p;
}

harness_life *harness_life_of(fli_proc *p)
{
    must(p->slot < 8, "a slot number below 8");
    return &b->lives[p->slot];
}

filch_pid harness_pid(fli_proc *p)
{
    return (filch_pid){ HARNESS_NODE, fli_proc_serial(p) };
}

uint32_t harness_sum(const uint32_t *by_thread)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) sum += by_thread[i];
    return sum;
}

static void receive(harness_life *life, const filch_event *event)
{
    switch (event->type) {
    case FILCH_EVENT_CANCEL:
        life->cancels++;
        if (b->noted) must(b->note == 7, "a write before a cancel is seen");
        if (b->on_cancel != NULL) b->note_seen = b->on_cancel();
        return;
    case FILCH_EVENT_YIELD:
        life->yields_completed++;
        life->completion = event->data.kind == FILCH_KIND_INT ? event->data.as.i : -1;
        life->completion_error = (uint32_t)event->error;
        return;
    default: break;
    }
    uint32_t sender = (uint32_t)event->data.as.i / 16, n = (uint32_t)event->data.as.i % 16;
    must(event->type == FILCH_EVENT_MESSAGE && sender <= FLI_WEAK_THREADS, "a message arrives unchanged");
    must(n > life->last[sender], "messages of one sender keep their order, and none arrives twice");
    life->last[sender] = n;
    life->received++;
}

bool harness_settle(fli_proc *p, unsigned settle_to)
{
    uint32_t      seen = p->head_taken, held = fli_mail_held_head(p);
    uint8_t       flags = p->flags;
    harness_life *life = harness_life_of(p);
    p->head_taken = 0;
    p->flags &= (uint8_t)~FLI_PROC_HEAD_HELD;
    life->inside--;
    if (fli_state_settle(&p->state, seen, settle_to) == FLI_SETTLED) {
        if (held != 0) fli_node_give(&b->rt, harness_worker(), fli_node_at(&b->rt, held));
        b->slept[fli_weak_self]++;
        return true;
    }
    life->inside++;
    p->head_taken = seen;
    p->flags = flags;
    return false;
}

void harness_finish(fli_proc *p)
{
    fli_local    *worker = harness_worker();
    uint64_t      serial = fli_proc_serial(p);
    bool          limited = (fli_state_peek(&p->state) & FLI_LIMITED) != 0;
    harness_life *life = harness_life_of(p);
    fli_yield_abandon(&b->rt, worker, p);
    b->unread[fli_weak_self] += fli_mail_discard(&b->rt, worker, p, fli_state_finish(&p->state));
    if (limited && (fli_limit_close(p, fli_serial_gen(serial)) & FLI_LOAD_WAITING) != 0) on_no_room(&b->rt, p);
    life->ended = true;
    life->inside--;
    if (fli_state_free(&p->state)) fli_slab_give(&b->rt.procs, &worker->procs, p);
}

bool harness_exit(fli_proc *p, uint64_t word)
{
    harness_life *life = harness_life_of(p);
    life->ended = true;
    life->inside--;
    if (fli_state_exit(&p->state, word)) {
        fli_slab_give(&b->rt.procs, &harness_worker()->procs, p);
        return true;
    }
    life->ended = false;
    life->inside++;
    return false;
}

/* Reads messages as the fast path in sched/step.c does for a process that is ACTIVE_ONE. Returns true if the process
 * has settled or ended. */
static bool drive_active_one(fli_proc *p, uint64_t word)
{
    fli_local      *worker = harness_worker();
    fli_event_node *node = fli_node_at(&b->rt, fli_word_head(word));
    filch_event     event;
    fli_event_prefill(&b->rt, &event);
    fli_event_fill_value(node, &event);
    receive(harness_life_of(p), &event);
    if (b->ends) {
        if (harness_exit(p, word)) {
            fli_node_give(&b->rt, worker, node);
            return true;
        }
        p->head_taken = node->self;
        p->flags |= FLI_PROC_HEAD_HELD;
        harness_finish(p);
        return true;
    }
    harness_life_of(p)->inside--;
    if (fli_state_settle_one(&p->state, word) == FLI_SETTLED) {
        fli_node_give(&b->rt, worker, node);
        b->slept[fli_weak_self]++;
        return true;
    }
    harness_life_of(p)->inside++;
    p->head_taken = node->self;
    p->flags |= FLI_PROC_HEAD_HELD;
    return false;
}

/* Reads messages as sched/step.c does if the mailbox holds only messages, without completions and notices. Returns true
 * if the process has settled. Sets *more if it has read any message. */
static bool drive_values(fli_proc *p, uint64_t word, bool *more)
{
    enum { ROOM = 4, MOST = 2 };
    fli_local      *worker = harness_worker();
    fli_event_node *room[ROOM], **nodes;
    bool            bytes = false;
    uint32_t        count = fli_mail_take_plain(&b->rt, p, word, room, ROOM, &bytes), get = count < MOST ? count : MOST;
    *more = count > 0;
    if (count == 0) return false;
    uint32_t held = fli_mail_held_head(p);
    nodes = &room[ROOM - count];
    for (uint32_t i = 0; i < get; i++) {
        filch_event event;
        fli_event_fill_message(&b->rt, nodes[i], &event);
        receive(harness_life_of(p), &event);
    }
    p->flags = 0;
    p->head_taken = 0;
    if (held != 0) fli_node_give(&b->rt, worker, fli_node_at(&b->rt, held));
    if ((word & FLI_LIMITED) != 0 && fli_limit_release(p, fli_word_gen(word), get, 0)) on_room(&b->rt, p);
    harness_life_of(p)->inside--;
    if (get == count && fli_state_settle_from(&p->state, word, FLI_IDLE) == FLI_SETTLED) {
        fli_slab_give_many(&b->rt.nodes, &worker->nodes, (void *const *)nodes, count);
        b->slept[fli_weak_self]++;
        return true;
    }
    harness_life_of(p)->inside++;
    p->head_taken = nodes[get - 1]->self;
    p->flags |= FLI_PROC_HEAD_HELD;
    fli_slab_give_many(&b->rt.nodes, &worker->nodes, (void *const *)nodes, get - 1);
    return false;
}

void harness_drive(fli_proc *p)
{
    fli_local      *worker = harness_worker();
    harness_life   *life = harness_life_of(p);
    filch_event     events[4];
    fli_event_node *nodes[4];
    must(life->inside++ == 0, "only one worker at a time steps a process");
    for (;;) {
        uint64_t word = fli_state_look(&p->state);
        must(fli_word_state(word) == FLI_ACTIVE, "a process is ACTIVE while a worker owns it");
        if ((word & FLI_KILL) != 0) {
            if (b->noted) must(b->note == 7, "a write before a kill is seen");
            harness_finish(p);
            return;
        }
        if (b->fast && (word & FLI_CANCEL) == 0) {
            bool more;
            if ((word & FLI_ONE_BIT) != 0 && (word & FLI_LIMITED) == 0 && fli_proc_has_no_pending(p)) {
                if (drive_active_one(p, word)) return;
                continue;
            }
            if (drive_values(p, word, &more)) return;
            if (more) continue;
        }
        fli_mail_unstack(&b->rt, worker, p, fli_word_head(word));
        if ((word & FLI_CANCEL) != 0) fli_state_take_cancel(&p->state);
        uint32_t n = fli_mail_collect(&b->rt, p, (word & FLI_CANCEL) != 0, events, nodes, 4);
        for (uint32_t i = 0; i < n; i++) receive(life, &events[i]);
        fli_mail_release(&b->rt, worker, p, events, nodes, n);
        if (p->yield_count == 0) p->flags &= (uint8_t)~FLI_PROC_WAITING;
        bool waits = (p->flags & FLI_PROC_WAITING) != 0;
        if (p->completions != 0 || (p->messages != 0 && !waits)) continue;
        if (harness_settle(p, waits ? FLI_BLOCKED : FLI_IDLE)) return;
    }
}

void harness_send(filch_pid to, uint32_t n)
{
    filch_data data = filch_int((int64_t)(fli_weak_self * 16 + n));
    fli_local *worker = harness_worker();
    filch_err  err = b->fast ? filch_send((filch_sched *)&b->rt, to, data)
                             : fli_send(&b->rt, worker, to, (filch_pid){ 0, 0 }, &data);
    if (err == FILCH_OK) b->accepted[fli_weak_self]++;
    else b->refused[fli_weak_self]++;
    must(err == FILCH_OK || err == FILCH_EDEAD || err == FILCH_EFULL, "a send is accepted or refused");
}

void harness_check_nodes(void)
{
    uint32_t made = fli_load_rlx(&b->rt.nodes.fresh) - 1;
    bool     seen[64] = { 0 };
    uint32_t found = 0;
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) {
        const fli_magazine *m = &b->worker[i].nodes;
        for (uint32_t k = 0; k < m->count; k++, found++) {
            uint32_t handle = ((const fli_event_node *)m->objects[k])->self;
            must(!seen[handle], "no node is freed twice");
            seen[handle] = true;
        }
    }
    for (uint32_t k = 0; k < b->rt.nodes.spare_count; k++, found++) {
        uint32_t handle = ((const fli_event_node *)b->rt.nodes.spare[k])->self;
        must(!seen[handle], "no node is freed twice");
        seen[handle] = true;
    }
    /* `stored` is added without a check: the slab itself asserts that no node is stored twice */
    found += b->rt.nodes.stored;
    must(found == made, "every node is freed");
}
