/* send_waiters.c - see send_waiters.h, and proc/limit.h for the WAITING bit.
 *
 * INVARIANT  while the WAITING bit of a mailbox is set, the lock of its shard is held or a sender is queued for it: a
 *            sender sets the bit and queues itself under one hold of the lock, and the bit is cleared under the lock
 *            when the last waiter has left.
 * So each waiter is found: a receiver that makes space sees the bit, because space and bit are in one word, takes the
 * lock, and finds the queued sender. A process that ends closes its word first; a later sender finds it dead.
 */
#include "dispatch/send_waiters.h"

#include "base/assert.h"
#include "payload/data.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/send.h"

struct fli_waiter {
    fli_waiter     *next;
    uint64_t        target; /* serial of the receiver */
    fli_event_node *node;   /* the message */
    filch_receiver  receiver;
    filch_err       outcome;
};

filch_err fli_send_waiters_init(fli_send_waiters *waiters)
{
    for (int i = 0; i < FLI_SEND_WAITERS_SHARDS; i++) {
        waiters->shards[i].first = waiters->shards[i].last = NULL;
        filch_err err = fli_mutex_init(&waiters->shards[i].lock);
        if (err == FILCH_OK) continue;
        while (i-- > 0) fli_mutex_fini(&waiters->shards[i].lock);
        return err;
    }
    return FILCH_OK;
}

void fli_send_waiters_fini(fli_send_waiters *waiters)
{
    for (int i = 0; i < FLI_SEND_WAITERS_SHARDS; i++) {
        FLI_ASSERT(waiters->shards[i].first == NULL);
        fli_mutex_fini(&waiters->shards[i].lock);
    }
}

static unsigned shard_of(uint64_t serial)
{
    return fli_serial_slot(serial) % FLI_SEND_WAITERS_SHARDS;
}

/* Queues `waiter` if the mailbox is still full. Returns FILCH_OK if it is queued, FILCH_EFULL if the mailbox has
 * space now (send again), FILCH_EDEAD if the receiver has ended. */
static filch_err queue(fli_send_waiters *waiters, fli_proc *p, fli_waiter *waiter, uint32_t units)
{
    unsigned shard = shard_of(waiter->target);
    fli_mutex_lock(&waiters->shards[shard].lock);
    uint32_t  gen = fli_serial_gen(waiter->target);
    fli_admit admit = fli_limit_wait(p, gen, units);
    /* fli_limit_wait() has compared only the 12 bits of the generation that are in the load word. This line compares
     * all bits: if a later process uses the slot, the sender must not be queued, because that process has another
     * serial and would never complete this sender. fli_limit_wait() may have set WAITING in that process without need;
     * the next retry clears WAITING. */
    if (!fli_word_lives(fli_state_look(&p->state), gen)) admit = FLI_ADMIT_DEAD;
    if (admit == FLI_ADMIT_FULL) {
        waiter->next = NULL;
        if (waiters->shards[shard].last != NULL) waiters->shards[shard].last->next = waiter;
        else waiters->shards[shard].first = waiter;
        waiters->shards[shard].last = waiter;
    }
    fli_mutex_unlock(&waiters->shards[shard].lock);
    if (admit == FLI_ADMIT_DEAD) return FILCH_EDEAD;
    return admit == FLI_ADMIT_FULL ? FILCH_OK : FILCH_EFULL;
}

/* Sends the message or queues the sender. Returns FILCH_OK if the message is in the mailbox (*waits unchanged) or the
 * sender is queued (*waits true). */
static filch_err put_or_wait(fli_send_waiters *waiters, fli_runtime *rt, fli_local *worker, fli_proc *p,
                             fli_waiter *waiter, bool *waits)
{
    uint32_t   gen = fli_serial_gen(waiter->target);
    filch_data data = { .kind = FILCH_KIND_NONE };
    fli_node_get_data(waiter->node, &data);
    for (;;) {
        filch_err err = fli_message_put(rt, worker, p, gen, waiter->node, false);
        if (err != FILCH_EFULL || fli_load_rlx(&p->overflow) != FILCH_OVERFLOW_WAIT) return err;
        err = queue(waiters, p, waiter, fli_limit_units(fli_data_bytes(&data)));
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
    /* A message to a pid of another node is sent at once, through the route function of the scheduler. */
    if (err == FILCH_EFOREIGN) err = fli_send(rt, worker, command->target, command->from, &command->data);
    else if (err == FILCH_OK) goto local;
    else fli_send_refused(rt, worker, err);
    return err == FILCH_OK ? filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK) : err;

local:;
    filch_data owned = { .kind = FILCH_KIND_NONE };
    err = fli_data_own(&rt->mem, rt->payload_max, &command->data, &owned);
    if (err != FILCH_OK) return err;
    err = FILCH_ENOMEM;
    fli_waiter *waiter = fli_alloc(&rt->mem, sizeof *waiter);
    if (waiter == NULL) goto no_waiter;
    *waiter = (fli_waiter){ .target = command->target.serial, .receiver = receiver };
    waiter->node = fli_message_make(rt, worker, command->from, &owned);
    if (waiter->node == NULL) goto no_node;
    bool waits = false;
    err = put_or_wait(waiters, rt, worker, p, waiter, &waits);
    if (err != FILCH_OK) goto refused;
    if (waits) return FILCH_OK;
    fli_free(&rt->mem, waiter, sizeof *waiter);
    return filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK);

refused:
    fli_send_refused(rt, worker, err);
    fli_node_give(rt, worker, waiter->node);
no_node:
    fli_free(&rt->mem, waiter, sizeof *waiter);
no_waiter:
    fli_data_undo(&command->data, &owned);
    return err;
}

/* Completes the yields of the picked senders. Called without the lock, because completing may wake and queue
 * processes. */
static void complete_all(fli_runtime *rt, fli_local *worker, fli_waiter *waiter)
{
    while (waiter != NULL) {
        fli_waiter *next = waiter->next;
        if (waiter->outcome != FILCH_OK) {
            filch_data data = { .kind = FILCH_KIND_NONE };
            fli_node_get_data(waiter->node, &data);
            fli_data_free(&data);
            fli_node_give(rt, worker, waiter->node);
            fli_send_refused(rt, worker, waiter->outcome);
        }
        /* An error means that the sender has ended meanwhile; the error is ignored. */
        (void)!filch_complete(waiter->receiver, waiter->receiver.tag, filch_none(), waiter->outcome);
        fli_free(&rt->mem, waiter, sizeof *waiter);
        waiter = next;
    }
}

/* Removes from the queue of the shard the waiters for `serial` for which `decide` returns true. Stops at the first
 * waiter for which `decide` returns false, so that no message overtakes another. Returns the removed waiters in order.
 * Sets *more to true if a waiter for `serial` is left. */
static fli_waiter *pick(fli_send_waiters *waiters, uint64_t serial, bool (*decide)(void *ctx, fli_waiter *waiter),
                        void *ctx, bool *more)
{
    unsigned     shard = shard_of(serial);
    fli_waiter  *picked = NULL, **picked_end = &picked, *last = NULL;
    fli_waiter **at = &waiters->shards[shard].first;
    *more = false;
    while (*at != NULL) {
        fli_waiter *waiter = *at;
        if (waiter->target != serial || *more || !decide(ctx, waiter)) {
            *more |= waiter->target == serial;
            last = waiter;
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->next = NULL;
        *picked_end = waiter;
        picked_end = &waiter->next;
    }
    waiters->shards[shard].last = last;
    return picked;
}

typedef struct retry_context {
    fli_runtime *rt;
    fli_local   *worker;
    fli_proc    *p;
} retry_context;

static bool retry_send(void *ctx, fli_waiter *waiter)
{
    retry_context *a = ctx;
    waiter->outcome = fli_message_put(a->rt, a->worker, a->p, fli_serial_gen(waiter->target), waiter->node, true);
    return waiter->outcome != FILCH_EFULL;
}

static bool refuse(void *ctx, fli_waiter *waiter)
{
    (void)ctx;
    waiter->outcome = FILCH_EDEAD;
    return true;
}

void fli_send_waiters_retry(fli_send_waiters *waiters, fli_runtime *rt, fli_proc *p)
{
    retry_context a = { .rt = rt, .worker = fli_current_worker(rt), .p = p };
    uint64_t      serial = fli_proc_serial(p);
    unsigned      shard = shard_of(serial);
    bool          more;
    fli_mutex_lock(&waiters->shards[shard].lock);
    fli_waiter *admitted = pick(waiters, serial, retry_send, &a, &more);
    if (!more) fli_limit_wait_over(p, fli_serial_gen(serial));
    fli_mutex_unlock(&waiters->shards[shard].lock);
    complete_all(rt, a.worker, admitted);
}

void fli_send_waiters_refuse(fli_send_waiters *waiters, fli_runtime *rt, uint64_t serial)
{
    unsigned shard = shard_of(serial);
    bool     more;
    fli_mutex_lock(&waiters->shards[shard].lock);
    fli_waiter *refused = pick(waiters, serial, refuse, NULL, &more);
    fli_mutex_unlock(&waiters->shards[shard].lock);
    complete_all(rt, fli_current_worker(rt), refused);
}
