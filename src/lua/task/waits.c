/* waits.c - see waits.h. */
#include "lua/task/waits.h"

fli_lua_wait *fli_lua_wait_push(lua_State *L, const fli_lua_proc *p, size_t count)
{
    fli_lua_wait *wait = lua_newuserdatauv(L, sizeof *wait + count * sizeof wait->entries[0], 0);
    *wait = (fli_lua_wait){ .task = p->current, .count = (uint32_t)count };
    for (size_t i = 0; i < count; i++) wait->entries[i] = (fli_lua_entry){ .wait = wait };
    return wait;
}

void fli_lua_wait_enter(fli_lua_wait *wait, size_t entry, fli_lua_queue *queue)
{
    fli_lua_entry *e = &wait->entries[entry];
    e->queue = queue;
    e->next = NULL;
    e->prev = queue->last;
    if (queue->last != NULL) queue->last->next = e;
    else queue->first = e;
    queue->last = e;
}

void fli_lua_entry_leave(fli_lua_entry *entry)
{
    fli_lua_queue *queue = entry->queue;
    if (queue == NULL) return;
    if (entry->prev != NULL) entry->prev->next = entry->next;
    else queue->first = entry->next;
    if (entry->next != NULL) entry->next->prev = entry->prev;
    else queue->last = entry->prev;
    entry->queue = NULL;
}

void fli_lua_wait_leave(fli_lua_wait *wait)
{
    for (uint32_t i = 0; i < wait->count; i++) fli_lua_entry_leave(&wait->entries[i]);
}

int fli_lua_wait_park(lua_State *L, fli_lua_wait *wait, uint64_t until_ns, lua_KFunction k)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (until_ns != FLI_LUA_NEVER && !fli_lua_alarm_prepare(p)) {
        fli_lua_wait_leave(wait);
        return fli_lua_no_memory(L, p);
    }
    return fli_lua_park(L, until_ns, (lua_KContext)until_ns, k);
}

void fli_lua_wait_serve(fli_lua_proc *p, fli_lua_entry *entry, fli_lua_outcome outcome)
{
    fli_lua_wait *wait = entry->wait;
    fli_lua_wait_leave(wait);
    wait->served = entry;
    wait->outcome = (uint8_t)outcome;
    fli_lua_wake(p, wait->task);
}
