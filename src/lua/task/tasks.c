/* tasks.c - parks and wakes the tasks of a process, and handles their deadlines. See proc.h.
 *
 * The deadlines of a process are in a binary heap. Only the nearest few of them are outstanding sleeps of the
 * scheduler: a process that calls receive with a timeout of five seconds a million times a second has one sleep, not
 * five million.
 */
#include <lauxlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"

fli_lua_proc *fli_lua_need_process(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (p == NULL || p->out == NULL) luaL_error(L, "this function works only inside a running process");
    return p;
}

fli_lua_proc *fli_lua_for(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    return p != NULL && fli_lua_job_of(p) != NULL ? p : fli_lua_need_process(L);
}

void fli_lua_collect(fli_lua_proc *p)
{
    lua_State *L = fli_load_rlx(&p->running);
    (void)lua_gc(L != NULL ? L : p->L, LUA_GCCOLLECT);
}

bool fli_lua_charge(fli_lua_proc *p, size_t size)
{
    if (fli_lua_heap_charge(&p->heap, size)) return true;
    fli_lua_collect(p);
    return fli_lua_heap_charge(&p->heap, size);
}

int fli_lua_no_memory(lua_State *L, fli_lua_proc *p)
{
    p->out_of_memory = true;
    return luaL_error(L, "not enough memory");
}

fli_lua_rare *fli_lua_rarely(fli_lua_proc *p)
{
    if (p->rare == NULL) {
        p->rare = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *p->rare);
        if (p->rare != NULL) *p->rare = (fli_lua_rare){ .result = filch_none() };
    }
    return p->rare;
}

uint64_t fli_lua_now(const fli_lua_proc *p)
{
    return filch_now(p->sched);
}

uint64_t fli_lua_until(const fli_lua_proc *p, uint64_t span_ns)
{
    uint64_t now = fli_lua_now(p);
    return span_ns >= FLI_LUA_NEVER - now ? FLI_LUA_NEVER : now + span_ns;
}

uint64_t fli_lua_deadline(lua_State *L, const fli_lua_proc *p, int index)
{
    return lua_toboolean(L, index) ? fli_lua_until(p, fli_lua_check_span(L, index)) : FLI_LUA_NEVER;
}

/* ---- alarms: a binary heap --------------------------------------------------------------------------------------- */

static void place(fli_lua_proc *p, uint32_t at, fli_lua_task *task)
{
    p->alarms[at] = task;
    task->alarm = at + 1;
}

static void sift_up(fli_lua_proc *p, uint32_t at)
{
    fli_lua_task *task = p->alarms[at];
    for (; at > 0 && p->alarms[(at - 1) / 2]->alarm_ns > task->alarm_ns; at = (at - 1) / 2) {
        place(p, at, p->alarms[(at - 1) / 2]);
    }
    place(p, at, task);
}

static void sift_down(fli_lua_proc *p, uint32_t at)
{
    fli_lua_task *task = p->alarms[at];
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= p->alarm_count) break;
        if (child + 1 < p->alarm_count && p->alarms[child + 1]->alarm_ns < p->alarms[child]->alarm_ns) child++;
        if (p->alarms[child]->alarm_ns >= task->alarm_ns) break;
        place(p, at, p->alarms[child]);
        at = child;
    }
    place(p, at, task);
}

bool fli_lua_alarm_prepare(fli_lua_proc *p)
{
    if (p->alarm_count < p->alarm_room) return true;
    uint32_t room = p->alarm_room == 0 ? 4 : p->alarm_room * 2;
    size_t   old_size = p->alarm_room * sizeof p->alarms[0], size = room * sizeof p->alarms[0];
    void    *more = fli_lua_heap_resize(&p->heap, p->alarms, old_size, size);
    if (more == NULL) {
        fli_lua_collect(p);
        more = fli_lua_heap_resize(&p->heap, p->alarms, old_size, size);
    }
    if (more == NULL) return false;
    p->alarms = more;
    p->alarm_room = room;
    return true;
}

static bool alarm_add(fli_lua_proc *p, fli_lua_task *task, uint64_t at_ns)
{
    if (!fli_lua_alarm_prepare(p)) return false;
    task->alarm_ns = at_ns;
    place(p, p->alarm_count++, task);
    sift_up(p, task->alarm - 1);
    return true;
}

static void alarm_remove(fli_lua_proc *p, fli_lua_task *task)
{
    if (task->alarm == 0) return;
    uint32_t at = task->alarm - 1;
    task->alarm = 0;
    if (at == --p->alarm_count) return;
    place(p, at, p->alarms[p->alarm_count]);
    sift_up(p, at);
    sift_down(p, p->alarms[at]->alarm - 1);
}

void fli_lua_alarms_ring(fli_lua_proc *p)
{
    uint64_t now = fli_lua_now(p);
    while (p->sleeps[0] <= now) {
        memmove(&p->sleeps[0], &p->sleeps[1], (FLI_LUA_SLEEPS - 1) * sizeof p->sleeps[0]);
        p->sleeps[FLI_LUA_SLEEPS - 1] = FLI_LUA_NEVER;
    }
    while (p->alarm_count > 0 && p->alarms[0]->alarm_ns <= now) {
        fli_lua_task *task = p->alarms[0];
        alarm_remove(p, task);
        task->late = true;
        fli_lua_wake(p, task);
    }
}

filch_err fli_lua_alarms_set(fli_lua_proc *p)
{
    if (p->alarm_count == 0 || p->alarms[0]->alarm_ns >= p->sleeps[0]) return FILCH_OK;
    uint64_t  at_ns = p->alarms[0]->alarm_ns, now = fli_lua_now(p);
    filch_err err = filch_yield_sleep(p->out, FLI_LUA_ALARM_TAG, at_ns > now ? at_ns - now : 0);
    if (err != FILCH_OK) return err;
    p->yields++;
    /* If the array is full, drops the sleep that ends last from the array. When that sleep ends, it only causes one
     * more check of the alarms. */
    memmove(&p->sleeps[1], &p->sleeps[0], (FLI_LUA_SLEEPS - 1) * sizeof p->sleeps[0]);
    p->sleeps[0] = at_ns;
    return FILCH_OK;
}

/* ---- parking and waking ------------------------------------------------------------------------------------------ */

void fli_lua_want_inbox(fli_lua_proc *p)
{
    if (p->current->inbox) return;
    p->current->inbox = true;
    p->inbox_tasks++;
}

void fli_lua_wake(fli_lua_proc *p, fli_lua_task *task)
{
    if (task->state != FLI_LUA_PARKED) return;
    alarm_remove(p, task);
    if (task->inbox) p->inbox_tasks--;
    task->inbox = false;
    task->state = FLI_LUA_READY;
    task->next_ready = NULL;
    *p->ready_end = task;
    p->ready_end = &task->next_ready;
}

void fli_lua_check_cancel(lua_State *L, fli_lua_proc *p)
{
    if (!p->current->cancelled) return;
    p->current->cancelled = false;
    lua_pushliteral(L, "cancelled");
    lua_error(L);
}

bool fli_lua_can_wait(lua_State *L, const fli_lua_proc *p)
{
    return p->current != NULL && p->no_yield == 0 && lua_isyieldable(L);
}

static int refuse_to_wait(lua_State *L)
{
    return luaL_error(
        L, "cannot wait here: this code was called by a C function or a metamethod, which cannot be suspended");
}

void fli_lua_look_begin(lua_State *L, fli_lua_proc *p)
{
    fli_lua_check_cancel(L, p);
    p->current->late = false;
}

void fli_lua_wait_begin_uncancelled(lua_State *L, fli_lua_proc *p)
{
    p->current->late = false;
    if (!fli_lua_can_wait(L, p)) (void)refuse_to_wait(L);
}

void fli_lua_wait_begin(lua_State *L, fli_lua_proc *p)
{
    fli_lua_check_cancel(L, p);
    fli_lua_wait_begin_uncancelled(L, p);
}

int fli_lua_park(lua_State *L, uint64_t until_ns, lua_KContext ctx, lua_KFunction k)
{
    fli_lua_proc *p = fli_lua_self(L);
    fli_lua_task *task = p->current;
    if (!fli_lua_can_wait(L, p)) return refuse_to_wait(L);
    if (until_ns != FLI_LUA_NEVER && !alarm_add(p, task, until_ns)) return fli_lua_no_memory(L, p);
    task->state = FLI_LUA_PARKED;
    p->why = FLI_LUA_BY_PARK;
    return lua_yieldk(L, 0, ctx, k);
}

void fli_lua_pause(lua_State *L, lua_KContext ctx, lua_KFunction k)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (!fli_lua_can_wait(L, p)) return;
    p->why = FLI_LUA_BY_PAUSE;
    (void)lua_yieldk(L, 0, ctx, k);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static fli_lua_task *who_awaits(fli_lua_proc *p, uint64_t tag)
{
    if (p->main.awaits == tag) return &p->main;
    for (fli_lua_task *task = p->tasks; task != NULL; task = task->next) {
        if (task->awaits == tag) return task;
    }
    return NULL;
}

bool fli_lua_asks(fli_lua_proc *p, uint64_t tag)
{
    const fli_lua_task *task = who_awaits(p, tag);
    return task != NULL && task->asks;
}

bool fli_lua_answer(fli_lua_proc *p, uint64_t tag, const filch_data *data, filch_err error, bool refused)
{
    fli_lua_task *task = who_awaits(p, tag);
    if (task == NULL) return false;
    task->awaits = 0;
    /* drops an answer that is left because an earlier wait raised an error when it unpacked the answer */
    filch_drop(&task->answer);
    task->error = filch_keep(data, &task->answer);
    if (error != FILCH_OK) task->error = error;
    task->answered = true;
    task->refused = refused;
    fli_lua_wake(p, task);
    return true;
}

/* An exit event is delivered before messages that were sent earlier, so the reply may still be in the mailbox.
 * Therefore the process sends a refusal to itself, which arrives after the reply: the first of the two messages
 * counts. */
bool fli_lua_exited(fli_lua_proc *p, uint64_t tag, const filch_event *event)
{
    static const char words[] = "the process ended without a reply";
    fli_lua_task     *task = who_awaits(p, tag);
    if (task == NULL) return false;
    if (!task->asks) return fli_lua_answer(p, tag, &event->data, event->error, false);
    fli_lua_bytes bytes;
    filch_data    data;
    uint8_t       head = (uint8_t)(0x80 + sizeof words - 1);
    fli_lua_bytes_init(&bytes, sizeof bytes.first);
    /* The message is so short that it fits into bytes.first, so these calls cannot fail. */
    (void)fli_lua_envelope(&bytes, FLI_LUA_FAILURE, tag);
    (void)fli_lua_bytes_add(&bytes, &head, 1);
    (void)fli_lua_bytes_add(&bytes, words, sizeof words - 1);
    (void)fli_lua_bytes_data(&bytes, &data);
    if (filch_send(p->sched, p->self, data) == FILCH_OK) return true;
    return fli_lua_answer(p, tag, &event->data, FILCH_EDEAD, false);
}
