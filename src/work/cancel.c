/* cancel.c - cancels yields that wait for a job of the pool (filch_yield_tag_cancel).
 *
 * The yields are claimed under the lock of the pool, and completed without it. The claim decides between the job's
 * answer, the deadline and the cancel. Because no job begins while the lock is held, a claimed yield whose job is
 * queued has a job that never begins. A yield whose deadline has passed cannot be claimed, so its job stays in the
 * queue: a function of the program is called also after a deadline (filch_yield_work_within). */
#include "base/assert.h"
#include "dispatch/complete.h"
#include "proc/yields.h"
#include "work/command.h"

/* The claimed yields, oldest first, linked by their nodes' `next`. */
typedef struct sweep {
    fli_runtime    *rt;
    fli_event_node *first, *last;
    uint32_t        count;
} sweep;

/* Returns true if a yield of `command` can be cancelled by its tag. An operation of an open file cannot: it is
 * cancelled by the stream. */
static bool covers(uint32_t command)
{
    switch (command) {
    case FILCH_CMD_WORK:
    case FILCH_CMD_OPEN:
    case FILCH_CMD_RESOLVE:
    case FILCH_CMD_RUN:
    case FILCH_CMD_STAT:
    case FILCH_CMD_RENAME:
    case FILCH_CMD_REMOVE:
    case FILCH_CMD_MKDIR:
    case FILCH_CMD_RMDIR:
    case FILCH_CMD_LIST: return true;
    default: return false;
    }
}

static bool claim(void *ctx, const fli_job_owner *owner, uint64_t key, bool queued)
{
    sweep          *sw = ctx;
    fli_event_node *node;
    if (!covers(owner->command) || !fli_yield_claim(sw->rt, key, &node)) return false;
    node->next = 0;
    node->data[0] = queued ? 1 : 0; /* data[0] keeps `queued` until fli_work_cancel() completes the yield */
    if (sw->last == NULL) sw->first = node;
    else sw->last->next = node->self;
    sw->last = node;
    sw->count++;
    return true;
}

uint32_t fli_work_cancel(fli_workpool *pool, fli_runtime *rt, uint64_t serial, uint64_t tag)
{
    sweep    sw = { .rt = rt };
    fli_job *removed = fli_workpool_withdraw(pool, serial, tag, claim, &sw);
    /* This thread has claimed the yields of the removed jobs, so `cancel` cannot complete them and only frees the
     * jobs. */
    fli_jobs_cancel(removed);
    for (fli_event_node *node = sw.first, *next; node != NULL; node = next) {
        next = node->next != 0 ? fli_full_node_at(rt, node->next) : NULL;
        fli_complete_claimed(rt, node, filch_int((int64_t)node->data[0]), FILCH_ECANCELLED);
    }
    return sw.count;
}
