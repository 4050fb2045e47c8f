/* cancel.c - a cancel with a reason and a deadline. The cancel is a notice; the deadline is a timer that terminates
 * the process, and a relation that stops the timer if the process ends earlier. */
#include "base/assert.h"
#include "clock/timers.h"
#include "model/model.h"
#include "proc/runtime.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/stop.h"

/* Starts the timer that terminates the process at the deadline. */
static filch_err set_deadline(fli_model *m, const fli_endpoint *endpoint, uint64_t deadline_ns)
{
    fli_timers   *timers = &((filch_sched *)endpoint->rt)->timers;
    fli_relation *relation;
    filch_err     err = fli_relation_make(m, FLI_RELATION_DEADLINE, endpoint, NULL, &relation);
    if (err != FILCH_OK) return err;
    uint64_t id = fli_timers_set_flag_later(timers, endpoint->serial, deadline_ns, FLI_KILL);
    if (id == 0) {
        fli_relation_free(m, relation);
        return FILCH_ENOMEM;
    }
    relation->timer = id;
    fli_stripe_lock(m, endpoint);
    bool lives = fli_endpoint_set_related(m, endpoint);
    if (lives) fli_relation_list(m, relation, 0);
    fli_stripe_unlock(m, endpoint);
    if (lives) {
        fli_ready_nudge((filch_sched *)endpoint->rt);
        return FILCH_OK;
    }
    fli_timers_abandon(timers, id);
    fli_relation_free(m, relation);
    return FILCH_EDEAD;
}

/* Returns true if process `me` is the supervisor of `endpoint` and cancels it during a stop. Such a cancel is delivered
 * after the messages that the child has not read yet. */
static bool is_polite(const fli_runtime *rt, const fli_endpoint *me, const fli_endpoint *endpoint)
{
    if (me->serial == 0 || endpoint->rt != rt || !fli_stop_is_polite((filch_sched *)endpoint->rt)) return false;
    return fli_supervised(endpoint->rt, endpoint->serial, me->serial);
}

filch_err fli_cancel_with(fli_model *m, fli_runtime *rt, const fli_endpoint *endpoint, filch_err reason,
                          uint64_t deadline_ns)
{
    fli_local   *worker = fli_current_worker(rt);
    fli_endpoint me = { .rt = rt, .host = rt->host, .serial = worker != NULL ? worker->serial : 0 };
    fli_proc    *p = fli_proc_find(endpoint->rt, endpoint->serial);
    if (p == NULL || !fli_word_lives(fli_state_peek(&p->state), fli_serial_gen(endpoint->serial))) return FILCH_EDEAD;
    fli_event_node *node = fli_node_take(endpoint->rt, fli_current_worker(endpoint->rt));
    if (node == NULL) return FILCH_ENOMEM;
    filch_data left = filch_int(deadline_ns > INT64_MAX ? 0 : (int64_t)deadline_ns);
    filch_err  err = deadline_ns != FILCH_FOREVER ? set_deadline(m, endpoint, deadline_ns) : FILCH_OK;
    if (err != FILCH_OK) {
        fli_node_give(endpoint->rt, fli_current_worker(endpoint->rt), node);
        return err;
    }
    fli_notice_fill(node, FILCH_EVENT_CANCEL, endpoint->rt, me.serial != 0 ? &me : NULL, 0, reason, &left);
    if (is_polite(rt, &me, endpoint)) node->what |= FLI_NODE_AFTER_MESSAGES;
    fli_notice_post(endpoint->rt, endpoint->serial, node);
    return FILCH_OK;
}
