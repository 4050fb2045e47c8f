/* finish.c - a process ends. In this order:
 *
 *   1. its yields become void: whoever completes one from now on is told so, and timers among them are stopped; its
 *      streams are closed
 *   2. the state word says DONE: nothing is delivered any more; what was never read is freed and counted
 *   3. senders waiting for room in its mailbox are turned away
 *   4. close, once; then its memory
 *   5. on_failure hears of a failure, and on_blackbox, if the process has one; its names and groups are free; whoever
 *      watches it hears of the end
 *   6. the slot goes back with the next generation: the pid is dead for ever, and there is room for another process
 *   7. on_exit hears the result, and may spawn another under the same name. Stop waits for it (fli_stats_alive)
 * Of most there is so little left that 2 and 6 are one: fli_finish_fast.
 *
 * INVARIANT  a slot that nobody uses is blank: no mail, no yields, no ext, no values, nothing dropped. So spawn need not
 *            wipe it. (What its last limit was may still stand there: without LIMITED nobody asks.)
 */
#include "sched/finish.h"

#include "proc/data.h"
#include "proc/ext.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/yields.h"
#include "sched/record.h"
#include "sched/sched.h"
#include "sched/simulate.h"

/* Empties the mailbox of a process that is DONE; `last` was its word. True: it overflowed. */
static bool close_mailbox(fli_runtime *rt, fli_local *worker, fli_proc *p, uint64_t serial, uint64_t last)
{
    uint32_t unread = fli_mail_is_empty(p, last) ? 0 : fli_mail_discard(rt, worker, p, last);
    if (unread > 0) {
        fli_count(&worker->counters.undelivered, unread);
        fli_stop_unread((filch_sched *)rt, serial, unread);
    }
    if ((last & FLI_LIMITED) == 0) return false;
    uint64_t load = fli_limit_close(p, fli_serial_gen(serial));
    fli_limit_clear(p, fli_serial_gen(serial));
    if ((load & FLI_LOAD_WAITING) != 0) rt->hooks.no_room(rt, serial);
    return (load & FLI_LOAD_OVERFLOWED) != 0;
}

/* Nothing of it is left but the slot. */
static inline void give_back(fli_worker *w, fli_proc *p)
{
    fli_finish_slot(w, p, fli_state_free(&p->state));
}

/* What is left of a process whose slot may have gone back. */
typedef struct last_words {
    filch_exit_fn on_exit; /* NULL: none */
    void         *user;
    filch_values *values; /* those that on_exit spawns inherit them */
    filch_data   *result;
} last_words;

static void free_words(const last_words *left)
{
    if (!fli_data_is_value_form(left->result)) fli_data_free(left->result);
    if (left->values != NULL) filch_values_drop(left->values);
}

/* An on_exit that runs. */
typedef struct telling {
    fli_local        *worker;
    fli_proc         *before; /* who was stepped; NULL until on_exit has returned: his slot is given back, he cannot be torn */
    const last_words *left;
} telling;

/* Runs also when an exception of C++ leaves on_exit: see tick.c. */
static void tell_end(telling *t)
{
    fli_local *worker = t->worker;
    worker->current = t->before;
    free_words(t->left);
    /* PAIR finish.ended, release half: nothing of it is left, and those that it spawned have been counted. */
    fli_store_rel(&worker->counters.leaving, fli_load_rlx(&worker->counters.leaving) - 1);
}

/* 6 and 7. Thread: the worker that ended it. */
static void tell_exit(fli_worker *w, fli_proc *p, const last_words *left, uint64_t serial, filch_err error)
{
    fli_local *worker = &w->local;
    fli_proc  *before = worker->current, stand_in = { .values = left->values };
    __attribute__((cleanup(tell_end))) telling t = { .worker = worker, .left = left };
    fli_count(&worker->counters.leaving, 1); /* before `ended` counts it */
    give_back(w, p);
    worker->current = &stand_in; /* the slot may be another process's by now */
    left->on_exit(left->user, (filch_pid){ worker->rt->node_id, serial }, error, left->result);
    t.before = before;
}

/* What the end of a process owns while functions of its type and hooks run. */
typedef struct ending {
    filch_sched      *sched;
    fli_proc         *p;
    const filch_type *type;   /* NULL: the instance is freed */
    filch_data       *result; /* NULL: handed on */
} ending;

/* Frees what is left when an exception of C++ leaves `close` or a hook. After an ordinary end nothing is. */
static void end_ending(ending *e)
{
    if (FLI_UNLIKELY(e->type != NULL)) fli_instance_free(e->sched, e->type, e->p->inline_state, e->p->self);
    if (FLI_LIKELY(e->result == NULL)) return;
    if (!fli_data_is_value_form(e->result)) fli_data_free(e->result);
    *e->result = filch_none();
}

/* From 2 on. */
static __attribute__((noinline)) void finish_slow(fli_worker *w, fli_proc *p, uint64_t last, filch_err error,
                                                 filch_data *result)
{
    filch_sched      *sched = w->sched;
    fli_runtime      *rt = &sched->rt;
    fli_local        *worker = &w->local;
    uint64_t          serial = worker->serial;
    const filch_type *type = fli_proc_type(p);
    __attribute__((cleanup(end_ending))) ending e = { .sched = sched, .p = p, .type = type, .result = result };
    fli_callback_begin(worker);
    w->exit_untold = (last & FLI_HAS_RELATIONS) != 0;
    bool overflowed = close_mailbox(rt, worker, p, serial, last);
    if (overflowed && error == FILCH_EKILLED) error = FILCH_EOVERFLOW;
    if (FLI_UNLIKELY(rt->sim != NULL)) fli_simulate_ended(sched, serial, error, result);

    if (type->close != NULL) type->close(p->self);
    e.type = NULL;
    fli_instance_free(sched, type, p->inline_state, p->self);
    if (FLI_UNLIKELY(error != FILCH_OK && sched->opt.on_failure != NULL)) {
        fli_failure_tell(sched, serial, type, (last & FLI_HAS_RELATIONS) != 0, error, result);
    }
    if (FLI_UNLIKELY((p->flags & FLI_PROC_RECORDED) != 0)) fli_record_ended(sched, p, serial, error);
    if ((last & FLI_HAS_RELATIONS) != 0) rt->model_ops->ended(rt, serial, error, result);
    w->exit_untold = false;
    last_words left = { .values = p->values, .result = result };
    if (p->ext != NULL) left.on_exit = p->ext->on_exit, left.user = p->ext->on_exit_user;
    e.result = NULL;
    p->values = NULL;
    fli_ext_free(rt, p);
    if (error != FILCH_OK) fli_count(&worker->counters.failed, 1);
    if (left.on_exit != NULL) {
        tell_exit(w, p, &left, serial, error);
    } else {
        free_words(&left);
        give_back(w, p);
    }
    fli_callback_end(worker);
}

void fli_finish(fli_worker *w, fli_proc *p, filch_err error, filch_data *result)
{
    fli_runtime *rt = &w->sched->rt;
    fli_local   *worker = &w->local;
    if (FLI_UNLIKELY(p->yield_count > 0 || (p->flags & FLI_PROC_YIELDS_HEAP) != 0)) fli_yield_abandon(rt, worker, p);
    if (FLI_UNLIKELY(p->ext != NULL)) {
        fli_callback_begin(worker); /* what its streams had still to write is freed */
        for (uint32_t i = 0; i < p->ext->timer_count; i++) fli_timers_abandon(&w->sched->timers, p->ext->timers[i]);
        fli_io_release(&w->sched->io, p);
    }
    uint64_t          last = fli_state_finish(&p->state);
    const filch_type *type = fli_proc_type(p);
    /* Most have nothing that anybody would hear of. (With `plain` there is no simulation.) */
    bool quiet = (last & (FLI_HAS_RELATIONS | FLI_LIMITED)) == 0 && fli_mail_is_empty(p, last) && type->close == NULL &&
                 p->ext == NULL && p->values == NULL && error == FILCH_OK && fli_data_is_value_form(result) && worker->fast_rt == worker->rt;
    if (FLI_UNLIKELY(!quiet)) {
        finish_slow(w, p, last, error, result);
        return;
    }
    if (p->self != p->inline_state) fli_instance_free(w->sched, type, p->inline_state, p->self);
    give_back(w, p);
}
