/* deferred_cancel.c - delivers the cancel that a stop sends after all messages that arrived before the cancel.
 *
 * The scheduler delivers messages before the cancel. But a Lua process keeps delivered messages until process.receive
 * takes them, so up to a batch of messages may still be kept when the cancel comes. The cancel is raised when that many
 * messages have been taken, or when the main task waits for a message and none of the kept ones matches, or after
 * PATIENCE_NS.
 */
#include "lua/process/proc.h"

#define PATIENCE_NS FILCH_SECONDS(1)

static uint32_t count_kept(const fli_lua_proc *p)
{
    uint32_t count = 0;
    for (const fli_lua_saved *saved = p->saved; saved != NULL; saved = saved->next)
        count += saved->type == FILCH_EVENT_MESSAGE;
    return count;
}

bool fli_lua_deferred_cancel_begin(fli_lua_proc *p)
{
    /* If the main task waits for a message (`inbox`), it has compared all kept messages, and none of them matches. So
     * the cancel is not delayed then. */
    if (!filch_sched_stopping(p->sched) || p->main.inbox || p->main.cancelled) return false;
    uint32_t count = count_kept(p);
    if (count == 0 || fli_lua_rarely(p) == NULL) return false;
    if (filch_yield_sleep(p->out, FLI_LUA_DEFERRED_CANCEL_TAG, PATIENCE_NS) != FILCH_OK) return false;
    p->yields++;
    p->rare->deferred_cancel = count;
    return true;
}

void fli_lua_deferred_cancel_end(fli_lua_proc *p)
{
    if (p->rare == NULL || p->rare->deferred_cancel == 0) return;
    p->rare->deferred_cancel = 0;
    p->main.cancelled = true;
    fli_lua_wake(p, &p->main);
}

void fli_lua_deferred_cancel_read(fli_lua_proc *p)
{
    if (p->rare == NULL || p->rare->deferred_cancel == 0) return;
    if (p->rare->deferred_cancel > 1) p->rare->deferred_cancel--;
    else fli_lua_deferred_cancel_end(p);
}
