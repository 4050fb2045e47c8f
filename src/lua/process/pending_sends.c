/* pending_sends.c - the memory of messages that wait for space in a full mailbox (overflow "wait").
 *
 * Such a message belongs to the scheduler until the yield of the send completes, also if the task no longer waits for
 * it. So its bytes are charged to the process until the completion arrives.
 */
#include "lua/process/proc.h"

/* A message that waits. The list has the order of the tags, and sends to one receiver complete in this order, so a
 * completion usually finds its message at the beginning of the list. */
typedef struct fli_lua_pending {
    struct fli_lua_pending *next;
    uint64_t                tag;  /* tag of the yield */
    size_t                  size; /* bytes charged, without this struct */
} fli_lua_pending;

bool fli_lua_pending_add(fli_lua_proc *p, uint64_t tag, size_t size)
{
    fli_lua_rare *rare = fli_lua_rarely(p);
    if (rare == NULL || !fli_lua_charge(p, size)) return false;
    fli_lua_pending *pending = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *pending);
    if (pending == NULL) {
        fli_lua_heap_discharge(&p->heap, size);
        return false;
    }
    *pending = (fli_lua_pending){ .tag = tag, .size = size };
    if (rare->pending == NULL) rare->pending_end = &rare->pending;
    *rare->pending_end = pending;
    rare->pending_end = &pending->next;
    return true;
}

void fli_lua_pending_end(fli_lua_proc *p, uint64_t tag)
{
    fli_lua_pending **at = p->rare != NULL ? &p->rare->pending : NULL;
    while (at != NULL && *at != NULL && (*at)->tag != tag) at = &(*at)->next;
    if (at == NULL || *at == NULL) return;
    fli_lua_pending *pending = *at;
    *at = pending->next;
    if (pending->next == NULL) p->rare->pending_end = at;
    fli_lua_heap_discharge(&p->heap, pending->size);
    fli_lua_heap_resize(&p->heap, pending, sizeof *pending, 0);
}

bool fli_lua_pending_move(const fli_lua_proc *from, fli_lua_proc *to)
{
    const fli_lua_pending *at = from->rare != NULL ? from->rare->pending : NULL;
    for (; at != NULL; at = at->next) {
        if (!fli_lua_pending_add(to, at->tag, at->size)) return false;
    }
    return true;
}
