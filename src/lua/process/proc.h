/* proc.h - one Lua process: its state, its tasks, and what they wait for.
 *
 * A process is one lua_State and one or more *tasks*: the main task, which is the main thread of the state, and the
 * tasks started with task.spawn, each a coroutine. A call that has to wait parks its task (fli_lua_park) and yields;
 * the step continues with another ready task, and returns when there is none.
 *
 * A task that was woken checks again whether the thing it waited for has happened: a wake-up is only a hint. The check
 * and the parking are done by C code without an interruption in between, so no wake-up is lost:
 * docs/design/lua/tasks.md.
 *
 *   proc.c   init, step, close          tasks.c    parking, waking, deadlines
 *   inbox.c  messages, taken or kept    waits.c    queues of waiting tasks
 *   ending.c results, errors, texts     upgrade.c  replacing the code of a process
 */
#ifndef FLI_LUA_PROC_H
#define FLI_LUA_PROC_H

#include <filch.h>
#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#include "lua/host/files.h"
#include "lua/memory/heap.h"
#include "lua/message/codec.h"
#include "lua/value/spans.h"
#include "port/atomic.h"

struct filch_lua;
struct filch_lua_code;

enum { FLI_LUA_SLEEPS = 4, FLI_LUA_ALARM_TAG = 1, FLI_LUA_DEFERRED_CANCEL_TAG = 2, FLI_LUA_FIRST_TAG = 16 };

typedef enum fli_lua_task_state { FLI_LUA_PARKED, FLI_LUA_READY, FLI_LUA_RUNNING } fli_lua_task_state;

struct fli_lua_saved;

/* List of entries (fli_lua_entry) of waiting tasks, in order of arrival: waits.h. */
typedef struct fli_lua_queue {
    struct fli_lua_entry *first, *last;
} fli_lua_queue;

/* INVARIANT  a task has an alarm, and `inbox` set, only while it is PARKED: fli_lua_wake() removes both, however the
 * wait ends. */
typedef struct fli_lua_task {
    lua_State           *L;
    struct fli_lua_task *next, *prev; /* list of all tasks of the process except the main task */
    struct fli_lua_task *next_ready;
    uint8_t              state;         /* fli_lua_task_state */
    bool                 inbox;         /* the task is parked until a message arrives or its deadline passes */
    bool                 late;          /* the deadline of the last wait has passed */
    bool                 answered;      /* the wait for `awaits` is completed: `answer` and `error` are set */
    bool                 refused;       /* `answer` is the text of a refusal */
    bool                 asks;          /* `awaits` is a request: the task waits for its reply */
    bool                 cancelled;     /* a cancel was requested and has not been raised yet */
    bool                 cancel_asked;  /* a cancel was requested, raised or not */
    bool                 exiting;       /* the task has called process.exit or process.upgrade: its errors are final */
    bool                 ended, failed; /* ended: the results are stored; failed: the only result is the error */
    const char          *trace;         /* the string that fli_lua_push_trace() made of the task's error; NULL: none */
    size_t               said;          /* how many bytes of `trace` are the error; the others are the traceback */
    int                  nargs;         /* number of arguments on the task's stack, for its first resume */
    int                  result_count;
    filch_err            error;
    uint32_t             alarm;    /* position in the heap p->alarms, from 1; 0: no deadline */
    uint64_t             alarm_ns; /* deadline of the present wait */
    uint64_t             awaits;   /* tag of the yield or request that the task waits for; 0: none */
    uint64_t             ref;      /* monitor of the process that must answer `awaits`; 0: none */
    filch_data           answer;   /* answer to `awaits`; the task owns one reference */
    fli_lua_queue        waiters;  /* tasks that wait for the end of this task */
} fli_lua_task;

/* A message that no task has taken so far. Notices, such as the end of a monitored process, are kept in the same
 * list. */
typedef struct fli_lua_saved {
    struct fli_lua_saved *next;
    filch_pid             from;
    filch_data            data;
    int32_t               type; /* FILCH_EVENT_MESSAGE, or the event type of the notice */
    filch_err             error;
    filch_stream          stream; /* the stream that the message contained; id 0: none */
} fli_lua_saved;

/* Why a coroutine has yielded: the program called coroutine.yield, the task was parked, or it was interrupted. */
typedef enum fli_lua_why { FLI_LUA_BY_USER, FLI_LUA_BY_PARK, FLI_LUA_BY_PAUSE } fli_lua_why;

/* Fields that most processes never need. They are allocated on first use, so that a process that waits for its first
 * message is small. */
typedef struct fli_lua_rare {
    filch_data                    result; /* result of process.exit; the process owns one reference */
    struct fli_lua_job           *jobs;   /* jobs of work.run that the process waits for */
    struct fli_lua_job           *job;   /* the job, if this struct belongs to a job of work.run instead of a process */
    struct fli_lua_blob          *blobs; /* all blobs of the process */
    struct fli_lua_long          *longs; /* cache of long strings of this step: blob.h */
    struct fli_lua_pending_sends *pending; /* messages that wait for space in a mailbox: pending_sends.c */
    uint64_t                      random[4];
    /* number of kept messages that must be received before the cancel sent by a stop is raised; 0: no cancel is
     * delayed */
    uint32_t deferred_cancel;
    /* the error of the main task, whose __close handlers run before the process ends; allocated by malloc; NULL: none
     */
    struct fli_lua_failure *failure;
} fli_lua_rare;

/* A coroutine that has resumed another one, or that closes another one. Lies on the C stack while the other coroutine
 * runs. */
typedef struct fli_lua_outer {
    lua_State            *L;
    struct fli_lua_outer *next; /* the coroutine that has resumed or closes L; NULL: the scheduler has resumed L */
    bool                  stack_moved; /* becomes fli_lua_proc.stack_moved when L continues */
} fli_lua_outer;

typedef struct fli_lua_proc {
    fli_lua_heap           heap;
    struct filch_lua      *lua;
    struct filch_lua_code *code;
    struct fli_lua_file   *file; /* file that the process was started from by name; NULL: not started by name */
    filch_sched           *sched;
    filch_pid              self;
    lua_State             *L;     /* Lua state, and coroutine of the main task */
    size_t                 chunk; /* bytes of the first chunk, which begins with this struct */

    /* Valid during a step. */
    filch_out         *out;
    const filch_event *events;
    size_t             event_count, event_at; /* events before event_at have been handled */
    fli_lua_task      *current;
    /* The innermost coroutine that runs now.  writes: the worker.  reads: the watchdog, or a signal handler of the
     * worker's thread. */
    FLI_ATOMIC(lua_State *) running;
    struct fli_lua_runner  *runner; /* runner of the thread in this step; NULL: the watchdog does not see the step */
    union {
        uint64_t unyielding; /* in a simulation: how often the hook ran where Lua cannot yield */
        /* Outside simulations, with a counting hook: time when this step first read the clock; 0: not yet. */
        uint64_t began_ns;
    } counted;
    uint64_t    drawn;    /* in a simulation: state of the random numbers that choose when the process is interrupted */
    uint8_t     why;      /* fli_lua_why */
    unsigned    no_yield; /* nested C calls during which Lua must not yield; process.upgrade() adds one for ever */
    const char *spent;    /* text that says why the budget is spent; NULL: it is not spent */
    const void *stack; /* address on the C stack where this step began, or where the outer step began, if this code runs
                          inside the step of another process; NULL: no step has begun */
    lua_State              *closing;      /* the coroutine that runs its __close handlers now; NULL: none */
    struct fli_lua_closing *closing_list; /* the handlers that are being noted, see closing.c; NULL: none */
    uint64_t stuck_ns; /* processor time when this step was first late and could not yield; 0: it never was */
    union {
        /* processor time of the latest budget check in this step while the step was late; before the first such check:
         * of the first doubling of a large stack; 0: neither has happened */
        uint64_t checked_ns;
        uint64_t growths; /* in a simulation: how often a large stack grew within `grown_in` since the hook last ran */
    } stack_growth;
    size_t         stack_size;  /* bytes of the last large stack that Lua has allocated; 0: none */
    const void    *grown_in;    /* in a simulation: the active call in which a large stack last grew */
    bool           stack_moved; /* a stack has moved, perhaps during a __concat metamethod of `running`: see moves.h */
    fli_lua_outer *outer; /* the coroutine that has resumed or closes `running`; NULL: the scheduler has resumed it */

    bool out_of_memory; /* memory has run out: all errors are final */
    bool handing_over;  /* values handed over to upgraded code are being read: streams and requests are allowed */
    bool outdated;      /* the process has got the message that a file it uses has changed */
    bool subscribed;    /* the process wants the message that sets `outdated`: see files.h */
    bool runaway;       /* the budget is spent; never reset, see budget.h */
    bool reported;      /* on_failure was called */
    bool random_ready, simulated;
    bool wants_long; /* rare->longs was needed in this step, but is not allocated yet */

    fli_lua_task          main;
    fli_lua_task         *tasks;
    fli_lua_task         *ready, **ready_end;
    fli_lua_saved        *saved, **saved_end;
    uint64_t              removals; /* number of kept messages that have been removed so far */
    uint64_t              left;     /* messages of the last step that were neither taken nor kept */
    fli_lua_task        **alarms;   /* tasks with a deadline: a binary heap ordered by alarm_ns */
    uint32_t              alarm_count, alarm_room;
    uint64_t              sleeps[FLI_LUA_SLEEPS]; /* when the outstanding sleeps end, ascending; FLI_LUA_NEVER: none */
    uint64_t              next_tag;
    uint32_t              inbox_tasks; /* number of tasks parked for a message */
    uint32_t              reply_tasks; /* number of tasks that wait for a reply message, or for the end of a process */
    uint32_t              yields;      /* number of outstanding yields */
    struct fli_lua_known *known;       /* cache of the code of functions that the process has started: code.c */
    fli_lua_rare         *rare;        /* NULL: none of the rare fields was needed so far */
    /* bytes charged to the heap for relations that this process has made, at least as many as they take; relations.c */
    uint64_t relation_bytes;
    uint64_t seed;
    /* files that the process has code from; under the host's lock */
    struct fli_lua_used *used;
    /* links in the host's list of subscribers; under the host's lock */
    struct fli_lua_proc *next_subscriber, **subscriber_link;
    struct fli_lua_proc *next; /* upgraded code that replaces this struct; set together with `exiting` of a task */
} fli_lua_proc;

/* Collects all garbage of the process. May also be called while no task runs. Used when the memory limit refuses memory
 * that the runtime needs for the process. */
void fli_lua_collect(fli_lua_proc *p);
/* Charges the heap of the process for `size` bytes outside the heap (fli_lua_heap_charge). Collects the garbage of the
 * process before it gives up. Returns false, and charges nothing, if the memory limit does not allow the charge. */
bool fli_lua_charge(fli_lua_proc *p, size_t size);
/* Raises the memory error, which is final. */
int fli_lua_no_memory(lua_State *L, fli_lua_proc *p);
/* Returns p->rare, and allocates it if needed. Returns NULL if memory is short. */
fli_lua_rare *fli_lua_rarely(fli_lua_proc *p);

/* Returns the job if `p` is a job, NULL if it is a process. */
static inline struct fli_lua_job *fli_lua_job_of(const fli_lua_proc *p)
{
    return p->rare != NULL ? p->rare->job : NULL;
}

/* Returns the process that L belongs to. L's extra space holds the address of the process; the lowest bit of this word
 * is a flag of coroutines: see fli_lua_set_away(). */
static inline fli_lua_proc *fli_lua_self(lua_State *L)
{
    return (fli_lua_proc *)(*(uintptr_t *)lua_getextraspace(L) & ~(uintptr_t)1);
}

/* Returns true for a coroutine inside which a task waits, and for the coroutine of a task that has not ended. Lua may
 * consider this coroutine suspended, but only the task may resume it, and no code may close it. The coroutine of the
 * main task is known by its address instead of the flag in its extra space, because each new coroutine gets a copy of
 * that extra space. */
static inline bool fli_lua_is_away(lua_State *L)
{
    return (*(uintptr_t *)lua_getextraspace(L) & 1) != 0 || L == fli_lua_self(L)->L;
}
static inline void fli_lua_set_away(lua_State *L, bool away)
{
    *(uintptr_t *)lua_getextraspace(L) = (uintptr_t)fli_lua_self(L) | (away ? 1 : 0);
}

/* ---- tasks.c ------------------------------------------------------------------------------------------------- */

/* Returns the process that L belongs to. Raises an error if the process is not in a step, or if L belongs to a job of
 * work.run. */
fli_lua_proc *fli_lua_need_process(lua_State *L);
/* Returns the process or the job that L belongs to. Used by functions that are allowed in a job too. */
fli_lua_proc *fli_lua_for(lua_State *L);

uint64_t fli_lua_now(const fli_lua_proc *p);
/* Returns the time on the scheduler's clock that is `span_ns` after now. */
uint64_t fli_lua_until(const fli_lua_proc *p, uint64_t span_ns);
/* Returns the time when the timeout at stack index `index` ends; FLI_LUA_NEVER if the timeout is missing, nil or false.
 * Raises an error if the value is not a span. */
uint64_t fli_lua_deadline(lua_State *L, const fli_lua_proc *p, int index);

/* Parks the running task until fli_lua_wake() is called for it or `until_ns` has passed; then calls `k`. Raises an
 * error where Lua cannot yield. */
int fli_lua_park(lua_State *L, uint64_t until_ns, lua_KContext ctx, lua_KFunction k);

/* Allocates the memory for one more deadline, so that the next fli_lua_park() of the running task does not fail for
 * lack of memory. Returns false if memory is short. */
bool fli_lua_alarm_prepare(fli_lua_proc *p);

/* Called when the slice is over. If Lua can yield here, lets other processes run, and then calls `k`. Returns if Lua
 * cannot yield. */
void fli_lua_pause(lua_State *L, lua_KContext ctx, lua_KFunction k);

/* Called before fli_lua_park(): the running task is woken also when a message arrives. */
void fli_lua_want_inbox(fli_lua_proc *p);

/* Makes a parked task ready: removes its alarm and its wait for a message. Does nothing if the task is not parked. */
void fli_lua_wake(fli_lua_proc *p, fli_lua_task *task);

/* Called at the beginning of a call that waits, before anything is sent or started. Raises a pending cancel. Raises an
 * error where Lua cannot yield. Clears task->late, which an earlier wait may have set. */
void fli_lua_wait_begin(lua_State *L, fli_lua_proc *p);
/* Does what fli_lua_wait_begin() does, but leaves a pending cancel pending. */
void fli_lua_wait_begin_uncancelled(lua_State *L, fli_lua_proc *p);
/* Returns true if the running code can wait here: Lua can yield, and a task runs. In a job of work.run Lua can yield
 * too, but no task runs. */
bool fli_lua_can_wait(lua_State *L, const fli_lua_proc *p);
/* Does what fli_lua_wait_begin() does, for a call that often returns without waiting: raises no error where Lua cannot
 * yield. */
void fli_lua_look_begin(lua_State *L, fli_lua_proc *p);
/* ---- deferred_cancel.c ---- */

/* Delays the cancel of a stop until all messages that are kept now have been received (see deferred_cancel.c). Returns
 * false if the cancel must be raised at once. */
bool fli_lua_deferred_cancel_begin(fli_lua_proc *p);
/* Call this function when a kept message has been received. If the delayed cancel waits for no further message, cancels
 * the main task. */
void fli_lua_deferred_cancel_read(fli_lua_proc *p);
/* Cancels the main task now, if its cancel was delayed by fli_lua_deferred_cancel_begin(). */
void fli_lua_deferred_cancel_end(fli_lua_proc *p);

/* Raises the error "cancelled" if a cancel of the running task is pending. */
void fli_lua_check_cancel(lua_State *L, fli_lua_proc *p);

/* Called when a task other than the main task has ended: from then on the garbage collector may free the task. See
 * task.c. */
void fli_lua_task_end(fli_lua_proc *p, fli_lua_task *task);

/* Wakes the tasks with a deadline that has passed. */
void fli_lua_alarms_ring(fli_lua_proc *p);
/* Yields a sleep until the nearest deadline of a task, unless an outstanding sleep ends by then. */
filch_err fli_lua_alarms_set(fli_lua_proc *p);

/* Completes the wait for `tag`: wakes the task that waits, and keeps a reference to `data`. Returns false if no task
 * waits for `tag`. */
bool fli_lua_answer(fli_lua_proc *p, uint64_t tag, const filch_data *data, filch_err error, bool refused);
/* Returns true if a task waits for the reply to request `tag`. */
bool fli_lua_asks(fli_lua_proc *p, uint64_t tag);
/* Handles the end of a process that was monitored for the call with `tag`. Returns false if no task waits for `tag`. */
bool fli_lua_exited(fli_lua_proc *p, uint64_t tag, const filch_event *event);

/* ---- inbox.c ------------------------------------------------------------------------------------------------- */

/* The oldest message or notice that no task has taken. fli_lua_inbox_peek() sets it, or returns false if there is none.
 * Valid until the next call of an inbox function. */
typedef struct fli_lua_message {
    const filch_data *data;
    filch_pid         from;
    int32_t           type;
    filch_err         error;
    filch_stream      stream; /* stream in the message, already owned by this process; id 0: none */
} fli_lua_message;
bool fli_lua_inbox_peek(fli_lua_proc *p, fli_lua_message *message);
/* Adds a notice to the kept messages: the list of messages that were taken from the mailbox, but not yet received by
 * the Lua program. */
filch_err fli_lua_inbox_notice(fli_lua_proc *p, const filch_event *event);
/* Removes the message that fli_lua_inbox_peek() returned last. */
void fli_lua_inbox_take(fli_lua_proc *p);
/* The place of a message in the list of kept messages: the address of the pointer to it. A search begins at
 * &p->saved. */
typedef fli_lua_saved **fli_lua_place;
/* Moves the next new message from the events of the step to the end of the kept messages, where a pattern is compared
 * with it. Returns false if there is no new message, or if memory is short (*err is then set). */
bool fli_lua_inbox_keep(fli_lua_proc *p, filch_err *err);
/* Removes the kept message at `place`. */
void fli_lua_inbox_remove(fli_lua_proc *p, fli_lua_place place);
/* If there are replies among the new messages of the step, passes them to the tasks that wait for them, and moves all
 * other new messages to the kept messages. */
filch_err fli_lua_inbox_answers(fli_lua_proc *p);
/* Moves all messages that are left in the events of the step to the kept messages. */
filch_err fli_lua_inbox_end(fli_lua_proc *p);
/* Called at the end of each step: counts in p->left the messages of the step that were neither taken nor kept. There
 * are such messages only if the process ends in this step. */
void fli_lua_inbox_left(fli_lua_proc *p);
/* Returns how many messages the process has got from its mailbox and never given to the Lua program. Notices and
 * replies are not counted. */
uint64_t fli_lua_inbox_unread(const fli_lua_proc *p);
/* Moves all kept messages of `from` to `to`, which must have no kept messages. */
filch_err fli_lua_inbox_move(fli_lua_proc *from, fli_lua_proc *to);

/* ---- ending.c ------------------------------------------------------------------------------------------------ */

/* Ends the process: the main task has returned `count` values, on top of its stack. */
filch_err fli_lua_end_done(fli_lua_proc *p, int count);
/* Returns true if the main task has failed, by an error or by process.exit, and its pending __close handlers run before
 * the process ends. */
static inline bool fli_lua_main_has_failed(const fli_lua_proc *p)
{
    return p->rare != NULL && p->rare->failure != NULL;
}
/* Ends the process: a task has failed with `status`; the error is on top of its stack. If the task has called
 * process.exit, ends the process with the result that process.exit was given, or, if the main task has failed before,
 * with the error of the main task. */
filch_err fli_lua_end_failed(fli_lua_proc *p, fli_lua_task *task, int status);
/* Called when the process is closed: calls on_failure if the runtime has ended the process with an error, as for
 * FILCH_ELINK and FILCH_EOVERFLOW. Does nothing if the process has failed in its own step. */
void fli_lua_report_end(fli_lua_proc *p);
/* Ends the process with `error`, and with `text` as the detail of the error. Also calls on_failure, unless `error` says
 * that the process was cancelled or killed. */
filch_err fli_lua_fail(fli_lua_proc *p, filch_err error, const void *text, size_t size);
/* Pushes the error at index 1, a string, with a traceback of L without its two innermost levels. Notes in the task
 * where the words of the script end: only they are escaped in reports (task->trace, task->said). */
void fli_lua_push_trace(lua_State *L, fli_lua_task *task);
/* Called when the main task has failed with `status`. Returns true if its pending __close handlers must run before the
 * process ends: the main task is then ready. */
bool fli_lua_end_later(fli_lua_proc *p, int status);
/* Runs the pending __close handlers of L, unless the budget is spent. Writes the text of the error with its traceback
 * to `words`, the size of the text without the traceback to *without, and returns the error code. */
filch_err fli_lua_error_words(fli_lua_proc *p, lua_State *L, int status, fli_lua_bytes *words, size_t *without);

/* ---- closing.c ------------------------------------------------------------------------------------------------- */

/* Closes the coroutine `co`, which has failed, but only notes its pending __close handlers. Returns true if there are
 * any: then the list of them and the error are pushed on L (which may be `co`), and fli_lua_closing_go_on() runs them.
 * Returns false if the coroutine is closed: its error is on top of the stack of `co`, or on top of L's stack if
 * memory or the budget have run out. */
bool fli_lua_closing_begin(lua_State *L, fli_lua_proc *p, lua_State *co);
enum { FLI_LUA_CLOSING_ERROR = 2 }; /* index of the error on the stack of fli_lua_closing_go_on() */
/* Returns true if L is being closed and none of its __close handlers runs: the hook of L, which notes the handlers,
 * must stay set. */
bool fli_lua_closing_notes(lua_State *L);
/* Runs the handlers, which may wait, and raises the error of the coroutine, or of the last handler that failed. The
 * first call has `called` 0, and a stack with three values: the list, the error, and a text. If the raised error is a
 * string, the text is put in front of it. */
int fli_lua_closing_go_on(lua_State *L, int status, lua_KContext called);
/* Does what fli_lua_closing_begin() does for the coroutine of the main task. If there are handlers, makes the main task
 * ready to run them. */
bool fli_lua_closing_main(fli_lua_proc *p);

/* ---- upgrade.c ----------------------------------------------------------------------------------------------- */

/* Lua function that starts upgraded code in its new state: its arguments are the function of the code, and `start`.
 * Runs the file and its function `upgrade`. Returns the function that the main task runs first, and its arguments. */
int fli_lua_upgrade_begin(lua_State *L);
/* Called at the end of the step in which the process was upgraded: moves the kept messages, the pending cancel, and the
 * numbers of outstanding yields and sleeps from the old struct `p` to the new one, p->next. */
filch_err fli_lua_upgrade_end(fli_lua_proc *p);
/* If a file that the process uses has newer code, upgrades the process and does not return. Called in process.receive
 * without a pattern, if p->outdated is set: before a message is taken, and again before the call waits. Does nothing in
 * a task other than the main task. */
void fli_lua_upgrade_look(lua_State *L, fli_lua_proc *p);

/* ---- proc.c -------------------------------------------------------------------------------------------------- */

/* What a process is started with: a spawn passes a pointer to this struct to fli_lua_init(), by filch_ptr. */
typedef struct fli_lua_start {
    struct filch_lua      *lua;
    struct filch_lua_code *code;
    const char            *method;
    bool                   method_optional; /* the code need not have the function `method` */
    size_t                 memory_max;
    fli_lua_origin         origin; /* file and version that the code comes from */
    struct fli_lua_proc   *old;    /* the process that the new code replaces; NULL: a new process is started */
    struct fli_lua_proc   *made;   /* set by fli_lua_init() if `old` is set: the struct with the new code */
    uint64_t               seed;
    bool                   again; /* this struct is stored and used for several starts, each with another seed */
    const filch_data      *args;  /* arguments from C */
    size_t                 arg_count;
    /* start from Lua: all encoded upvalues except the globals, then arg_count encoded values */
    const uint8_t      *bytes;
    size_t              size;
    const fli_lua_refs *refs;      /* blocks that `bytes` refers to */
    bool                functions; /* `bytes` contains functions */
    char               *text;      /* buffer for the reason of a failed start; may be NULL */
    size_t              text_size;
} fli_lua_start;

/* Creates a state for `start`, with the function that its main task runs first, and the arguments of that function, on
 * the stack. If *status is not LUA_OK, the start has failed, and an error message is on the stack instead. Returns NULL
 * if memory is too short for a state; *status then says which memory: see fli_lua_state_for(). */
fli_lua_proc *fli_lua_open(const fli_lua_start *start, filch_sched *sched, filch_pid self, int *status);
/* Writes to `text` why fli_lua_open() has failed with `status`. `p` is the result of fli_lua_open(), with the error on
 * top of its stack. */
void fli_lua_start_refusal(const fli_lua_start *start, const fli_lua_proc *p, int status, char *text, size_t size);

/* Functions of the filch_type of Lua processes; `self` points to a pointer to the fli_lua_proc. */
filch_err fli_lua_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);
filch_err fli_lua_step(void *self, const filch_event *events, size_t count, filch_out *out);
void      fli_lua_close(void *self);

/* Sets the upvalues of the function on top of the stack, and pushes the arguments above it. Both come from `start`.
 * Returns false if start->bytes are not valid. */
bool fli_lua_push_start(lua_State *L, const fli_lua_start *start);

enum { FLI_LUA_PID_TEXT = 48 };
/* Writes the pid as `p` prints it: "<4.1>" if the process is on the node of `p`. Calls no function of the program. */
void fli_lua_pid_write(const fli_lua_proc *p, filch_pid pid, char text[FLI_LUA_PID_TEXT]);
int  fli_lua_pid_text(lua_State *L); /* tostring of a pid */

/* ---- pending_sends.c ----------------------------------------------------------------------------------------- */

/* Charges the process for a message of `size` bytes, and for what the scheduler holds besides them while the message
 * waits. The send of the message becomes a yield with `tag`. Returns false, and charges nothing, if the memory limit
 * does not allow the charge. */
bool fli_lua_pending_add(fli_lua_proc *p, uint64_t tag, size_t size);
/* Discharges the message whose yield with `tag` is completed. Does nothing if there is none. Takes constant time on
 * average, because it is called for each yield that completes. */
void fli_lua_pending_end(fli_lua_proc *p, uint64_t tag);
/* Moves the charges for the messages of `from` to `to`, which replaces `from` in an upgrade. Returns false if the
 * memory limit does not allow the charges. */
bool fli_lua_pending_move(fli_lua_proc *from, fli_lua_proc *to);

/* ---- relations.c --------------------------------------------------------------------------------------------- */

/* Called in an upgrade, in which `to` replaces `from`: charges the heap of `to` for the relations of the process.
 * Returns false if the memory limit does not allow the charge. */
bool fli_lua_relations_move(fli_lua_proc *from, fli_lua_proc *to);

/* ---- base.c, receive.c ------------------------------------------------------------------------------------------ */

/* The function xpcall of Lua programs. Errors that end the process (fli_lua_is_final) are not caught. */
int fli_lua_xpcall(lua_State *L);
/* Takes the oldest message, if there is one, and pushes the message and its sender. Calls no Lua function of the
 * program. */
bool fli_lua_take_oldest(lua_State *L, fli_lua_proc *p);
/* Pushes the text for a failed process: the text in `data` if the process left one, otherwise the text of the error
 * code. */
void fli_lua_push_words(lua_State *L, const filch_data *data, filch_err error);

/* ---- streams.c, process.c -------------------------------------------------------------------------------------- */

/* Streams and requests: values that belong to a process and can be handed over to upgraded code. fli_lua_to_stream()
 * and fli_lua_to_request() return false if the value at `index` is something else. */
bool fli_lua_to_stream(lua_State *L, int index, filch_stream *stream);
void fli_lua_push_stream(lua_State *L, filch_stream stream);
/* Takes ownership of a stream that another process gave to this one. Returns false if the message contains no
 * stream. */
bool fli_lua_take_stream(fli_lua_proc *p, const filch_data *data, filch_stream *stream);
bool fli_lua_to_request(lua_State *L, int index, filch_pid *from, uint64_t *id);
void fli_lua_push_request(lua_State *L, filch_pid from, uint64_t id);

/* Returns the pid for the value at `index`: a pid, a request, or a registered name. Raises an error for any other
 * value. */
filch_pid fli_lua_check_pid(lua_State *L, int index);
/* Returns the text for an error that a function of filch.h has just returned on this thread. For FILCH_EINVAL it names
 * the argument (filch_err_detail), so it must not be used for the error of an event. */
const char *fli_lua_call_error(filch_err err);
/* Push the results of a Lua function and return their number. fli_lua_return(): `err` was returned by a call; pushes
 * true if it is FILCH_OK, otherwise nil and fli_lua_call_error(). fli_lua_return_refusal(): `err` was returned by a
 * call that failed; pushes nil and fli_lua_call_error(). fli_lua_return_error(): `err` is the error of an event; pushes
 * nil and its text. */
int fli_lua_return(lua_State *L, filch_err err);
int fli_lua_return_refusal(lua_State *L, filch_err err);
int fli_lua_return_error(lua_State *L, filch_err err);
/* Waits for the EXIT event, with tag `tag`, of a process that was just spawned. The Lua call then returns the value
 * that `push` pushes for the result of that process, or nil and the reason of its failure. `push` raises only memory
 * errors. */
int fli_lua_await_end(lua_State *L, fli_lua_proc *p, uint64_t tag,
                      void (*push)(lua_State *L, const filch_data *answer));

#endif
