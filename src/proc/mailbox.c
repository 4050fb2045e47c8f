/* mailbox.c - see mailbox.h.
 *
 * INVARIANT  the node named by the head of the state word is never given back to the slab. Otherwise the node could
 *            be reused and pushed to this process again, and the worker would mistake the new event for the event
 *            that it has already taken. The last node delivered stays HEAD_HELD until the head has moved on, or
 *            settling has cleared it.
 * INVARIANT  a private list is a ring: the list's handle is the newest node, and the `next` of the newest node is
 *            the oldest node.
 *
 * No lane starves another. Completions and notices are delivered before messages, and may fill a batch. If they do
 * while messages wait, the oldest message is marked FLI_NODE_PASSED, and the next batch keeps one slot for it. So of
 * two successive steps that may get messages, one gets a message; completions get at least batch_max slots of the two.
 * A cancel is not put off: with a batch_max of 1, a step that gets a cancel gets nothing else and does not count.
 *
 * Design: docs/design/mailbox-fast-paths.md.
 */
#include "proc/mailbox.h"

#include "payload/data.h"
#include "proc/limit.h"
#include "proc/log.h"
#include "proc/values.h"
#include "proc/yields.h"

void fli_mail_append(fli_runtime *rt, uint32_t *ring, fli_event_node *node)
{
    if (*ring == 0) {
        node->next = node->self;
    } else {
        fli_event_node *newest = fli_node_at(rt, *ring);
        node->next = newest->next;
        newest->next = node->self;
    }
    *ring = node->self;
}

void fli_mail_list_inline_result(fli_local *worker)
{
    fli_event_node    *node = worker->inline_node;
    const filch_event *result = worker->inline_result;
    node->error = result->error;
    fli_node_put_data(node, &result->data);
    fli_mail_append(worker->rt, &worker->current->completions, node);
    worker->inline_node = NULL;
    fli_count(&worker->counters.completions, 1);
}

/* Puts `node` at the front of the list `ring`. */
static void prepend(fli_runtime *rt, uint32_t *ring, fli_event_node *node)
{
    uint32_t newest = *ring;
    fli_mail_append(rt, ring, node);
    if (newest != 0) *ring = newest;
}

static bool is_notice(const fli_event_node *node, filch_event_type type)
{
    return (node->what & FLI_NODE_SYSTEM) != 0 && (node->notice & ((1u << FLI_NOTICE_HOST) - 1)) == (uint32_t)type;
}

/* Sorts a notice into the private lists: a cancel goes to the front of the completions, but the cancel that a stop
 * sends goes behind the messages, if there are any; every other notice goes to the end of the completions. A failed
 * link sets LINK_FAILED if the process does not trap links. */
static __attribute__((noinline)) void sort_notice(fli_runtime *rt, fli_proc *p, fli_event_node *node)
{
    if (is_notice(node, FILCH_EVENT_CANCEL)) {
        bool polite = (node->what & FLI_NODE_AFTER_MESSAGES) != 0;
        if (polite) p->flags |= FLI_PROC_STOP_SENT;
        if (polite && p->messages != 0) fli_mail_append(rt, &p->messages, node);
        else prepend(rt, &p->completions, node);
        return;
    }
    bool traps = (p->flags & FLI_PROC_TRAPS) != 0;
    if (is_notice(node, FILCH_EVENT_LINK_DOWN) && !traps) p->flags |= FLI_PROC_LINK_FAILED;
    fli_mail_append(rt, &p->completions, node);
}

filch_err fli_mail_link_reason(fli_runtime *rt, const fli_proc *p)
{
    fli_event_node *newest = fli_node_at(rt, p->completions), *node = newest;
    do {
        node = fli_node_at(rt, node->next);
        if (!is_notice(node, FILCH_EVENT_LINK_DOWN)) continue;
        filch_data data = { .kind = FILCH_KIND_NONE };
        fli_node_get_data(node, &data);
        return node->error == FILCH_ELINK ? (filch_err)filch_as_int(&data) : node->error;
    } while (node != newest);
    return FILCH_OK;
}

static fli_event_node *take_oldest(fli_runtime *rt, uint32_t *ring)
{
    fli_event_node *newest = fli_node_at(rt, *ring), *oldest = fli_node_at(rt, newest->next);
    if (oldest == newest) *ring = 0;
    else newest->next = oldest->next;
    return oldest;
}

/* Gives `node` back to the slab. But if the mailbox head still names `node`, sets HEAD_HELD instead. */
static void let_go(fli_runtime *rt, fli_local *worker, fli_proc *p, fli_event_node *node)
{
    if (node->self == p->head_taken) p->flags |= FLI_PROC_HEAD_HELD;
    else fli_node_give(rt, worker, node);
}

static void free_payload(fli_event_node *node)
{
    if (fli_node_is_short(node)) return; /* a value */
    filch_data data = { .kind = FILCH_KIND_NONE };
    fli_node_get_data(node, &data);
    fli_data_free(&data);
}

/* Appends the list `later` to the list `ring`. */
static void join(fli_runtime *rt, uint32_t *ring, uint32_t later)
{
    if (*ring != 0 && later != 0) {
        fli_event_node *newest = fli_node_at(rt, *ring), *newest_later = fli_node_at(rt, later);
        uint32_t        oldest = newest->next;
        newest->next = newest_later->next;
        newest_later->next = oldest;
    }
    if (later != 0) *ring = later;
}

/* Returns the oldest node of the list `ring`, which is not empty. */
static fli_event_node *oldest_of(fli_runtime *rt, uint32_t ring)
{
    return fli_node_at(rt, fli_node_at(rt, ring)->next);
}

/* If the oldest message is the cancel that a stop sends, moves it to the front of the completions: it becomes the first
 * event of the next step. */
static void bring_forward(fli_runtime *rt, fli_proc *p)
{
    if (FLI_UNLIKELY((oldest_of(rt, p->messages)->what & FLI_NODE_AFTER_MESSAGES) != 0))
        prepend(rt, &p->completions, take_oldest(rt, &p->messages));
}

/* Drops the oldest messages of a drop-oldest mailbox until it is within its limit. Messages of timers, which
 * do not count against the limit, are kept. */
static void trim(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    uint32_t     gen = fli_word_gen(fli_state_peek(&p->state)), spared = 0;
    uint8_t      passed = 0;
    fli_runtime *fast_rt = worker->fast_rt;
    /* The loop frees payloads. A payload's free function is code of the program that runs outside a step, so it must
     * not yield: while `closing` is set, yields are refused. */
    worker->closing = true;
    worker->fast_rt = FLI_NO_FAST_RT;
    while (p->messages != 0 && fli_limit_excess(p) > 0) {
        fli_event_node *node = take_oldest(rt, &p->messages);
        passed |= node->what & FLI_NODE_PASSED;
        if ((node->what & FLI_NODE_COUNTED) == 0) {
            fli_mail_append(rt, &spared, node);
            continue;
        }
        filch_data data = { .kind = FILCH_KIND_NONE };
        fli_node_get_data(node, &data);
        /* With the drop-oldest policy no sender waits. But a sender with a stale pid of the previous process of the
         * slot may have set WAITING without need; hooks.room clears it. */
        if (fli_limit_release(p, gen, 1, fli_limit_units(fli_data_bytes(&data)))) rt->hooks.room(rt, p);
        fli_limit_dropped(p, gen, 1);
        FLI_TALLY(rt, worker, dropped, 1);
        fli_data_free(&data);
        let_go(rt, worker, p, node);
    }
    worker->closing = false;
    worker->fast_rt = fast_rt;
    join(rt, &spared, p->messages);
    p->messages = spared;
    if (spared == 0) return;
    /* If a message with the mark PASSED was removed, the mark goes to the message that is the oldest now: the next step
     * must get a message. */
    oldest_of(rt, spared)->what |= passed;
    bring_forward(rt, p);
}

/* Prefetches the node that comes 8 nodes later in a list, if the nodes of the list have equal distances in memory, as
 * in a backlog from senders that took turns. Otherwise the address is garbage, which is harmless: a prefetch never
 * faults. A backlog of 2,000,000 numbers took 13 % more CPU time without this. */
static inline void prefetch_ahead(const fli_event_node *before, const fli_event_node *node)
{
    uintptr_t at = (uintptr_t)node, distance = at - (uintptr_t)before;
    __builtin_prefetch((const void *)(at + 8 * distance));
}

/* Counts `node` as a remote event if it is a message that another worker sent. */
static void count_remote(fli_local *worker, const fli_event_node *node)
{
    if ((node->what & (FLI_NODE_COMPLETION | FLI_NODE_SYSTEM)) == 0 && node->sender_worker != 0)
        worker->remote_events++;
}

void fli_mail_unstack(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t head)
{
    if (head == p->head_taken) return;
    uint32_t held = fli_mail_held_head(p), at = head, stop = p->head_taken;
    p->flags &= (uint8_t)~FLI_PROC_HEAD_HELD;
    p->head_taken = head;

    /* Reverses the list of new nodes, which runs from the newest to the oldest. The loop compares `sender_worker` in
     * every full node, although only messages have that field. This saves a check of the kind, and does no harm:
     * count_remote() ignores nodes that are not messages. */
    uint32_t        turned = 0, number = worker->number;
    uint8_t         kinds = 0;
    fli_slab_block  block = { 0, 0 };
    fli_event_node *before = NULL;
    while (at != stop) {
        fli_event_node *node = fli_node_next(rt, &block, at);
        prefetch_ahead(before, node);
        before = node;
        uint32_t older = node->next;
        node->next = turned;
        kinds |= node->what;
        if (!fli_node_is_short(node) && node->sender_worker != number) count_remote(worker, node);
        turned = at;
        at = older;
    }
    if (FLI_LIKELY((kinds & (FLI_NODE_COMPLETION | FLI_NODE_SYSTEM)) == 0)) {
        /* All new nodes are messages. Links the newest message, which is the head, to the oldest: the list is now a
         * ring. */
        fli_node_at(rt, head)->next = turned;
        join(rt, &p->messages, head);
        turned = 0;
    }
    while (turned != 0) {
        fli_event_node *node = fli_node_at(rt, turned);
        turned = node->next;
        if (FLI_UNLIKELY((node->what & FLI_NODE_SYSTEM) != 0)) sort_notice(rt, p, node);
        else fli_mail_append(rt, (node->what & FLI_NODE_COMPLETION) != 0 ? &p->completions : &p->messages, node);
    }
    /* The head no longer names the held node, so the held node can be freed. */
    if (held != 0) fli_node_give(rt, worker, fli_node_at(rt, held));
    bool drops = fli_load_rlx(&p->overflow) == FILCH_OVERFLOW_DROP_OLDEST;
    if (drops && (fli_state_peek(&p->state) & FLI_LIMITED) != 0) trim(rt, worker, p);
}

/* Fills an event from a notice. Not inlined, because few processes get notices. */
static __attribute__((noinline)) void fill_notice(fli_runtime *rt, const fli_event_node *node, filch_event *event)
{
    uint32_t host = node->notice >> FLI_NOTICE_HOST;
    uint64_t node_id = host == 0 ? rt->node_id : rt->model_ops->node_of(rt, host - 1);
    event->type = (int32_t)(node->notice & ((1u << FLI_NOTICE_HOST) - 1));
    event->error = node->error;
    event->tag = node->tag;
    event->from = node->about != 0 ? (filch_pid){ node_id, node->about } : (filch_pid){ 0, 0 };
    fli_node_get_data(node, &event->data);
}

/* Fills an event from a completion, from a message in a short node, or from a message that is not plain. */
static void fill(fli_runtime *rt, const fli_event_node *node, filch_event *event)
{
    if (fli_node_is_short(node)) {
        *event = (filch_event){ .type = FILCH_EVENT_MESSAGE, .error = FILCH_OK };
        fli_node_get_short(node, &event->data);
        return;
    }
    bool completion = (node->what & FLI_NODE_COMPLETION) != 0, foreign = (node->what & FLI_NODE_FOREIGN) != 0;
    event->type = completion ? FILCH_EVENT_YIELD : FILCH_EVENT_MESSAGE;
    event->error = completion ? node->error : FILCH_OK;
    event->tag = foreign ? 0 : node->tag;
    event->from = (filch_pid){ 0, 0 };
    if (!completion && node->sender != 0) event->from = (filch_pid){ foreign ? node->tag : rt->node_id, node->sender };
    if ((node->what & FLI_NODE_TICK) != 0) {
        event->data = filch_int((int64_t)rt->hooks.ticks(rt, node->data[0]));
        return;
    }
    fli_node_get_data(node, &event->data);
}

filch_err fli_mail_cancel_reason(const fli_proc *p)
{
    filch_err reason = fli_values_cancelled(p->values);
    return reason != FILCH_OK ? reason : FILCH_ECANCELLED;
}

/* Fills an event that has no node: a cancel by flag, or a report of drops. */
static void fill_system(filch_event *event, filch_event_type type, filch_err error, filch_data data)
{
    *event = (filch_event){ .type = (int32_t)type, .error = error, .data = data };
}

/* Fills events from index `n` on from the cancels at the front of the completions, because cancels are delivered before
 * the report of drops. Returns the new number of events. */
static __attribute__((noinline)) uint32_t collect_cancels(fli_runtime *rt, fli_proc *p, filch_event *events,
                                                          fli_event_node **nodes, uint32_t n, uint32_t max)
{
    while (n < max && p->completions != 0) {
        fli_event_node *oldest = oldest_of(rt, p->completions);
        if (!is_notice(oldest, FILCH_EVENT_CANCEL)) break;
        nodes[n] = take_oldest(rt, &p->completions);
        fill_notice(rt, oldest, &events[n++]);
    }
    return n;
}

/* Fills events from index `n` on from the messages, but stops before the cancel that a stop sends. Returns the new
 * number of events. Requires that the list of messages is not empty. */
static uint32_t collect_messages(fli_runtime *rt, fli_proc *p, filch_event *events, fli_event_node **nodes, uint32_t n,
                                 uint32_t max)
{
    fli_event_node *newest = fli_node_at(rt, p->messages), *node = NULL;
    uint32_t        handle = newest->next;
    fli_slab_block  block = { 0, 0 };
    for (; n < max && node != newest; n++) {
        fli_event_node *next = fli_node_next(rt, &block, handle);
        prefetch_ahead(node, next);
        if (FLI_UNLIKELY((next->what & FLI_NODE_AFTER_MESSAGES) != 0)) break;
        node = next;
        nodes[n] = node;
        handle = node->next;
        if (FLI_LIKELY((node->what & ~FLI_NODE_COUNTED) == 0)) fli_event_fill_message(rt, node, &events[n]);
        else fill(rt, node, &events[n]);
    }
    if (node == newest) {
        p->messages = 0;
        return n;
    }
    newest->next = handle;
    bring_forward(rt, p);
    return n;
}

/* A batch has room for `max` events. Returns how many of them may be completions and notices: `max`; or one less if the
 * last batch passed over the oldest message, which must now get room. But a cancel at the front of the completions goes
 * before that message even if `max` is 1. Requires that the list of messages is not empty. */
static uint32_t room_for_completions(fli_runtime *rt, const fli_proc *p, uint32_t max)
{
    if (FLI_LIKELY((oldest_of(rt, p->messages)->what & FLI_NODE_PASSED) == 0)) return max;
    if (max > 1 || p->completions == 0) return max - 1;
    return is_notice(oldest_of(rt, p->completions), FILCH_EVENT_CANCEL) ? max : 0;
}

uint32_t fli_mail_collect(fli_runtime *rt, fli_proc *p, bool cancel, filch_event *events, fli_event_node **nodes,
                          uint32_t max)
{
    uint32_t n = 0;
    if (cancel) {
        nodes[n] = NULL;
        fill_system(&events[n++], FILCH_EVENT_CANCEL, fli_mail_cancel_reason(p), filch_none());
    }
    bool     waits = (p->flags & FLI_PROC_WAITING) != 0;
    bool     limited = (fli_state_peek(&p->state) & FLI_LIMITED) != 0;
    uint32_t room = p->messages != 0 && !waits ? room_for_completions(rt, p, max) : max;
    /* Reports drops only if another pending event still fits into the batch. Otherwise a process with a small batch
     * and many drops would receive nothing but reports of drops. */
    bool     report = n + 1 < room || (n < room && p->completions == 0 && p->messages == 0);
    uint32_t dropped = report && limited && !waits ? fli_limit_take_dropped(p) : 0;
    if (dropped != 0) {
        n = collect_cancels(rt, p, events, nodes, n, room - 1);
        fli_count(&p->drops_reported, dropped);
        nodes[n] = NULL;
        fill_system(&events[n++], FILCH_EVENT_DROPPED, FILCH_OK, filch_int(dropped));
        fli_log(rt, FILCH_LOG_WARNING, (filch_pid){ rt->node_id, fli_proc_serial(p) }, fli_type_name(fli_proc_type(p)),
                FILCH_EDROPPED, "its mailbox was full: %u messages were dropped", dropped);
    }
    while (n < room && p->completions != 0) {
        fli_event_node *node = take_oldest(rt, &p->completions);
        nodes[n] = node;
        if (FLI_UNLIKELY((node->what & FLI_NODE_SYSTEM) != 0)) {
            fill_notice(rt, node, &events[n++]);
            continue;
        }
        fli_yield_close(rt, p, node);
        fill(rt, node, &events[n++]);
    }
    if (p->messages == 0 || waits) return n;
    fli_event_node *oldest = oldest_of(rt, p->messages);
    if (FLI_UNLIKELY(n == max)) {
        oldest->what |= FLI_NODE_PASSED;
        return n;
    }
    if (FLI_UNLIKELY(room < max)) oldest->what &= (uint8_t)~FLI_NODE_PASSED;
    return collect_messages(rt, p, events, nodes, n, max);
}

void fli_mail_release(fli_runtime *rt, fli_local *worker, fli_proc *p, filch_event *events,
                      fli_event_node *const *nodes, uint32_t count)
{
    uint32_t left = 0, units = 0;
    if (FLI_LIKELY((fli_state_peek(&p->state) & FLI_LIMITED) == 0)) {
        /* The mailbox has no limit, so no node has FLI_NODE_COUNTED. The loop therefore frees the nodes without reading
         * them. */
        const fli_event_node *seen = p->head_taken != 0 ? fli_node_at(rt, p->head_taken) : NULL;
        for (uint32_t i = 0; i < count; i++) {
            if (!fli_data_is_value_form(&events[i].data)) fli_data_free(&events[i].data);
            if (nodes[i] == NULL) continue;
            if (FLI_UNLIKELY(nodes[i] == seen)) p->flags |= FLI_PROC_HEAD_HELD;
            else fli_node_give(rt, worker, nodes[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        fli_event_node *node = nodes[i];
        if (node == NULL) continue;
        if ((node->what & FLI_NODE_COUNTED) != 0) {
            left++;
            units += fli_limit_units(fli_data_bytes(&events[i].data));
        }
        if (!fli_data_is_value_form(&events[i].data)) fli_data_free(&events[i].data);
        let_go(rt, worker, p, node);
    }
    if (left > 0 && fli_limit_release(p, fli_word_gen(fli_state_peek(&p->state)), left, units)) rt->hooks.room(rt, p);
}

bool fli_mail_advance_cancel(fli_runtime *rt, fli_proc *p)
{
    uint32_t        kept = 0;
    fli_event_node *cancel = NULL;
    while (p->messages != 0) {
        fli_event_node *node = take_oldest(rt, &p->messages);
        if (cancel == NULL && (node->what & FLI_NODE_AFTER_MESSAGES) != 0) cancel = node;
        else fli_mail_append(rt, &kept, node);
    }
    p->messages = kept;
    if (cancel != NULL) prepend(rt, &p->completions, cancel);
    return cancel != NULL;
}

uint32_t fli_mail_discard(fli_runtime *rt, fli_local *worker, fli_proc *p, uint64_t last)
{
    /* fli_mail_unstack() does not trim the mailbox here, because the word of an ended process has no LIMITED bit */
    fli_mail_unstack(rt, worker, p, fli_word_head(last));
    uint32_t held = fli_mail_held_head(p);
    if (held != 0) fli_node_give(rt, worker, fli_node_at(rt, held));
    p->flags &= (uint8_t)~FLI_PROC_HEAD_HELD;
    p->head_taken = 0;
    while (p->completions != 0) {
        fli_event_node *node = take_oldest(rt, &p->completions);
        free_payload(node);
        if ((node->what & FLI_NODE_SYSTEM) != 0) fli_node_give(rt, worker, node);
        else fli_yield_drop(rt, worker, node);
    }
    uint32_t unread = 0;
    while (p->messages != 0) {
        fli_event_node *node = take_oldest(rt, &p->messages);
        if ((node->what & FLI_NODE_SYSTEM) == 0) unread++;
        free_payload(node);
        fli_node_give(rt, worker, node);
    }
    return unread;
}
