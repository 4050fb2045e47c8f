/* finish.c - a process ends. In this order:
 *
 *   1. abandon its yields: a later completion of one gets FILCH_ESTALE. Stop its timers, close its streams
 *   2. set the state word to DONE: no event is delivered any more. Free and count the events that were never read
 *   3. refuse the senders that wait for room in its mailbox
 *   4. call close, once, then free its memory
 *   5. call on_failure after a failure and on_blackbox for a recorded process; release its names and groups; send the
 *      exit events to the processes that monitor it or are linked with it
 *   6. give the slot back with the next generation: the pid is never valid again, and the slot is free for another
 *      process
 *   7. call on_exit with the result. It may spawn a process under the same name. A stop waits until on_exit has
 *      returned (fli_stats_alive)
 * fli_finish_fast() does items 2 and 6 in one CAS, for a process that needs none of the other items.
 *
 * INVARIANT  a slot without a process is blank: no mail, no yields, no ext, no values, no dropped messages. So spawn
 *            does not clear it. (The mailbox limit of the last process may still be there: it is read only if the flag
 *            LIMITED is set.)
 * Design: docs/design/mailbox-fast-paths.md.
 */
#include "sched/finish.h"

#include "base/assert.h"
#include "clock/timers.h"
#include "io/io.h"
#include "payload/data.h"
#include "proc/ext.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/report.h"
#include "sched/sched.h"
#include "sched/spawn.h"
#include "sched/worker.h"

/* Empties the mailbox of a process that is DONE; `last` is the state word before DONE was set. Returns true if the
 * process was ended because its mailbox overflowed. */
static bool close_mailbox(fli_runtime *rt, fli_local *worker, fli_proc *p, uint64_t serial, uint64_t last)
{
    uint32_t unread = fli_mail_is_empty(p, last) ? 0 : fli_mail_discard(rt, worker, p, last);
    if (unread > 0) {
        fli_count(&worker->counters.undelivered, unread);
        fli_stop_unread((filch_sched *)rt, serial, unread);
    }
    if ((last & FLI_LIMITED) == 0) return false;
    uint64_t load = fli_limit_close(p, fli_serial_gen(serial));
    if ((load & FLI_LOAD_WAITING) != 0) rt->hooks.no_room(rt, p);
    fli_limit_clear(p, fli_serial_gen(serial)); /* comes after no_room(), because no_room() still needs p->waiters */
    return (load & FLI_LOAD_OVERFLOWED) != 0;
}

/* Gives back the slot of `p` (item 6 of the list at the head of this file). Precondition: nothing else of the process
 * is left. */
static inline void give_back(fli_worker *w, fli_proc *p)
{
    fli_finish_slot(w, p, fli_state_free(&p->state));
}

/* The data that item 7, the call of on_exit, needs after the slot of the process has been given back. */
typedef struct last_words {
    filch_exit_fn on_exit;
    void         *user;
    filch_values *values; /* inherited by the processes that on_exit spawns */
    filch_data   *result;
} last_words;

static inline void free_words(filch_values *values, filch_data *result)
{
    if (!fli_data_is_value_form(result)) fli_data_free(result);
    if (FLI_UNLIKELY(values != NULL)) filch_values_drop(values);
}

/* State of a running on_exit, for the cleanup function end_exit_call(). */
typedef struct exit_call {
    fli_local *worker;
    fli_proc  *before; /* end_exit_call() sets worker->current to this value. NULL until on_exit has returned: if
                          on_exit throws, torn.c must not end the process, because its slot has been given back */
    const last_words *left;
} exit_call;

/* Cleanup function of call_on_exit(). Runs also when a C++ exception leaves on_exit (see tick.c). */
static void end_exit_call(exit_call *t)
{
    fli_local *worker = t->worker;
    worker->current = t->before;
    free_words(t->left->values, t->left->result);
    /* PAIR finish.ended, release half: nothing of the ended process is left, and the processes that its on_exit spawned
     * are counted. */
    fli_store_rel(&worker->counters.leaving, fli_load_rlx(&worker->counters.leaving) - 1);
}

/* Gives back the slot of `p`, and then calls on_exit (items 6 and 7 of the list at the head of this file). Thread: the
 * worker that ends the process. */
static void call_on_exit(fli_worker *w, fli_proc *p, const last_words *left, uint64_t serial, filch_err error)
{
    fli_local *worker = &w->local;
    fli_proc  *before = worker->current, stand_in = { .values = left->values };

    __attribute__((cleanup(end_exit_call))) exit_call t = { .worker = worker, .left = left };
    /* comes before give_back(), so that a stop always counts the process as alive or as leaving */
    fli_count(&worker->counters.leaving, 1);
    give_back(w, p);
    worker->current = &stand_in; /* not `p`, because its slot may belong to another process now */
    left->on_exit(left->user, (filch_pid){ worker->rt->node_id, serial }, error, left->result);
    t.before = before;
}

/* Resources of an ending process that must be freed if a C++ exception leaves its close or a hook. */
typedef struct ending {
    filch_sched      *sched;
    fli_proc         *p;
    const filch_type *type;   /* NULL: the instance has been freed */
    filch_data       *result; /* NULL: the result is freed by call_on_exit() or free_words() */
} ending;

/* Frees the instance and the result when a C++ exception leaves `close` or a hook. After an ordinary end `type` and
 * `result` are NULL, and nothing is freed. */
static void end_ending(ending *e)
{
    if (FLI_UNLIKELY(e->type != NULL)) fli_instance_free(e->sched, e->type, e->p->inline_state, e->p->self);
    if (FLI_LIKELY(e->result == NULL)) return;
    if (!fli_data_is_value_form(e->result)) fli_data_free(e->result);
    *e->result = filch_none();
}

/* ended_simulated() and ended_recorded() call the hooks of a simulation and of the recorder when a process has ended.
 * Not inlined, so that finish_done() keeps no register for these calls. */
static __attribute__((noinline)) void ended_simulated(filch_sched *sched, uint64_t serial, filch_err error,
                                                      const filch_data *result)
{
    sched->rt.sim->ended(&sched->rt, serial, error, result);
}

static __attribute__((noinline)) void ended_recorded(filch_sched *sched, fli_proc *p, uint64_t serial, filch_err error)
{
    sched->rt.record_ops->ended(&sched->rt, p, serial, error);
}

/* Ends a process that is already in the state DONE: frees its unread events (the rest of item 2), and does items 3 to 7
 * of the list at the head of this file. `last`: the state word before DONE was set. */
static void finish_done(fli_worker *w, fli_proc *p, uint64_t last, filch_err error, filch_data *result)
{
    filch_sched      *sched = w->sched;
    fli_runtime      *rt = &sched->rt;
    fli_local        *worker = &w->local;
    uint64_t          serial = worker->serial;
    const filch_type *type = fli_proc_type(p);

    __attribute__((cleanup(end_ending))) ending e = { .sched = sched, .p = p, .type = type, .result = result };
    fli_callback_begin(worker);
    bool related = (last & FLI_HAS_RELATIONS) != 0;
    if (related) w->exit_unnotified = true;
    bool overflowed = close_mailbox(rt, worker, p, serial, last);
    if (overflowed && error == FILCH_EKILLED) error = FILCH_EOVERFLOW;
    if (FLI_UNLIKELY(rt->sim != NULL)) ended_simulated(sched, serial, error, result);

    if (type->close != NULL) fli_instance_close(w, type, p->self, error);
    e.type = NULL;
    fli_instance_free(sched, type, p->inline_state, p->self);
    if (FLI_UNLIKELY(error != FILCH_OK && sched->opt.on_failure != NULL)) {
        fli_failure_notify(sched, serial, type, related, error, result);
    }
    if (FLI_UNLIKELY((p->flags & FLI_PROC_RECORDED) != 0)) ended_recorded(sched, p, serial, error);
    if (related) {
        rt->model_ops->ended(rt, serial, error, result);
        w->exit_unnotified = false;
    }
    if (error != FILCH_OK) fli_count(&worker->counters.failed, 1);
    filch_values *values = p->values;
    p->values = NULL;
    e.result = NULL;
    if (FLI_UNLIKELY(p->ext != NULL && p->ext->on_exit != NULL)) {
        last_words left = { p->ext->on_exit, p->ext->on_exit_user, values, result };
        fli_ext_free(rt, p);
        call_on_exit(w, p, &left, serial, error);
    } else {
        fli_ext_free(rt, p);
        free_words(values, result);
        give_back(w, p);
    }
    fli_callback_end(worker);
}

void fli_instance_close(fli_worker *w, const filch_type *type, void *self, filch_err error)
{
    w->close_error = error;
    w->in_close = true;
    type->close(self);
    w->in_close = false;
    w->close_error = FILCH_OK;
}

filch_err filch_close_error(const filch_sched *sched)
{
    fli_local *worker = sched != NULL ? fli_current_worker(&sched->rt) : NULL;
    return worker != NULL ? fli_worker_of(worker)->close_error : FILCH_OK;
}

filch_err filch_close_unread(filch_sched *sched, uint64_t count)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    fli_local *worker = fli_current_worker(&sched->rt);
    if (worker == NULL || !fli_worker_of(worker)->in_close) return FILCH_ESTATE;
    if (count == 0) return FILCH_OK;
    fli_count(&worker->counters.undelivered, count);
    fli_stop_unread(sched, worker->serial, count);
    return FILCH_OK;
}

void fli_finish(fli_worker *w, fli_proc *p, filch_err error, filch_data *result)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    if (FLI_UNLIKELY(p->yield_count > 0 || (p->flags & FLI_PROC_YIELDS_HEAP) != 0)) fli_yield_abandon(rt, worker, p);
    if (FLI_UNLIKELY(p->ext != NULL)) {
        /* fli_io_release() frees unwritten data of the process's streams, and so may call functions of the program. */
        fli_callback_begin(worker);
        for (uint32_t i = 0; i < p->ext->timer_count; i++) fli_timers_abandon(&w->sched->timers, p->ext->timers[i]);
        fli_io_release(&w->sched->io, p);
    }
    finish_done(w, p, fli_state_finish(&p->state), error, result);
}
