/* send_waiters.c - see send_waiters.h, and proc/limit.h for the WAITING bit.
 *
 * A waiting sender is represented by the node of its message; no memory is allocated in order to wait. The nodes that
 * wait for one receiver are a ring in order of arrival: fli_proc.waiters names the newest, whose `next` is the oldest.
 * `tag`, which a message from a process of this runtime does not use, holds the key of the sender's yield meanwhile.
 *
 *   queue a sender            O(1)   append to the ring
 *   admit a sender            O(1)   take the oldest node of the ring, push it
 *   the sender ends           O(1)   nothing to do: the message stays queued and is delivered in its turn; the key has
 *                                    become stale, so the completion is refused (PAIR node.claim)
 *   the receiver ends         O(n)   the ring is detached, and its senders are completed without the lock, in slices
 *                                    (sched/refuser.c)
 *
 * INVARIANT  while the WAITING bit of a mailbox is set, the lock of its stripe is held or a sender is queued for it: a
 *            sender sets the bit and queues itself under one hold of the lock, and the bit is cleared under the lock
 *            when the last waiter has left.
 * So each waiter is found: a receiver that makes space sees the bit, because space and bit are in one word, takes the
 * lock, and finds the queued sender. A process that ends closes its word first; a later sender finds it dead.
 *
 * INVARIANT  a queued sender has a counted message in the mailbox ahead of it. So a retry may stop after a slice: the
 *            step that reads that message releases space and retries again.
 * Design: docs/design/mailbox-fast-paths.md.
 */
#include "dispatch/send_waiters.h"

#include "base/assert.h"
#include "payload/data.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/send.h"

filch_err fli_send_waiters_init(fli_send_waiters *waiters)
{
    for (int i = 0; i < FLI_SEND_WAITERS_STRIPES; i++) {
        waiters->stripes[i].count = 0;
        filch_err err = fli_mutex_init(&waiters->stripes[i].lock);
        if (err == FILCH_OK) continue;
        while (i-- > 0) fli_mutex_fini(&waiters->stripes[i].lock);
        return err;
    }
    return FILCH_OK;
}

void fli_send_waiters_fini(fli_send_waiters *waiters)
{
    for (int i = 0; i < FLI_SEND_WAITERS_STRIPES; i++) {
        FLI_ASSERT(waiters->stripes[i].count == 0);
        fli_mutex_fini(&waiters->stripes[i].lock);
    }
}

static unsigned stripe_of(const fli_proc *p)
{
    return p->slot % FLI_SEND_WAITERS_STRIPES;
}

/* fli_proc.waiters holds the number of waiting messages in its high half and the handle of the newest in its low half.
 * queue_of() and set_queue() require the lock of the stripe. */
static fli_waiting queue_of(fli_proc *p)
{
    uint64_t waiters = fli_load_rlx(&p->waiters);
    return (fli_waiting){ .newest = (uint32_t)waiters, .count = (uint32_t)(waiters >> 32) };
}

static void set_queue(fli_proc *p, fli_waiting queue)
{
    fli_store_rlx(&p->waiters, (uint64_t)queue.count << 32 | queue.newest);
}

/* Removes the oldest node from a queue. `newest` is the newest node of the queue, `second` the handle of the node after
 * the oldest. */
static void remove_oldest(fli_waiting *queue, fli_event_node *newest, uint32_t second)
{
    if (--queue->count == 0) queue->newest = 0;
    else newest->next = second;
}

/* Queues `node` if the mailbox is still full. Returns FILCH_OK if it is queued, FILCH_EFULL if the mailbox has
 * space now (send again), FILCH_EDEAD if the receiver has ended. */
static filch_err queue(fli_send_waiters *waiters, fli_runtime *rt, fli_proc *p, uint32_t gen, fli_event_node *node,
                       uint32_t units, uint64_t key)
{
    unsigned stripe = stripe_of(p);
    fli_mutex_lock(&waiters->stripes[stripe].lock);
    fli_admit admit = fli_limit_wait(p, gen, units);
    /* fli_limit_wait() has compared only the 12 bits of the generation that are in the load word. This line compares
     * all bits: if a later process uses the slot, the sender must not be queued, because the sender would get the end
     * of that process as its own result. fli_limit_wait() may have set WAITING in that process without need; the next
     * retry clears WAITING. */
    if (!fli_word_lives(fli_state_look(&p->state), gen)) admit = FLI_ADMIT_DEAD;
    if (admit == FLI_ADMIT_FULL) {
        fli_waiting waiting = queue_of(p);
        node->tag = key;
        fli_mail_append(rt, &waiting.newest, node);
        waiting.count++;
        set_queue(p, waiting);
        waiters->stripes[stripe].count++;
    }
    fli_mutex_unlock(&waiters->stripes[stripe].lock);
    if (admit == FLI_ADMIT_DEAD) return FILCH_EDEAD;
    return admit == FLI_ADMIT_FULL ? FILCH_OK : FILCH_EFULL;
}

/* Pushes the message to the mailbox. If the mailbox is full and its policy is wait, queues the message instead and sets
 * *waits to true. Returns FILCH_OK if the message is pushed or queued, otherwise the error of the send. */
static filch_err put_or_wait(fli_send_waiters *waiters, fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen,
                             fli_event_node *node, uint64_t key, bool *waits)
{
    for (;;) {
        filch_err err = fli_message_put(rt, worker, p, gen, node, false);
        if (FLI_LIKELY(err != FILCH_EFULL) || fli_load_rlx(&p->overflow) != FILCH_OVERFLOW_WAIT) return err;
        filch_data data = { .kind = FILCH_KIND_NONE };
        fli_node_get_data(node, &data);
        err = queue(waiters, rt, p, gen, node, fli_limit_units(fli_data_bytes(&data)), key);
        if (err == FILCH_EFULL) continue;
        *waits = err == FILCH_OK;
        return err;
    }
}

filch_err fli_send_waiters_send(fli_send_waiters *waiters, fli_runtime *rt, const filch_command *command,
                                filch_receiver receiver)
{
    fli_local *worker = fli_current_worker(rt);
    fli_proc  *p;
    filch_err  err = fli_pid_find(rt, command->target, &p);
    if (FLI_UNLIKELY(err != FILCH_OK)) {
        /* A message to a pid of another node is sent at once, through the route function of the scheduler. */
        if (err == FILCH_EFOREIGN) err = fli_send(rt, worker, command->target, command->from, &command->data);
        else fli_send_refused(rt, worker, err);
        return err == FILCH_OK ? filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK) : err;
    }
    filch_data owned;
    err = fli_data_own_fast(&rt->mem, rt->payload_max, &command->data, &owned);
    if (err != FILCH_OK) return err;
    fli_event_node *node = fli_message_make(rt, worker, command->from, &owned);
    bool            waits = false;
    if (node == NULL) {
        err = FILCH_ENOMEM;
        goto no_node;
    }
    err = put_or_wait(waiters, rt, worker, p, fli_serial_gen(command->target.serial), node, receiver.key, &waits);
    if (FLI_UNLIKELY(err != FILCH_OK)) goto refused;
    return waits ? FILCH_OK : filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK);

refused:
    fli_send_refused(rt, worker, err);
    fli_node_give(rt, worker, node);
no_node:
    fli_data_undo(&command->data, &owned);
    return err;
}

/* Completes the yield `key` of a sender with `result`. Called without the lock, because completing may wake and queue
 * processes. If the sender has already ended, filch_complete() returns an error, which is ignored. */
static void complete(fli_runtime *rt, uint64_t key, filch_err result)
{
    filch_receiver receiver = { .sched = (filch_sched *)rt, .key = key };
    (void)!filch_complete(receiver, receiver.tag, filch_none(), result);
}

/* Frees a waiting message when its receiver has ended, and completes the yield of its sender with FILCH_EDEAD. */
static void refuse(fli_runtime *rt, fli_local *worker, fli_event_node *node)
{
    uint64_t   key = node->tag;
    filch_data data = { .kind = FILCH_KIND_NONE };
    fli_node_get_data(node, &data);
    fli_data_free(&data);
    fli_node_give(rt, worker, node);
    fli_send_refused(rt, worker, FILCH_EDEAD);
    complete(rt, key, FILCH_EDEAD);
}

/* Pushes the oldest waiting messages while they fit, at most FLI_SEND_WAITERS_SLICE, and stores the keys of their
 * yields. Stops at the first message that does not fit, so that no message overtakes another. Returns the number of
 * keys. Requires the lock of the stripe. */
static uint32_t push_fitting(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen, uint64_t *keys)
{
    fli_waiting waiting = queue_of(p);
    uint32_t    count = 0;
    while (waiting.count > 0 && count < FLI_SEND_WAITERS_SLICE) {
        fli_event_node *newest = fli_node_at(rt, waiting.newest), *oldest = fli_node_at(rt, newest->next);
        uint32_t        second = oldest->next; /* read before the push, which changes oldest->next */
        uint64_t        key = oldest->tag;
        oldest->tag = 0;
        if (fli_message_put(rt, worker, p, gen, oldest, true) != FILCH_OK) {
            oldest->next = second;
            oldest->tag = key;
            break;
        }
        keys[count++] = key;
        remove_oldest(&waiting, newest, second);
    }
    set_queue(p, waiting);
    return count;
}

void fli_send_waiters_retry(fli_send_waiters *waiters, fli_runtime *rt, fli_proc *p)
{
    fli_local *worker = fli_current_worker(rt);
    uint64_t   keys[FLI_SEND_WAITERS_SLICE];
    unsigned   stripe = stripe_of(p);
    fli_mutex_lock(&waiters->stripes[stripe].lock);
    uint32_t gen = fli_word_gen(fli_state_peek(&p->state)), count = push_fitting(rt, worker, p, gen, keys);
    waiters->stripes[stripe].count -= count;
    if (queue_of(p).count == 0) fli_limit_wait_over(p, gen);
    fli_mutex_unlock(&waiters->stripes[stripe].lock);
    for (uint32_t i = 0; i < count; i++) complete(rt, keys[i], FILCH_OK);
}

fli_waiting fli_send_waiters_detach(fli_send_waiters *waiters, fli_proc *p)
{
    unsigned stripe = stripe_of(p);
    /* The load word of the process (fli_proc.load) is closed: a sender that takes the lock after this thread finds the
     * process dead and is not queued. */
    fli_mutex_lock(&waiters->stripes[stripe].lock);
    fli_waiting detached = queue_of(p);
    set_queue(p, (fli_waiting){ 0, 0 });
    waiters->stripes[stripe].count -= detached.count;
    fli_mutex_unlock(&waiters->stripes[stripe].lock);
    return detached;
}

void fli_send_waiters_refuse(fli_runtime *rt, fli_waiting *detached, uint32_t max)
{
    fli_local *worker = fli_current_worker(rt);
    for (; max > 0 && detached->count > 0; max--) {
        fli_event_node *newest = fli_node_at(rt, detached->newest), *oldest = fli_node_at(rt, newest->next);
        remove_oldest(detached, newest, oldest->next);
        refuse(rt, worker, oldest);
    }
}
