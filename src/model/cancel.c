/* cancel.c - please end, for this reason, by then. The event is a notice; the deadline is a timer that kills, and a
 * bond that stops it when the process ends before. */
#include "base/assert.h"
#include "model/model.h"

/* Arms the deadline. */
static filch_err set_deadline(fli_model *m, const fli_end *end, uint64_t deadline_ns)
{
    fli_timers *timers = &((filch_sched *)end->rt)->timers;
    fli_bond   *bond;
    filch_err   err = fli_bond_make(m, FLI_BOND_DEADLINE, end, NULL, &bond);
    if (err != FILCH_OK) return err;
    uint64_t id = fli_timers_raise(timers, end->serial, deadline_ns, FLI_KILL);
    if (id == 0) {
        fli_bond_free(m, bond);
        return FILCH_ENOMEM;
    }
    bond->tag = id;
    fli_stripe_lock(m, end);
    bool lives = fli_end_watch(m, end);
    if (lives) fli_bond_list(m, bond, 0);
    fli_stripe_unlock(m, end);
    if (lives) {
        fli_ready_nudge((filch_sched *)end->rt);
        return FILCH_OK;
    }
    fli_timers_abandon(timers, id);
    fli_bond_free(m, bond);
    return FILCH_EDEAD;
}

/* A supervisor's cancel during a stop goes behind the messages that its child has not read. */
static bool is_polite(const fli_runtime *rt, const fli_end *me, const fli_end *end)
{
    if (me->serial == 0 || end->rt != rt || !fli_stop_is_polite((filch_sched *)end->rt)) return false;
    return fli_supervised(end->rt, end->serial, me->serial);
}

filch_err fli_cancel_with(fli_model *m, fli_runtime *rt, const fli_end *end, filch_err reason, uint64_t deadline_ns)
{
    fli_local *worker = fli_current_worker(rt);
    fli_end    me = { .rt = rt, .host = rt->host, .serial = worker != NULL ? worker->serial : 0 };
    fli_proc  *p = fli_proc_find(end->rt, end->serial);
    if (p == NULL || !fli_word_lives(fli_state_peek(&p->state), fli_serial_gen(end->serial))) return FILCH_EDEAD;
    fli_event_node *node = fli_node_take(end->rt, fli_current_worker(end->rt));
    if (node == NULL) return FILCH_ENOMEM;
    filch_data left = filch_int(deadline_ns > INT64_MAX ? 0 : (int64_t)deadline_ns);
    filch_err  err = deadline_ns != FILCH_FOREVER ? set_deadline(m, end, deadline_ns) : FILCH_OK;
    if (err != FILCH_OK) {
        fli_node_give(end->rt, fli_current_worker(end->rt), node);
        return err;
    }
    fli_notice_fill(node, FILCH_EVENT_CANCEL, end->rt, me.serial != 0 ? &me : NULL, 0, reason, &left);
    if (is_polite(rt, &me, end)) node->what |= FLI_NODE_AFTER_MESSAGES;
    fli_notice_post(end->rt, end->serial, node);
    return FILCH_OK;
}
