/* waits.h - what a task waits for inside its process: queues of waiting tasks, at channels and at other tasks.
 *
 * A *wait* belongs to one call that waits (channel.select, ch:send, task:await and so on). A wait has one entry for
 * each channel or task that can end it, and each entry is in the queue of that channel or task. The wait is a userdata
 * on the stack of the call, so it lives as long as the call.
 *
 * Preemption cannot interfere: the watchdog's hook runs between two instructions of a Lua function or at the return of
 * a function, and all code that reads or changes a queue is C code that does not call Lua. A call checks its condition,
 * enters the queues and parks without an interruption in between. See docs/design/lua/tasks.md.
 *
 * INVARIANT  an entry is in a queue only while its call waits: the call leaves all queues before it returns or raises.
 *            This includes memory errors, after which __close handlers of the program still run: they could use the
 *            queue after the collector has freed the wait. So no error is raised while a wait is in a queue;
 *            fli_lua_wait_park() leaves the queues before it raises.
 * INVARIANT  a wait that has been served (`served` is set) is in no queue, so it is served at most once.
 */
#ifndef FLI_LUA_WAITS_H
#define FLI_LUA_WAITS_H

#include "lua/process/proc.h"

typedef struct fli_lua_entry {
    struct fli_lua_entry *next, *prev;
    fli_lua_queue        *queue; /* the queue that the entry is in; NULL: none */
    struct fli_lua_wait  *wait;
    bool                  sends; /* the entry waits to send a value to a channel */
} fli_lua_entry;

typedef enum fli_lua_outcome { FLI_LUA_PASSED, FLI_LUA_CLOSED } fli_lua_outcome;

typedef struct fli_lua_wait {
    fli_lua_task  *task;
    fli_lua_entry *served;  /* the entry by which another task has ended the wait; NULL: none yet */
    uint8_t        outcome; /* fli_lua_outcome, valid if `served` is set */
    uint8_t        style;   /* set and read only by the caller of fli_lua_wait_push() */
    uint32_t       inbox;   /* channel.select: position (from 1) of channel.inbox in the list of cases; 0: not there */
    uint32_t       count;
    uint32_t       open; /* task.all: number of tasks that have not ended; 0 in every other wait */
    fli_lua_entry  entries[];
} fli_lua_wait;

/* Limit for the cases of channel.select and the functions of task.all and task.any, because each wake-up walks over all
 * of them. */
enum { FLI_LUA_CASES_MAX = 10000 };

/* Pushes a new wait of the running task with `count` entries, which are in no queue yet. */
fli_lua_wait *fli_lua_wait_push(lua_State *L, const fli_lua_proc *p, size_t count);

/* Appends the entry with index `entry` to `queue`. */
void fli_lua_wait_enter(fli_lua_wait *wait, size_t entry, fli_lua_queue *queue);
/* Removes all entries of the wait from their queues. */
void fli_lua_wait_leave(fli_lua_wait *wait);

/* Removes one entry from its queue; the other entries of the wait stay. */
void fli_lua_entry_leave(fli_lua_entry *entry);

/* Parks the running task, which is in the queues of `wait`, until another task ends the wait or `until_ns` has passed;
 * then calls `k` with `until_ns`. If memory is short, removes all entries from their queues and raises the memory
 * error. */
int fli_lua_wait_park(lua_State *L, fli_lua_wait *wait, uint64_t until_ns, lua_KFunction k);

/* Ends the wait that `entry` belongs to, with `outcome`: removes all entries of the wait from their queues, and makes
 * the waiting task ready. */
void fli_lua_wait_serve(fli_lua_proc *p, fli_lua_entry *entry, fli_lua_outcome outcome);

#endif
