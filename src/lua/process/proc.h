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

/* List of waits (fli_lua_entry) in the order of their arrival: waits.h. */
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
    bool                 inbox;         /* parked until a message arrives */
    bool                 late;          /* the deadline of the task has passed */
    bool                 answered;      /* `answer` and `error` are set */
    bool                 refused;       /* the answer is the text of a refusal */
    bool                 asks;          /* the task waits for a reply, not for the end of a process */
    bool                 cancelled;     /* a cancel is pending and has not been raised */
    bool                 cancel_asked;  /* a cancel was requested at some time */
    bool                 ended, failed; /* ended: the results are there; failed: the results are an error */
    bool                 awaited;       /* another task waits or waited for the end of this task, and gets its error */
    int                  nargs;         /* number of arguments on the task's stack, for its first resume */
    int                  result_count;
    filch_err            error;
    uint32_t             alarm;    /* position in the heap of alarms, from 1; 0: none */
    uint64_t             alarm_ns; /* deadline of the task */
    uint64_t             awaits;   /* tag of the yield or request that the task waits for; 0: none */
    uint64_t             ref;      /* monitor that belongs to `awaits`; 0: none */
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

/* Why lua_resume returned. */
typedef enum fli_lua_why { FLI_LUA_BY_USER, FLI_LUA_BY_PARK, FLI_LUA_BY_PAUSE } fli_lua_why;

/* Fields that most processes never need. They are allocated on first use, so that a process that waits for its first
 * message is small. */
typedef struct fli_lua_rare {
    filch_data           result; /* result of process.exit; the process owns one reference */
    struct fli_lua_job  *jobs;   /* jobs of work.run that the process waits for */
    struct fli_lua_job  *job;    /* set if this is a job on the work pool instead of a process */
    struct fli_lua_blob *blobs;  /* all blobs of the process */
    struct fli_lua_long *longs;  /* cache of long strings of this step: blob.h */
    uint64_t             random[4];
    /* number of kept messages to be received before the cancel that a stop sends is raised; 0: no cancel is delayed */
    uint32_t deferred_cancel;
} fli_lua_rare;

typedef struct fli_lua_proc {
    fli_lua_heap           heap;
    struct filch_lua      *lua;
    struct filch_lua_code *code;
    struct fli_lua_file   *file; /* file that the process was started from by name; NULL: not started by name */
    filch_sched           *sched;
    filch_pid              self;
    lua_State             *L;     /* thread of the main task */
    size_t                 chunk; /* bytes of the first chunk, which begins with this struct */

    /* Valid during a step. */
    filch_out         *out;
    const filch_event *events;
    size_t             event_count, event_at; /* events before event_at are finished */
    fli_lua_task      *current;
    /* The innermost running coroutine.  writes: the worker.  reads: the watchdog, or a signal handler of this
     * thread. */
    FLI_ATOMIC(lua_State *) running;
    struct fli_lua_runner  *runner; /* runner of this thread; NULL: the watchdog does not see the step */
    union {
        uint64_t unyielding; /* in a simulation: number of hooks that could not yield */
        /* Outside simulations, in a state with a counting hook: time of the first hook call in this step; 0: no call
         * yet. */
        uint64_t began_ns;
    } counted;
    uint64_t    drawn;    /* in a simulation: random state for the points of interruption */
    uint8_t     why;      /* fli_lua_why */
    unsigned    no_yield; /* number of nested calls through which Lua cannot yield */
    const char *spent;    /* text that says why the budget is spent; NULL: it is not */
    const void *stack;    /* address on the C stack where this step began; NULL: none yet */
    lua_State  *closing;  /* the coroutine that runs its __close handlers; NULL: none */
    uint64_t    stuck_ns; /* processor time when this step was first late where it cannot yield; 0: never */

    bool out_of_memory, exiting; /* flags of errors that no protected call may catch */
    bool handing_over; /* the values being read come from the replaced process: streams and requests are allowed */
    bool outdated;     /* the process has got the message that a file it uses has changed */
    bool subscribed;   /* the process wants the message that sets `outdated`: see files.h */
    bool runaway;      /* the budget is spent; never reset, see budget.h */
    bool reported;     /* on_failure was called */
    bool random_ready, simulated;
    bool wants_long; /* rare->longs was needed in this step, but is not allocated yet */

    fli_lua_task          main;
    fli_lua_task         *tasks;
    fli_lua_task         *ready, **ready_end;
    fli_lua_saved        *saved, **saved_end;
    uint64_t              removals; /* number of kept messages that were removed */
    fli_lua_task        **alarms;   /* tasks with a deadline: a binary heap ordered by alarm_ns */
    uint32_t              alarm_count, alarm_room;
    uint64_t              sleeps[FLI_LUA_SLEEPS]; /* times of the outstanding sleeps, ascending; FLI_LUA_NEVER: none */
    uint64_t              next_tag;
    uint32_t              inbox_tasks; /* number of tasks parked for a message */
    uint32_t              reply_tasks; /* number of tasks parked for a reply, which comes as a message */
    uint32_t              yields;      /* number of outstanding yields */
    struct fli_lua_known *known;       /* functions that the process has started: code.h */
    fli_lua_rare         *rare;        /* NULL: none of the rare fields was needed so far */
    uint64_t              seed;
    struct fli_lua_used  *used;                               /* files it has code from; under the host's lock */
    struct fli_lua_proc  *next_subscriber, **subscriber_link; /* list of subscribers; under the host's lock */
    struct fli_lua_proc  *next; /* the process that replaces this one; set together with `exiting` */
} fli_lua_proc;

/* Collects all garbage of the process, also between two resumes of its tasks. Called when the memory limit refuses
 * memory that the runtime needs for the process. */
void fli_lua_collect(fli_lua_proc *p);
/* Returns p->rare, and allocates it if needed. Returns NULL if memory is short. */
fli_lua_rare *fli_lua_rarely(fli_lua_proc *p);

/* Returns the job if `p` is a job, NULL if it is a process. */
static inline struct fli_lua_job *fli_lua_job_of(const fli_lua_proc *p)
{
    return p->rare != NULL ? p->rare->job : NULL;
}

/* Returns the process that L belongs to. The lowest bit of the word is a flag of coroutines: see fli_lua_set_away. */
static inline fli_lua_proc *fli_lua_self(lua_State *L)
{
    return (fli_lua_proc *)(*(uintptr_t *)lua_getextraspace(L) & ~(uintptr_t)1);
}

/* Returns true for a coroutine inside which a task waits, and for the coroutine of a task that has not ended. Lua may
 * consider such a coroutine suspended, but only the task may resume it, and no code may close it. The coroutine of the
 * main task has no flag in its word, because each new coroutine gets a copy of that word. */
static inline bool fli_lua_is_away(lua_State *L)
{
    return (*(uintptr_t *)lua_getextraspace(L) & 1) != 0 || L == fli_lua_self(L)->L;
}
static inline void fli_lua_set_away(lua_State *L, bool away)
{
    *(uintptr_t *)lua_getextraspace(L) = (uintptr_t)fli_lua_self(L) | (away ? 1 : 0);
}

/* ---- tasks.c ------------------------------------------------------------------------------------------------- */

/* Returns the process that runs a step. Raises an error outside of a step, for example in the top level of a module
 * that runs in a job. */
fli_lua_proc *fli_lua_need_process(lua_State *L);
/* Returns the process or the job that L belongs to, for calls that are allowed in a job too. */
fli_lua_proc *fli_lua_for(lua_State *L);

uint64_t fli_lua_now(const fli_lua_proc *p);
/* Returns the time `span_ns` from now. */
uint64_t fli_lua_until(const fli_lua_proc *p, uint64_t span_ns);
/* Returns the time when the timeout at `index` ends; FLI_LUA_NEVER if the timeout is missing, nil or false. Raises an
 * error if the value is not a span. */
uint64_t fli_lua_deadline(lua_State *L, const fli_lua_proc *p, int index);

/* Parks the running task until it is woken or until `until_ns`; then `k` continues. Raises an error where Lua cannot
 * yield. */
int fli_lua_park(lua_State *L, uint64_t until_ns, lua_KContext ctx, lua_KFunction k);

/* Yields to other processes if Lua can yield here; then `k` continues. Returns if Lua cannot yield. Called when the
 * slice is over. */
void fli_lua_pause(lua_State *L, lua_KContext ctx, lua_KFunction k);

/* Lets the next park of the running task also end when a message arrives. */
void fli_lua_want_inbox(fli_lua_proc *p);

/* Makes a parked task ready: removes its alarm, and it no longer waits for messages. Does nothing if the task is not
 * parked. */
void fli_lua_wake(fli_lua_proc *p, fli_lua_task *task);

/* Called at the beginning of a call that waits: raises a pending cancel, and raises an error where Lua cannot yield,
 * before anything is sent or started. Clears the flag of an earlier deadline. */
void fli_lua_wait_begin(lua_State *L, fli_lua_proc *p);
/* As fli_lua_wait_begin(), but leaves a cancel pending. */
void fli_lua_wait_begin_uncancelled(lua_State *L, fli_lua_proc *p);
/* Returns true if Lua can yield here. */
bool fli_lua_can_wait(lua_State *L, const fli_lua_proc *p);
/* Does what fli_lua_wait_begin() does, for a call that often returns without waiting: raises no error where Lua cannot
 * yield. */
void fli_lua_look_begin(lua_State *L, fli_lua_proc *p);
/* ---- deferred_cancel.c ---- */

/* Delays the cancel that a stop sends while there are kept messages that arrived before the cancel. Returns false if
 * the cancel must be raised at once. */
bool fli_lua_deferred_cancel_begin(fli_lua_proc *p);
/* To be called when a kept message has been received. */
void fli_lua_deferred_cancel_read(fli_lua_proc *p);
/* Cancels the main task now, if its cancel was delayed. */
void fli_lua_deferred_cancel_end(fli_lua_proc *p);

/* Raises "cancelled" if a cancel is pending. */
void fli_lua_check_cancel(lua_State *L, fli_lua_proc *p);

/* Called when a task other than the main task has ended: from now on the garbage collector may free it. See task.c. */
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

/* The oldest message that no task has taken, valid until the next call of an inbox function. fli_lua_inbox_peek()
 * returns false if there is none. */
typedef struct fli_lua_message {
    const filch_data *data;
    filch_pid         from;
    int32_t           type;
    filch_err         error;
    filch_stream      stream; /* stream in the message, already owned by this process; id 0: none */
} fli_lua_message;
bool fli_lua_inbox_peek(fli_lua_proc *p, fli_lua_message *message);
/* Adds a notice to the kept messages: those that were taken from the mailbox and not received by the program. */
filch_err fli_lua_inbox_notice(fli_lua_proc *p, const filch_event *event);
/* Removes the message that fli_lua_inbox_peek() returned last. */
void fli_lua_inbox_take(fli_lua_proc *p);
/* The place of a message in the list of kept messages, for a search that begins at &p->saved. */
typedef fli_lua_saved **fli_lua_place;
/* Moves the next new message to the kept messages, so that a pattern can be compared with it there. Returns false if
 * there is no new message or memory is short (*err is then set). */
bool fli_lua_inbox_keep(fli_lua_proc *p, filch_err *err);
/* Removes the kept message at `place`. */
void fli_lua_inbox_remove(fli_lua_proc *p, fli_lua_place place);
/* Delivers replies among the new messages to the tasks that wait for them. If there is a reply, keeps all other new
 * messages. */
filch_err fli_lua_inbox_answers(fli_lua_proc *p);
/* Keeps all messages that are left in the events. */
filch_err fli_lua_inbox_end(fli_lua_proc *p);
/* Moves all kept messages of `from` to `to`, which must have none. */
filch_err fli_lua_inbox_move(fli_lua_proc *from, fli_lua_proc *to);

/* ---- ending.c ------------------------------------------------------------------------------------------------ */

/* Ends the process: the main task has returned `count` values, on top of its stack. */
filch_err fli_lua_end_done(fli_lua_proc *p, int count);
/* Ends the process: a task has failed with `status`; the error is on top of its stack. */
filch_err fli_lua_end_failed(fli_lua_proc *p, fli_lua_task *task, int status);
/* Called when the process is closed: calls on_failure if the runtime has ended the process with an error, as for
 * FILCH_ELINK and FILCH_EOVERFLOW. Does nothing if the process has failed in its own step. */
void fli_lua_report_end(fli_lua_proc *p);
/* Ends the process with `error`, and calls on_failure, unless the process was cancelled. `text` is the detail. */
filch_err fli_lua_fail(fli_lua_proc *p, filch_err error, const void *text, size_t size);
/* Runs the pending __close handlers of L, unless the budget is spent. Writes the text of the error with its traceback
 * to `words`, and returns the error code. */
filch_err fli_lua_error_words(fli_lua_proc *p, lua_State *L, int status, fli_lua_bytes *words);

/* ---- upgrade.c ----------------------------------------------------------------------------------------------- */

/* Pushes the first function of the new process's main task and its arguments. The function of the code and `start` are
 * on the stack. Runs in a protected call. */
int fli_lua_upgrade_begin(lua_State *L);
/* Called at the end of the step of the old process: moves its messages, its pending cancel, and the numbers of its
 * outstanding yields and sleeps to the new process. */
filch_err fli_lua_upgrade_end(fli_lua_proc *p);
/* If there is newer code, upgrades the process and does not return. Called in process.receive without a pattern, if
 * `outdated` is set: before a message is taken, and again before the call waits. Does nothing in a task other than the
 * main task. */
void fli_lua_upgrade_look(lua_State *L, fli_lua_proc *p);

/* ---- proc.c -------------------------------------------------------------------------------------------------- */

/* Arguments of a start: a spawn passes a pointer to this struct to init, by filch_ptr. */
typedef struct fli_lua_start {
    struct filch_lua      *lua;
    struct filch_lua_code *code;
    const char            *method;
    bool                   method_optional; /* the file need not have a function `method` */
    size_t                 memory_max;
    fli_lua_origin         origin; /* file that the code comes from */
    struct fli_lua_proc   *old;    /* the process that the new code replaces; NULL: a new process is started */
    struct fli_lua_proc   *made;   /* result if `old` is set: the new process */
    uint64_t               seed;
    bool                   again; /* `start` is stored and used for several starts, each with another seed */
    const filch_data      *args;  /* arguments from C */
    size_t                 arg_count;
    const uint8_t         *bytes; /* from Lua: all upvalues except the globals, then arg_count values */
    size_t                 size;
    const fli_lua_refs    *refs;      /* blocks that `bytes` refers to */
    bool                   functions; /* `bytes` contains functions */
    char                  *text;      /* buffer for the reason of a failed start; may be NULL */
    size_t                 text_size;
} fli_lua_start;

/* Creates a state for `start`, with the first function of its main task and the arguments on the stack. *status is the
 * status of lua_load; if it is not LUA_OK, an error message is on the stack instead. Returns NULL if memory is too
 * short for a state. */
fli_lua_proc *fli_lua_open(const fli_lua_start *start, filch_sched *sched, filch_pid self, int *status);

/* Functions of the filch_type; `self` holds one pointer. */
filch_err fli_lua_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);
filch_err fli_lua_step(void *self, const filch_event *events, size_t count, filch_out *out);
void      fli_lua_close(void *self);

/* Sets the upvalues of the function on top of the stack, and pushes the arguments above it. Returns false if the
 * bytes are not valid. */
bool fli_lua_push_start(lua_State *L, const fli_lua_start *start);

int fli_lua_pid_text(lua_State *L); /* tostring of a pid */

/* ---- base.c, receive.c ------------------------------------------------------------------------------------------ */

/* xpcall of Lua programs: errors that end the process are not caught. */
int fli_lua_xpcall(lua_State *L);
/* Takes the oldest message, if there is one, and pushes it and its sender. Calls no function of the program. */
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
/* Pushes what a Lua function returns: true, or nil and the text of `err`. */
int fli_lua_return(lua_State *L, filch_err err);
int fli_lua_return_error(lua_State *L, filch_err err);
/* Waits for the EXIT event tagged `tag` of a process just spawned. Returns the value that `push` pushes for the result
 * of that process, or nil and the reason. `push` raises only memory errors. */
int fli_lua_await_end(lua_State *L, fli_lua_proc *p, uint64_t tag,
                      void (*push)(lua_State *L, const filch_data *answer));

#endif
