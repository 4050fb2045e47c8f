/* mailbox.h - the events of one process. Any thread posts; the worker that owns the process drains and collects.
 *
 * Posted nodes form a stack behind the state word (newest first). Draining turns what is new around and appends it to
 * one of two private lists, answers and messages, each in order of arrival. Notices of the model (an exit, a link that
 * is down) travel among the answers; a cancel with a reason goes before them, a polite one behind the messages that are
 * there. The plain cancel is a bit of the state word and needs no node. Collecting fills the step's array: cancels, then
 * answers and notices, then messages.
 */
#ifndef FLI_PROC_MAILBOX_H
#define FLI_PROC_MAILBOX_H

#include <filch.h>

#include "proc/data.h"
#include "proc/runtime.h"
#include "proc/yields.h"

/* Pushes `node` to the process of that serial and has it queued if it was asleep. FILCH_EDEAD: the node is yours. */
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

/* Moves what is new, up to `head`, to the private lists. Trims a drop-oldest mailbox that is over its limit. `worker` is the
 * worker's that steps it: only where nothing is new there need be none (a birth that failed). */
void fli_mail_drain(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t head);

/* Appends to a private list: an answer that needs no detour through the mailbox. */
void fli_mail_append(fli_runtime *rt, uint32_t *ring, fli_event_node *node);

/* Has the handler that runs, or ran last, answered by the short way, and is that answer in no list yet? */
static inline bool fli_mail_has_inline_result(const fli_local *worker)
{
    return worker->inline_key == 0 && worker->inline_node != NULL;
}

/* Then it joins the list. */
void fli_mail_list_inline_result(fli_local *worker);

/* Fills up to `max` events and notes their nodes in `nodes` (NULL for events without one). `cancel`: put the cancel event
 * first. Returns how many. */
uint32_t fli_mail_collect(fli_runtime *rt, fli_proc *p, bool cancel, filch_event *events, fli_event_node **nodes,
                          uint32_t max);

/* What does not change from one PLAIN message to the next. */
static inline void fli_event_prefill(fli_runtime *rt, filch_event *event)
{
    *event = (filch_event){ .type = FILCH_EVENT_MESSAGE, .error = FILCH_OK, .from = { rt->node_id, 0 } };
}

/* And what does. */
static inline void fli_event_fill_value(const fli_event_node *node, filch_event *event)
{
    event->from.serial = node->sender;
    fli_node_get_value(node, &event->data);
}

static inline void fli_event_fill_message(fli_runtime *rt, const fli_event_node *node, filch_event *event)
{
    event->type = FILCH_EVENT_MESSAGE;
    event->error = FILCH_OK;
    event->tag = 0;
    event->from.node = rt->node_id;
    fli_event_fill_value(node, event);
}

/* Without a list: several PLAIN messages, and nothing else, to a process that at most holds the last one before them. Notes
 * their nodes at the end of `nodes`, which has that much room, the oldest first. Returns how many; 0: not so, or too many. */
static inline uint32_t fli_mail_take_values(fli_runtime *rt, const fli_proc *p, uint64_t word, fli_event_node **nodes, uint32_t room)
{
    uint32_t       at = fli_word_head(word), seen = p->head_taken, n = room;
    fli_slab_block block = { 0, 0 };
    if (at == seen || (p->completions | p->messages | (uint8_t)(p->flags & ~FLI_PROC_HEAD_HELD)) != 0) return 0;
    do {
        fli_event_node *node = fli_slab_next(&rt->nodes, &block, at, sizeof *node);
        if (FLI_UNLIKELY(node->what != 0 || n == 0)) return 0;
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

/* The other common case: a process waits for its one yield, and the handler has answered it at once. As above. */
static inline __attribute__((always_inline)) fli_event_node *fli_mail_take_sync_completion(fli_runtime *rt, fli_proc *p, uint64_t word,
                                                                       filch_event *event)
{
    if (p->completions == 0 || p->yield_count != 1 || (p->flags & ~FLI_PROC_HEAD_HELD) != FLI_PROC_WAITING) return NULL;
    fli_event_node *node = fli_node_at(rt, p->completions);
    if (node->next != node->self || node->what != FLI_NODE_COMPLETION) return NULL; /* several, or a notice */
    if (fli_word_head(word) != p->head_taken || node->self == p->head_taken) return NULL;   /* something new, or it came by post */
    p->completions = 0;
    fli_yield_close(rt, p, node);
    fli_event_fill_completion(node, event);
    return node;
}

/* The same, but the answer came by post, and nothing else did: a sleep is over, the world has answered. Its node is the head of
 * `word`: the caller gives it back once the head has moved on. */
static inline fli_event_node *fli_mail_take_async_completion(fli_runtime *rt, fli_proc *p, uint64_t word, filch_event *event)
{
    if (p->flags != FLI_PROC_WAITING || p->yield_count != 1 || (p->head_taken | p->completions | p->messages) != 0) return NULL;
    if (fli_word_head(word) == 0) return NULL;
    fli_event_node *node = fli_node_at(rt, fli_word_head(word));
    if (node->next != 0 || node->what != FLI_NODE_COMPLETION) return NULL; /* several, or a message or notice */
    p->flags = 0;
    fli_yield_close(rt, p, node);
    fli_event_fill_completion(node, event);
    return node;
}

/* After the step: frees the events' payloads and nodes, and gives back the room they took. */
void fli_mail_release(fli_runtime *rt, fli_local *worker, fli_proc *p, filch_event *events, fli_event_node *const *nodes,
                      uint32_t count);

/* Has anything been drained, or dropped, that a process about to rest so would have to hear of first? */
static inline bool fli_mail_has_pending(fli_proc *p, unsigned rest)
{
    if (p->completions != 0) return true;
    return rest == FLI_IDLE && (p->messages != 0 || (uint32_t)fli_load_rlx(&p->drops_pending) != 0);
}

/* Before settling: forgets the head. Returns the node that must be freed once settled (0 none). */
static inline uint32_t fli_mail_held_head(const fli_proc *p)
{
    return (p->flags & FLI_PROC_HEAD_HELD) != 0 ? p->head_taken : 0;
}

/* Why the process goes down with a linked one (FLI_PROC_LINK_FAILED): how the first of those failed that began it. */
filch_err fli_mail_link_reason(fli_runtime *rt, const fli_proc *p);

/* Moves a polite cancel from among the messages to the front of all events. Returns false if there is none. Thread: the
 * owner. */
bool fli_mail_advance_cancel(fli_runtime *rt, fli_proc *p);

/* At the end: is there nothing to free? `last` is the last word, from fli_state_finish. */
static inline bool fli_mail_is_empty(const fli_proc *p, uint64_t last)
{
    return (fli_word_head(last) | p->head_taken | p->completions | p->messages) == 0;
}

/* At the end: frees everything that was never read; returns how many messages that were. `last` is the last word, from
 * fli_state_finish. */
uint32_t fli_mail_discard(fli_runtime *rt, fli_local *worker, fli_proc *p, uint64_t last);

#endif
