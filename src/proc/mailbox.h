/* mailbox.h - the events of one process. Any thread pushes nodes; the worker that owns the process unstacks and
 * delivers them.
 *
 * Pushed nodes form a stack behind the state word, newest first. Unstacking takes the new nodes off this stack: it
 * reverses their order and appends each to one of two private lists, completions and messages, each in order of
 * arrival. Notices of src/model (an exit, a failed link) go to the list of completions. A cancel with a reason goes to
 * the front of the completions; a cancel that a stop sends (FLI_NODE_AFTER_MESSAGES) goes behind the messages that are
 * queued. A cancel without a reason is the CANCEL bit of the state word and needs no node. Collecting fills the array
 * of events of a step: cancels, then completions and notices, then messages. Design: docs/design/mailbox-fast-paths.md.
 */
#ifndef FLI_PROC_MAILBOX_H
#define FLI_PROC_MAILBOX_H

#include <filch.h>

#include "payload/data.h"
#include "proc/runtime.h"
#include "proc/yields.h"

/* Pushes `node` to the mailbox of `p` if its process has the generation `gen`, and queues the process if the push woke
 * it. Returns FILCH_EDEAD if the process of `gen` has ended; then the caller still owns the node. */
FILCH_MUST_USE static inline filch_err fli_mail_post(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen,
                                                     fli_event_node *node)
{
    bool wakes = (node->what & (FLI_NODE_COMPLETION | FLI_NODE_SYSTEM)) != 0;
    switch (fli_state_push(&p->state, gen, node->self, &node->next, wakes)) {
    case FLI_DELIVERY_DEAD: return FILCH_EDEAD;
    case FLI_DELIVERY_WOKE: rt->hooks.ready(rt, worker, p); break;
    case FLI_DELIVERY_NOTED: break;
    }
    return FILCH_OK;
}

/* Unstacks the mailbox: moves its new nodes (from `head` back to the node after p->head_taken) to the private lists,
 * and trims a drop-oldest mailbox that is over its limit. `worker` is the worker that runs the process; it may be NULL
 * if there are no new nodes, as after a failed spawn. */
void fli_mail_unstack(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t head);

/* Appends `node` to the private list `ring`; used for a completion that needs no push. */
void fli_mail_append(fli_runtime *rt, uint32_t *ring, fli_event_node *node);

/* Returns true if there is an inline result: the handler that is running, or ran last, has completed its yield
 * synchronously with a value, which is in worker->inline_result and not in the list of completions yet. */
static inline bool fli_mail_has_inline_result(const fli_local *worker)
{
    return worker->inline_key == 0 && worker->inline_node != NULL;
}

/* Moves the inline result (worker->inline_result) to the list of completions of the current process. Requires
 * fli_mail_has_inline_result(). */
void fli_mail_list_inline_result(fli_local *worker);

/* Returns the reason of a cancel that carries none of its own: the reason of a cancelled scope of the process, or
 * FILCH_ECANCELLED. */
filch_err fli_mail_cancel_reason(const fli_proc *p);

/* Fills up to `max` events, and stores the node of each event in `nodes` (NULL for an event without a node). `cancel`:
 * the CANCEL flag was taken, and the first event is a cancel without a node. Returns the number of events. */
uint32_t fli_mail_collect(fli_runtime *rt, fli_proc *p, bool cancel, filch_event *events, fli_event_node **nodes,
                          uint32_t max);

/* Fills the fields of an event that are the same for every value message. fli_event_fill_value() fills the others. */
static inline void fli_event_prefill(fli_runtime *rt, filch_event *event)
{
    *event = (filch_event){ .type = FILCH_EVENT_MESSAGE, .error = FILCH_OK, .from = { rt->node_id, 0 } };
}

/* Fills the fields that differ between value messages. Requires an event prepared by fli_event_prefill(). */
static inline void fli_event_fill_value(const fli_event_node *node, filch_event *event)
{
    event->from.serial = node->sender;
    fli_node_get_value(node, &event->data);
}

/* Fills the fields that differ between plain messages. Requires an event prepared by fli_event_prefill(). */
static inline void fli_event_fill_plain(const fli_event_node *node, filch_event *event)
{
    event->from.serial = node->sender;
    fli_node_get_plain(node, &event->data);
}

static inline void fli_event_fill_message(fli_runtime *rt, const fli_event_node *node, filch_event *event)
{
    event->type = FILCH_EVENT_MESSAGE;
    event->error = FILCH_OK;
    event->tag = 0;
    event->from.node = rt->node_id;
    fli_event_fill_plain(node, event);
}

/* Frees the payload of a plain message after the step that received it, while its node is still in the mailbox. Makes
 * the payload in the node empty first: if the free function throws, torn.c frees the node and the payload in it. */
static inline void fli_event_free_plain(fli_event_node *node, filch_event *event)
{
    if (event->data.form != FLI_FORM_BLOCK) return;
    fli_node_put_value(node, FILCH_KIND_NONE, 0, 0);
    fli_data_free(&event->data);
}

/* Fast path: takes several plain messages without moving them to the private lists. Stores their nodes at the end of
 * nodes[0 .. room), oldest first. Sets *bytes to true if a message is not a value message. Returns the number of
 * messages, or 0 if the precondition does not hold.
 *   Precondition: the mailbox has only new plain messages (in a mailbox with a limit: only new value messages), at most
 *                 `room`. The process has no event in a private list and no flag except HEAD_HELD and YIELDS_HEAP.
 *   Skips:        unstacking and the private lists.
 *   Repeats:      the order of arrival: the stack is read from new to old and stored from the end.
 *   General path: fli_mail_unstack() and fli_mail_collect(). */
static inline uint32_t fli_mail_take_plain(fli_runtime *rt, const fli_proc *p, uint64_t word, fli_event_node **nodes,
                                           uint32_t room, bool *bytes)
{
    uint32_t at = fli_word_head(word), seen = p->head_taken, n = room;
    uint8_t  flags = p->flags & (uint8_t) ~(FLI_PROC_HEAD_HELD | FLI_PROC_YIELDS_HEAP);
    /* node->what of the messages that this function takes, at its place in fli_node_shape() */
    uint32_t       what = (word & FLI_LIMITED) != 0 ? (uint32_t)FLI_NODE_COUNTED << 24 : 0;
    fli_slab_block block = { 0, 0 };
    if (at == seen || (p->completions | p->messages | flags) != 0) return 0;
    do {
        fli_event_node *node = fli_node_next(rt, &block, at);
        if (FLI_UNLIKELY((fli_node_shape(node) ^ what) > FILCH_KIND_PTR || n == 0)) {
            if (node->what != 0 || what != 0 || n == 0) return 0;
            *bytes = true;
        }
        nodes[--n] = node;
        at = node->next;
    } while (at != seen);
    return room - n;
}

static inline void fli_event_fill_completion(const fli_event_node *node, filch_event *event)
{
    event->type = FILCH_EVENT_YIELD;
    event->error = node->error;
    event->tag = node->tag;
    event->from = (filch_pid){ 0, 0 };
    fli_node_get_data(node, &event->data);
}

/* Fast path: takes the synchronous completion of the only outstanding yield if it is the only event. Fills `event` and
 * returns the node, which the caller frees after the step; or NULL if the precondition does not hold.
 *   Precondition: the process waits and has one yield. Its list of completions holds only the completion of this yield,
 *                 and the node of this completion was never in the mailbox. The mailbox has no new node.
 *   Skips:        unstacking, and the order of the events in a batch: there is one event.
 *   Repeats:      INVARIANT close of step.c: fli_yield_close() closes the yield. INVARIANT head of step.c holds without
 *                 an action, because the node was never the mailbox head.
 *   General path: fli_mail_unstack() and fli_mail_collect(). */
static inline __attribute__((always_inline)) fli_event_node *
fli_mail_take_sync_completion(fli_runtime *rt, fli_proc *p, uint64_t word, filch_event *event)
{
    if (p->completions == 0 || p->yield_count != 1 || (p->flags & ~FLI_PROC_HEAD_HELD) != FLI_PROC_WAITING) return NULL;
    fli_event_node *node = fli_full_node_at(rt, p->completions);
    /* NULL if the list has more than one event, or if its event is a notice. */
    if (node->next != node->self || node->what != FLI_NODE_COMPLETION) return NULL;
    if (fli_word_head(word) != p->head_taken || node->self == p->head_taken)
        return NULL; /* NULL if a new event has arrived, or if the completion was pushed to the mailbox */
    p->completions = 0;
    fli_yield_close(rt, p, node);
    fli_event_fill_completion(node, event);
    return node;
}

/* Fast path: takes the asynchronous completion of the only outstanding yield if it is the only node in the mailbox, as
 * when a sleep ends. Fills `event` and returns the node, or NULL if the precondition does not hold.
 *   Precondition: the process waits, has one yield and no listed event. The head of `word` is the completion of this
 *                 yield, alone in the mailbox.
 *   Skips:        unstacking and the list of completions.
 *   Repeats:      INVARIANT close of step.c, by fli_yield_close(). INVARIANT head is left to the caller: it frees the
 *                 node after the CAS that replaces the head of `word`.
 *   General path: fli_mail_unstack() and fli_mail_collect(). */
static inline fli_event_node *fli_mail_take_async_completion(fli_runtime *rt, fli_proc *p, uint64_t word,
                                                             filch_event *event)
{
    if (p->flags != FLI_PROC_WAITING || p->yield_count != 1 || (p->head_taken | p->completions | p->messages) != 0)
        return NULL;
    if (fli_word_head(word) == 0) return NULL;
    fli_event_node *node = fli_node_at(rt, fli_word_head(word));
    /* Returns NULL if the mailbox has several nodes, or if its node is a message or a notice */
    if (node->next != 0 || node->what != FLI_NODE_COMPLETION) return NULL;
    p->flags = 0;
    fli_yield_close(rt, p, node);
    fli_event_fill_completion(node, event);
    return node;
}

/* Called after the step: frees the payloads and nodes of the events that the step got, and releases the space of the
 * messages among them in a mailbox with a limit. */
void fli_mail_release(fli_runtime *rt, fli_local *worker, fli_proc *p, filch_event *events,
                      fli_event_node *const *nodes, uint32_t count);

/* Returns true if the process must run again before it settles as `to`: it has listed completions, or `to` is
 * FLI_IDLE and it has listed messages or unreported drops. */
static inline bool fli_mail_has_pending(fli_proc *p, unsigned to)
{
    if (p->completions != 0) return true;
    return to == FLI_IDLE && (p->messages != 0 || (uint32_t)fli_load_rlx(&p->drops_pending) != 0);
}

/* Returns the handle of a node that has been delivered, but is not freed because the mailbox head still names it. 0:
 * there is none. The node is freed when the head no longer names it: after the settle, or when the head is a newer
 * node. */
static inline uint32_t fli_mail_held_head(const fli_proc *p)
{
    return (p->flags & FLI_PROC_HEAD_HELD) != 0 ? p->head_taken : 0;
}

/* Returns the reason with which a process with FLI_PROC_LINK_FAILED ends: the error of the first linked process that
 * failed; if this error is FILCH_ELINK, the number in the payload of the LINK_DOWN notice. */
filch_err fli_mail_link_reason(fli_runtime *rt, const fli_proc *p);

/* Moves the cancel that a stop sends (FLI_NODE_AFTER_MESSAGES) from the messages to the front of all events. Returns
 * false if the messages contain no such cancel. Thread: the owner. */
bool fli_mail_advance_cancel(fli_runtime *rt, fli_proc *p);

/* Returns true if an ending process has no node to free. `last` is the word that fli_state_finish() returned. */
static inline bool fli_mail_is_empty(const fli_proc *p, uint64_t last)
{
    return (fli_word_head(last) | p->head_taken | p->completions | p->messages) == 0;
}

/* Frees every node that was not delivered to an ending process. Returns the number of messages among them. `last` is
 * the word that fli_state_finish() returned. */
uint32_t fli_mail_discard(fli_runtime *rt, fli_local *worker, fli_proc *p, uint64_t last);

#endif
