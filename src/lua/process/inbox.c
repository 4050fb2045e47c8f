/* inbox.c - the messages of a Lua process: the messages among the events of this step, which are valid during the step
 * only, and kept messages of earlier steps.
 *
 * INVARIANT  messages are taken, kept or answered in the order of the events: the events before event_at are finished.
 * Every kept message is older than every message at or after event_at.
 */
#include <string.h>

#include "lua/process/proc.h"

/* Returns the next new message for the Lua program, or NULL. Before that message, passes replies to the tasks that wait
 * for them, drops replies that no task waits for, and sets p->outdated if a message says that a file has changed. */
static const filch_event *next_new(fli_lua_proc *p)
{
    for (; p->event_at < p->event_count; p->event_at++) {
        const filch_event *event = &p->events[p->event_at];
        uint64_t           id;
        if (event->type != FILCH_EVENT_MESSAGE) continue;
        fli_lua_sort sort = fli_lua_sort_of(&event->data, &id);
        if (sort == FLI_LUA_OUTDATED) {
            p->outdated = true;
            continue;
        }
        if (sort != FLI_LUA_REPLY && sort != FLI_LUA_FAILURE) return event;
        (void)fli_lua_answer(p, id, &event->data, FILCH_OK, sort == FLI_LUA_FAILURE);
    }
    return NULL;
}

bool fli_lua_inbox_peek(fli_lua_proc *p, fli_lua_message *message)
{
    const fli_lua_saved *saved = p->saved;
    if (saved != NULL) {
        *message = (fli_lua_message){ &saved->data, saved->from, saved->type, saved->error, saved->stream };
        return true;
    }
    const filch_event *event = next_new(p);
    if (event == NULL) return false;
    *message = (fli_lua_message){ &event->data, event->from, FILCH_EVENT_MESSAGE, FILCH_OK, { 0 } };
    return true;
}

void fli_lua_inbox_take(fli_lua_proc *p)
{
    if (p->saved != NULL) fli_lua_inbox_remove(p, &p->saved);
    else p->event_at++;
}

/* Takes memory for a kept message from the heap, and charges the heap for `size` bytes of payload. Returns NULL, and
 * changes nothing, if the memory limit does not allow it. */
static fli_lua_saved *try_reserve(fli_lua_heap *heap, size_t size)
{
    if (!fli_lua_heap_charge(heap, size)) return NULL;
    fli_lua_saved *saved = fli_lua_heap_resize(heap, NULL, 0, sizeof *saved);
    if (saved == NULL) fli_lua_heap_discharge(heap, size);
    return saved;
}

/* Does what try_reserve() does, but collects the garbage of the process before it gives up. */
static fli_lua_saved *reserve(fli_lua_proc *p, size_t size)
{
    fli_lua_saved *saved = try_reserve(&p->heap, size);
    if (saved != NULL) return saved;
    fli_lua_collect(p);
    return try_reserve(&p->heap, size);
}

static filch_err keep(fli_lua_proc *p, const filch_event *event)
{
    size_t         size = fli_lua_message_weight(&event->data);
    fli_lua_saved *saved = reserve(p, size);
    filch_err      err = saved != NULL ? filch_keep(&event->data, &saved->data) : FILCH_ENOMEM;
    if (err != FILCH_OK) {
        if (saved == NULL) return err;
        fli_lua_heap_resize(&p->heap, saved, sizeof *saved, 0);
        fli_lua_heap_discharge(&p->heap, size);
        return err;
    }
    saved->next = NULL;
    saved->stream = (filch_stream){ 0 };
    if (event->type == FILCH_EVENT_MESSAGE) (void)fli_lua_take_stream(p, &event->data, &saved->stream);
    saved->from = event->from;
    saved->type = event->type;
    saved->error = event->error;
    *p->saved_end = saved;
    p->saved_end = &saved->next;
    return FILCH_OK;
}

filch_err fli_lua_inbox_notice(fli_lua_proc *p, const filch_event *event)
{
    return keep(p, event);
}

bool fli_lua_inbox_keep(fli_lua_proc *p, filch_err *err)
{
    const filch_event *event = next_new(p);
    *err = FILCH_OK;
    if (event == NULL) return false;
    *err = keep(p, event);
    if (*err != FILCH_OK) return false;
    p->event_at++;
    return true;
}

void fli_lua_inbox_remove(fli_lua_proc *p, fli_lua_place at)
{
    fli_lua_saved *saved = *at;
    *at = saved->next;
    if (saved->next == NULL) p->saved_end = at;
    p->removals++;
    fli_lua_deferred_cancel_read(p);
    fli_lua_heap_discharge(&p->heap, fli_lua_message_weight(&saved->data));
    filch_drop(&saved->data);
    fli_lua_heap_resize(&p->heap, saved, sizeof *saved, 0);
}

filch_err fli_lua_inbox_answers(fli_lua_proc *p)
{
    bool any = false;
    for (size_t i = p->event_at; i < p->event_count && !any; i++) {
        uint64_t     id;
        fli_lua_sort sort =
            p->events[i].type == FILCH_EVENT_MESSAGE ? fli_lua_sort_of(&p->events[i].data, &id) : FLI_LUA_VALUE;
        any = sort == FLI_LUA_REPLY || sort == FLI_LUA_FAILURE;
    }
    filch_err err = FILCH_OK;
    while (any && fli_lua_inbox_keep(p, &err)) {}
    return err;
}

filch_err fli_lua_inbox_end(fli_lua_proc *p)
{
    filch_err err;
    while (fli_lua_inbox_keep(p, &err)) {}
    return err;
}

void fli_lua_inbox_left(fli_lua_proc *p)
{
    p->left = 0;
    for (; p->event_at < p->event_count; p->event_at++) {
        const filch_event *event = &p->events[p->event_at];
        uint64_t           id;
        if (event->type != FILCH_EVENT_MESSAGE) continue;
        fli_lua_sort sort = fli_lua_sort_of(&event->data, &id);
        p->left += sort != FLI_LUA_OUTDATED && sort != FLI_LUA_REPLY && sort != FLI_LUA_FAILURE;
    }
}

uint64_t fli_lua_inbox_unread(const fli_lua_proc *p)
{
    uint64_t unread = p->left;
    for (const fli_lua_saved *saved = p->saved; saved != NULL; saved = saved->next)
        unread += saved->type == FILCH_EVENT_MESSAGE;
    return unread;
}

filch_err fli_lua_inbox_move(fli_lua_proc *from, fli_lua_proc *to)
{
    while (from->saved != NULL) {
        fli_lua_saved *old = from->saved;
        fli_lua_saved *saved = reserve(to, fli_lua_message_weight(&old->data));
        if (saved == NULL) return FILCH_ENOMEM;
        *saved = *old;
        saved->next = NULL;
        *to->saved_end = saved;
        to->saved_end = &saved->next;
        from->saved = old->next; /* the memory of `old` is freed later, with the whole heap of `from` */
    }
    from->saved_end = &from->saved;
    return FILCH_OK;
}
