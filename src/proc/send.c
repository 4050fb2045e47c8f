/* send.c - filch_send(), from the public call to the push into a mailbox. See send.h.
 *
 * The life of a message: (1) the pid leads to a control block; (2) the payload gets an owner: the value itself, inline
 * bytes, or a counted block; (3) a node is taken from the worker's magazine and filled; (4) one CAS makes it the
 * mailbox head, if the generation is still right; (5) if the process was IDLE, the same CAS made it ACTIVE, and this
 * thread queues it.
 */
#include "proc/send.h"

#include "base/assert.h"
#include "payload/data.h"
#include "proc/limit.h"
#include "proc/mailbox.h"

/* Takes a node for a message of a foreign thread, which has no magazine: the spare node that a parked worker has
 * left, or one from the depot. */
static fli_event_node *take_foreign(fli_runtime *rt)
{
    fli_event_node *node = fli_load_rlx(&rt->spare_node);
    if (node != NULL) node = fli_swap_acqrel(&rt->spare_node, NULL); /* PAIR runtime.spare_node, acquire half */
    return node != NULL ? node : fli_node_take(rt, NULL);
}

static inline fli_event_node *make(fli_runtime *rt, fli_local *worker, filch_pid from, const filch_data *owned)
{
    fli_event_node *node = worker != NULL ? fli_node_take(rt, worker) : take_foreign(rt);
    if (node == NULL) return NULL;
    bool foreign = from.node != rt->node_id && from.serial != 0;
    node->what = foreign ? FLI_NODE_FOREIGN : from.serial == 0 ? FLI_NODE_GENERAL : 0;
    node->error = 0;
    node->sender_worker = worker != NULL ? worker->number : 0;
    node->sender = from.serial;
    node->tag = foreign ? from.node : 0;
    fli_node_put_data(node, owned);
    return node;
}

/* Makes the node of a value that a foreign thread sends to a mailbox without a limit. Takes a short node, so that a
 * backlog needs half the memory. But if a worker has left a spare node, takes the spare node, because that needs no
 * lock. */
static fli_event_node *make_foreign_value(fli_runtime *rt, const filch_data *value)
{
    if (fli_load_rlx(&rt->spare_node) != NULL) return make(rt, NULL, (filch_pid){ 0, 0 }, value);
    fli_event_node *node = fli_slab_take(&rt->short_nodes, NULL);
    if (node != NULL) fli_node_put_short(node, value);
    return node;
}

/* Returns true if a value may be sent in a short node: its sender is a foreign thread, and the mailbox has no limit.
 * Returns false in a simulation, because the simulation reads fields that a short node does not have. If the slot of
 * `p` gets another process after LIMITED was read, the push fails, because the new process has another generation. */
static inline bool may_be_short(fli_runtime *rt, const fli_local *worker, fli_proc *p, filch_pid from)
{
    return worker == NULL && from.serial == 0 && (fli_state_peek(&p->state) & FLI_LIMITED) == 0 && rt->sim == NULL;
}

fli_event_node *fli_message_make(fli_runtime *rt, fli_local *worker, filch_pid from, const filch_data *owned)
{
    return make(rt, worker, from, owned);
}

/* Applies the overflow policy of a full mailbox. Returns the error of the send. */
static filch_err refuse(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen)
{
    switch (fli_load_rlx(&p->overflow)) {
    case FILCH_OVERFLOW_DROP_NEWEST:
    case FILCH_OVERFLOW_DROP_OLDEST: /* the mailbox is at twice its limit, because its worker has not trimmed it yet */
        fli_limit_dropped(p, gen, 1);
        return FILCH_EDROPPED;
    case FILCH_OVERFLOW_STOP:
        fli_limit_overflowed(p, gen);
        if (fli_state_set_flag(&p->state, gen, FLI_KILL) == FLI_DELIVERY_WOKE) rt->hooks.ready(rt, worker, p);
        return FILCH_EFULL;
    default: return FILCH_EFULL;
    }
}

/* Pushes a message for which space of `units` units is reserved. `queued`: the caller holds the lock of the waiting
 * senders (dispatch/send_waiters.c). */
static filch_err push_reserved(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen, fli_event_node *node,
                               uint32_t units, bool queued)
{
    node->what |= FLI_NODE_COUNTED;
    filch_err err = fli_mail_post(rt, worker, p, gen, node);
    if (FLI_LIKELY(err == FILCH_OK)) return FILCH_OK;
    /* The process of `gen` has ended, and the senders that waited for it were completed when it ended. But the load has
     * only the low 12 bits of a generation. If the present process of the slot has the same 12 bits, the space was
     * reserved in the mailbox of that process. Then another sender may have found that mailbox full and waits now;
     * hooks.room retries it. If `queued`, the caller retries the waiting senders itself. */
    node->what &= (uint8_t)~FLI_NODE_COUNTED;
    if (fli_limit_release(p, gen, 1, units) && !queued) rt->hooks.room(rt, p);
    return err;
}

static filch_err put_limited(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen, fli_event_node *node,
                             bool queued)
{
    uint32_t units = 0;
    if (node->form != FLI_FORM_VALUE) {
        filch_data data = { .kind = FILCH_KIND_NONE };
        fli_node_get_data(node, &data);
        size_t bytes = fli_data_bytes(&data);
        if (!fli_limit_fits(p, bytes)) return FILCH_ETOOBIG;
        units = fli_limit_units(bytes);
        /* FLI_NODE_GENERAL keeps the message off the fast path step_several(), which releases no units. */
        if (node->what == 0) node->what = FLI_NODE_GENERAL;
    } else if (FLI_LIKELY(!queued && fli_limit_reserve_value(p, gen))) {
        return push_reserved(rt, worker, p, gen, node, 0, false);
    }
    fli_admit admit = fli_limit_reserve(p, gen, units, queued);
    if (admit == FLI_ADMIT_DEAD) return FILCH_EDEAD;
    if (admit == FLI_ADMIT_FULL) return refuse(rt, worker, p, gen);
    filch_err err = push_reserved(rt, worker, p, gen, node, units, queued);
    if (err != FILCH_OK) return err;
    if (admit == FLI_ADMIT_OVER && fli_state_wake(&p->state, gen) == FLI_DELIVERY_WOKE) rt->hooks.ready(rt, worker, p);
    return FILCH_OK;
}

filch_err fli_message_put(fli_runtime *rt, fli_local *worker, fli_proc *p, uint32_t gen, fli_event_node *node,
                          bool queued)
{
    filch_err err = (fli_state_peek(&p->state) & FLI_LIMITED) != 0 ? put_limited(rt, worker, p, gen, node, queued)
                                                                   : fli_mail_post(rt, worker, p, gen, node);
    if (err == FILCH_OK) FLI_TALLY(rt, worker, sent, 1);
    return err;
}

void fli_send_refused(fli_runtime *rt, fli_local *worker, filch_err err)
{
    if (err == FILCH_EDEAD) FLI_TALLY(rt, worker, undelivered, 1);
    else if (err == FILCH_EFULL) FLI_TALLY(rt, worker, refused, 1);
    else if (err == FILCH_EDROPPED) FLI_TALLY(rt, worker, dropped, 1);
}

static filch_err route(fli_runtime *rt, filch_pid to, filch_pid from, const filch_data *data)
{
    if (rt->route == NULL) return FILCH_EFOREIGN;
    filch_package package = { .to = to, .from = from, .data = *data };
    return rt->route(rt->route_user, &package);
}

/* Sends a payload that is not a value: first copies its bytes, takes them over or shares them. Refuses a malformed
 * payload. */
static filch_err send_owned(fli_runtime *rt, fli_local *worker, fli_proc *p, filch_pid to, filch_pid from,
                            const filch_data *data)
{
    filch_data owned = { .kind = FILCH_KIND_NONE };
    filch_err  err = fli_data_own(&rt->mem, rt->payload_max, data, &owned);
    if (err != FILCH_OK) return err;
    fli_event_node *node = make(rt, worker, from, &owned);
    err = node != NULL ? fli_message_put(rt, worker, p, fli_serial_gen(to.serial), node, false) : FILCH_ENOMEM;
    if (err == FILCH_OK) return FILCH_OK;
    if (node != NULL) fli_node_give(rt, worker, node);
    fli_data_undo(data, &owned);
    return err;
}

/* Slow exit of fli_send(): the pid is of another scheduler, or its process has ended. Not inlined: otherwise the
 * compiler would copy both pids through the stack, as vectors, at the start of fli_send(), because route() stores them
 * in its package; then each message would wait for the store buffer (see fli_word). */
static __attribute__((noinline)) filch_err not_sent(fli_runtime *rt, fli_local *worker, filch_err err, filch_pid to,
                                                    filch_pid from, const filch_data *data)
{
    if (err == FILCH_EFOREIGN) return route(rt, to, from, data);
    fli_send_refused(rt, worker, err);
    return err;
}

filch_err fli_send(fli_runtime *rt, fli_local *worker, filch_pid to, filch_pid from, const filch_data *data)
{
    fli_proc *p;
    filch_err err = fli_pid_find(rt, to, &p);
    if (FLI_UNLIKELY(err != FILCH_OK)) return not_sent(rt, worker, err, to, from, data);
    if (FLI_LIKELY(fli_data_is_value(data))) {
        fli_event_node *node =
            may_be_short(rt, worker, p, from) ? make_foreign_value(rt, data) : make(rt, worker, from, data);
        if (FLI_UNLIKELY(node == NULL)) return FILCH_ENOMEM;
        err = fli_message_put(rt, worker, p, fli_serial_gen(to.serial), node, false);
        if (FLI_UNLIKELY(err != FILCH_OK)) fli_node_give(rt, worker, node);
    } else {
        err = send_owned(rt, worker, p, to, from, data);
    }
    if (FLI_UNLIKELY(err != FILCH_OK)) fli_send_refused(rt, worker, err);
    return err;
}

/* fli_send() in a simulation, where one thread runs everything. If worker->current is NULL, the caller is not a
 * simulated process. */
static filch_err send_simulated(fli_runtime *rt, fli_local *worker, filch_pid to, filch_pid from,
                                const filch_data *data, const char *call)
{
    if (!rt->sim->point(rt, worker, call)) return FILCH_ESTATE;
    if (worker->current == NULL && fli_load_rlx(&rt->phase) != FLI_OPEN) return FILCH_ECLOSED;
    filch_err err = fli_send(rt, worker, to, from, data);
    rt->sim->sent(rt, from, to, data, err);
    return err;
}

/* General path of filch_send(): called from any thread, a handler, a recorded or a simulated step; for any payload and
 * any destination process. */
filch_err filch_send_any(filch_sched *sched, filch_pid to, filch_data data)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    fli_runtime *rt = (fli_runtime *)sched;
    fli_local   *worker = fli_current_worker(rt);
    filch_pid    from = { 0, 0 };
    if (worker != NULL) {
        worker->sends++;
        /* A message that a handler sends has no sender, because a handler does not act for a process. */
        if (worker->serial != 0 && !worker->dispatching) from = (filch_pid){ rt->node_id, worker->serial };
        if (FLI_UNLIKELY(worker->rec_hooks != NULL)) return worker->rec_hooks->send(worker, to, from, &data, false);
    }
    if (FLI_UNLIKELY(rt->sim != NULL)) return send_simulated(rt, worker, to, from, &data, "filch_send");
    if (worker == NULL && fli_load_acq(&rt->phase) != FLI_OPEN) return FILCH_ECLOSED; /* PAIR runtime.phase, acquire */
    return fli_send(rt, worker, to, from, &data);
}

/* Slow exit of the fast paths: the state word changed between the read and the CAS. Pushes `node` on the general path.
 */
static __attribute__((noinline)) filch_err send_contended(fli_local *worker, fli_proc *p, uint64_t word,
                                                          fli_event_node *node)
{
    fli_runtime *rt = worker->rt;
    fli_contended_send(worker);
    filch_err err = fli_message_put(rt, worker, p, fli_word_gen(word), node, false);
    if (err == FILCH_OK) return FILCH_OK;
    fli_node_give(rt, worker, node);
    fli_send_refused(rt, worker, err);
    return err;
}

/* Takes a node and fills it as a plain message from the current process, except the payload, which the caller writes.
 * Requires a node in the worker's magazine. */
static inline fli_event_node *take_plain(fli_local *worker)
{
    fli_event_node *node = worker->nodes.objects[--worker->nodes.count];
    worker->sends++;
    node->sender = worker->serial;
    node->sender_worker = worker->number;
    return node;
}

/* Makes the node of a value message from the current process. Requires a node in the magazine. */
static inline fli_event_node *make_value(fli_local *worker, uint64_t kind, uint64_t first, uint64_t second)
{
    fli_event_node *node = take_plain(worker);
    fli_node_put_value(node, kind, first, second);
    return node;
}

/* Fast path of filch_send(): sends a value message to a process that needs no wake-up.
 *   Precondition: the precondition of filch_send_value(), but the receiver is awake in `word` (FLI_IS_AWAKE()).
 *   Skips:        what filch_send_value() skips, and queueing the receiver.
 *   Repeats:      the check of the generation, by one CAS from `word`.
 *   General path: send_contended() if the CAS fails. */
static __attribute__((noinline)) filch_err send_awake(fli_local *worker, fli_proc *p, uint64_t word, uint64_t kind,
                                                      uint64_t first, uint64_t second)
{
    fli_event_node *node = make_value(worker, kind, first, second);
    if (FLI_UNLIKELY(!fli_state_push_awake(&p->state, word, node->self, &node->next))) {
        return send_contended(worker, p, word, node);
    }
    fli_count(&worker->counters.sent, 1);
    return FILCH_OK;
}

/* Slow exit of send_limited(): the state word changed between the read and the CAS. Pushes `node` on the general path;
 * the space for `node` is already reserved. */
static __attribute__((noinline)) filch_err send_limited_contended(fli_local *worker, fli_proc *p, uint64_t word,
                                                                  fli_event_node *node)
{
    fli_runtime *rt = worker->rt;
    filch_err    err = push_reserved(rt, worker, p, fli_word_gen(word), node, 0, false);
    if (err == FILCH_OK) {
        fli_count(&worker->counters.sent, 1);
        return FILCH_OK;
    }
    fli_node_give(rt, worker, node);
    fli_send_refused(rt, worker, err);
    return err;
}

/* Fast path of filch_send(): sends a value message to a mailbox that has a limit and has space.
 *   Precondition: the precondition of filch_send_value(), but LIMITED is set in `word`, and the receiver may be awake.
 *   Skips:        what filch_send_value() skips, and the overflow policy.
 *   Repeats:      the reservation of space before the push: it succeeds only if the receiver still has this generation
 *                 and no sender waits for space; and the check of the generation, by one CAS from `word`.
 *   General path: filch_send_any() if there is no space; send_limited_contended() if the CAS fails. */
static __attribute__((noinline)) filch_err send_limited(fli_local *worker, fli_proc *p, uint64_t word, uint64_t kind,
                                                        uint64_t first, uint64_t second)
{
    if (FLI_UNLIKELY(!fli_limit_reserve_value(p, fli_word_gen(word)))) {
        fli_runtime *rt = worker->rt;
        filch_pid    to = { rt->node_id, fli_serial(fli_word_gen(word), p->slot) };
        return filch_send_any((filch_sched *)rt, to, filch_value((filch_kind)kind, first, second));
    }
    fli_event_node *node = make_value(worker, kind, first, second);
    fli_shape_put(&node->kind, kind, FLI_FORM_VALUE, 0, FLI_NODE_COUNTED, 0); /* one store: see fli_word */
    bool idle = fli_word_state(word) == FLI_IDLE;
    bool pushed = idle ? fli_state_push_idle(&p->state, word, node->self, &node->next)
                       : fli_state_push_awake(&p->state, word, node->self, &node->next);
    if (FLI_UNLIKELY(!pushed)) return send_limited_contended(worker, p, word, node);
    fli_count(&worker->counters.sent, 1);
    return idle ? worker->ready(worker, p) : FILCH_OK;
}

/* General path of filch_send_value(). Not inlined, so that filch_send_value() needs no stack for a filch_data. */
static __attribute__((noinline)) filch_err send_slow(filch_sched *sched, filch_pid to, uint64_t kind, uint64_t first,
                                                     uint64_t second)
{
    return filch_send_any(sched, to, filch_value((filch_kind)kind, first, second));
}

/* Fast path of filch_send() for values. Every exit is a tail call, so that the compiler saves no registers.
 *   Precondition: the caller is a step with fast_rt set, so it is neither recorded nor simulated. The receiver belongs
 *                 to this runtime, is alive and idle and has no flag. The worker's magazine has a node.
 *   Skips:        the checks for recording, simulation and phase; payload ownership; the tag; the limit.
 *   Repeats:      the check of the generation, by one CAS from the state word.
 *   General path: filch_send_any(); send_contended() if the CAS fails. */
filch_err filch_send_value(filch_sched *sched, filch_pid to, uint64_t kind, uint64_t first, uint64_t second)
{
    fli_local   *worker = fli_current_get();
    fli_runtime *rt = (fli_runtime *)sched;
    uint32_t     slot = fli_serial_slot(to.serial);
    if (FLI_UNLIKELY(worker == NULL || worker->fast_rt != rt || worker->nodes.count == 0)) goto slowly;
    if (FLI_UNLIKELY(to.node != rt->node_id || !fli_slab_reaches(&rt->procs, slot))) goto slowly;
    fli_proc *p = fli_slab_at_size(&rt->procs, slot, sizeof *p);
    uint64_t  word = fli_state_peek(&p->state), differs = fli_word_differs(word, fli_serial_gen(to.serial));
    if (FLI_LIKELY(differs == 0)) {
        fli_event_node *node = make_value(worker, kind, first, second);
        if (FLI_UNLIKELY(!fli_state_push_idle(&p->state, word, node->self, &node->next))) {
            return send_contended(worker, p, word, node);
        }
        fli_count(&worker->counters.sent, 1);
        return worker->ready(worker, p);
    }
    if (FLI_LIKELY(FLI_IS_AWAKE(differs))) return send_awake(worker, p, word, kind, first, second);
    differs &= ~(FLI_LIMITED >> FLI_STATE_SHIFT);
    if (differs == 0 || FLI_IS_AWAKE(differs)) return send_limited(worker, p, word, kind, first, second);
    /* to.node has this value already. The store saves keeping to.node in a register up to here. */
    to.node = rt->node_id;
slowly:
    return send_slow(sched, to, kind, first, second);
}

static __attribute__((noinline)) filch_err send_lent_slow(filch_sched *sched, filch_pid to, uint64_t kind,
                                                          const void *bytes, size_t size)
{
    return filch_send_any(sched, to, filch_lent((filch_kind)kind, bytes, size));
}

/* Fast path of filch_send() for bytes that fit into the node.
 *   Precondition: the precondition of filch_send_value(), but the receiver may be awake; the payload is lent and well
 *                 formed, and has at most FLI_INLINE_MAX bytes and at most payload_max bytes.
 *   Skips:        what filch_send_value() skips, and the owned copy of the payload.
 *   Repeats:      the check of the generation, by one CAS from the state word.
 *   General path: filch_send_any(); send_contended() if the CAS fails. */
filch_err filch_send_lent(filch_sched *sched, filch_pid to, uint64_t kind, const void *bytes, size_t size)
{
    fli_local   *worker = fli_current_get();
    fli_runtime *rt = (fli_runtime *)sched;
    uint32_t     slot = fli_serial_slot(to.serial);
    if (FLI_UNLIKELY(worker == NULL || worker->fast_rt != rt || worker->nodes.count == 0)) goto slowly;
    if (FLI_UNLIKELY(to.node != rt->node_id || !fli_slab_reaches(&rt->procs, slot))) goto slowly;
    bool sound = (kind == FILCH_KIND_BYTES || kind == FILCH_KIND_TEXT) && bytes != NULL;
    /* If payload_max is 0 (no limit), payload_max - 1 is the largest size_t. */
    if (FLI_UNLIKELY(!sound || !fli_inline_fits(kind, size) || size > rt->payload_max - 1)) goto slowly;
    fli_proc *p = fli_slab_at_size(&rt->procs, slot, sizeof *p);
    uint64_t  word = fli_state_peek(&p->state), differs = fli_word_differs(word, fli_serial_gen(to.serial));
    if (FLI_UNLIKELY(differs != 0 && !FLI_IS_AWAKE(differs))) goto slowly;
    fli_event_node *node = take_plain(worker);
    fli_node_put_bytes(node, kind, bytes, size);
    bool pushed = differs == 0 ? fli_state_push_idle(&p->state, word, node->self, &node->next)
                               : fli_state_push_awake(&p->state, word, node->self, &node->next);
    if (FLI_UNLIKELY(!pushed)) return send_contended(worker, p, word, node);
    fli_count(&worker->counters.sent, 1);
    return differs == 0 ? worker->ready(worker, p) : FILCH_OK;
slowly:
    return send_lent_slow(sched, to, kind, bytes, size);
}

extern inline filch_err filch_send(filch_sched *sched, filch_pid to, filch_data data);

filch_err filch_deliver(void *sched, const filch_package *package)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (package == NULL) return filch_invalid("package is NULL");
    fli_runtime *rt = sched;
    fli_local   *worker = fli_current_worker(rt);
    if (FLI_UNLIKELY(worker != NULL && worker->rec_hooks != NULL)) {
        return worker->rec_hooks->send(worker, package->to, package->from, &package->data, true);
    }
    if (rt->sim != NULL && package->to.node == rt->node_id) {
        return send_simulated(rt, worker, package->to, package->from, &package->data, "filch_deliver");
    }
    if (worker == NULL && fli_load_acq(&rt->phase) != FLI_OPEN) return FILCH_ECLOSED; /* PAIR runtime.phase, acquire */
    /* A scheduler does not route a message that was routed to it: two schedulers could pass it back and forth for ever.
     */
    if (package->to.node != rt->node_id) return FILCH_EFOREIGN;
    return fli_send(rt, worker, package->to, package->from, &package->data);
}

static filch_err set_process_flag(filch_sched *sched, filch_pid pid, uint64_t flag, const char *call)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    fli_runtime *rt = (fli_runtime *)sched;
    fli_local   *worker = fli_current_worker(rt);
    if (FLI_UNLIKELY(worker != NULL && worker->rec_hooks != NULL))
        return worker->rec_hooks->set_flag(worker, pid, flag);
    if (rt->sim != NULL && !rt->sim->point(rt, worker, call)) return FILCH_ESTATE;
    fli_proc *p;
    filch_err err = fli_pid_find(rt, pid, &p);
    if (err == FILCH_EFOREIGN && fli_load_rlx(&rt->model) != NULL) {
        fli_request request = { .op = flag == FLI_KILL ? FILCH_CMD_TERMINATE : FILCH_CMD_CANCEL,
                                .target = pid,
                                .reason = FILCH_ECANCELLED,
                                .tag = FILCH_FOREVER };
        return rt->model_ops->relate(rt, &request);
    }
    if (err != FILCH_OK) return err;
    switch (fli_state_set_flag(&p->state, fli_serial_gen(pid.serial), flag)) {
    case FLI_DELIVERY_DEAD: return FILCH_EDEAD;
    case FLI_DELIVERY_WOKE: rt->hooks.ready(rt, worker, p); break;
    case FLI_DELIVERY_NOTED: break;
    }
    return FILCH_OK;
}

filch_err filch_cancel(filch_sched *sched, filch_pid pid)
{
    return set_process_flag(sched, pid, FLI_CANCEL, "filch_cancel");
}

filch_err filch_terminate(filch_sched *sched, filch_pid pid)
{
    return set_process_flag(sched, pid, FLI_KILL, "filch_terminate");
}
