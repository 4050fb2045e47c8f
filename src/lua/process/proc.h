/* proc.h - one Lua process: its state, its tasks, and what they wait for.
 *
 * A process is one lua_State and one or more *tasks*: the main one, which is the state's own thread, and those started
 * with task.spawn, each a coroutine. A call that has to wait parks its task (fli_lua_park) and yields; the step goes on
 * with another task that is ready, and returns when there is none.
 *
 * A task that is woken looks again whether it has what it waited for: waking is a hint, never a promise. Whether it has
 * is found out by C code that parks in the same go, so no wake-up can come between: docs/design/lua/tasks.md.
 *
 *   proc.c   init, step, close          tasks.c    parking, waking, deadlines
 *   inbox.c  messages, taken or kept    waits.c    queues of waiting tasks
 *   ending.c results, errors, texts     upgrade.c  going on with other code
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
#include "port/atomic.h"

struct filch_lua;
struct filch_lua_code;

#define FLI_LUA_NEVER UINT64_MAX

enum { FLI_LUA_SLEEPS = 4, FLI_LUA_ALARM_TAG = 1, FLI_LUA_FAREWELL_TAG = 2, FLI_LUA_FIRST_TAG = 16 };

typedef enum fli_lua_task_state { FLI_LUA_PARKED, FLI_LUA_READY, FLI_LUA_RUNNING } fli_lua_task_state;

struct fli_lua_saved;

/* Waits in the order in which they came: waits.h. */
typedef struct fli_lua_queue {
    struct fli_lua_entry *first, *last;
} fli_lua_queue;

/* INVARIANT  a task has an alarm, and `inbox` set, only while it is PARKED: waking it takes both away, however its wait
 * ends. */
typedef struct fli_lua_task {
    lua_State           *L;
    struct fli_lua_task *next, *prev; /* all of the process but the main one */
    struct fli_lua_task *next_ready;
    uint8_t              state;         /* fli_lua_task_state */
    bool                 inbox;         /* parked for a message */
    bool                 late;          /* its deadline has passed */
    bool                 answered;      /* `answer` is there, and what was wrong in `error` */
    bool                 refused;       /* the answer is the words of a refusal */
    bool                 asks;          /* what it waits for is a reply, not the other one's end */
    bool                 cancelled;     /* asked to end, and not told yet */
    bool                 cancel_asked;  /* has been asked to end, ever */
    bool                 ended, failed; /* its results are there; they are an error */
    bool                 awaited;       /* another task waits for its end, or has: its error is told there */
    int                  nargs;         /* values on its stack to begin with */
    int                  result_count;
    filch_err            error;
    uint32_t             alarm;    /* place among the alarms, from 1; 0 none */
    uint64_t             alarm_ns; /* its deadline */
    uint64_t             awaits;   /* the tag of the yield or request that it waits for; 0 none */
    uint64_t             ref;      /* of the monitor that goes with it; 0 none */
    filch_data           answer;   /* kept */
    fli_lua_queue        waiters;  /* for its end */
} fli_lua_task;

/* A message kept for later: nobody wanted it yet. Notices (a monitored process has ended) are kept among them. */
typedef struct fli_lua_saved {
    struct fli_lua_saved *next;
    filch_pid             from;
    filch_data            data;
    int32_t               type; /* FILCH_EVENT_MESSAGE, or of the notice */
    filch_err             error;
    filch_stream          stream; /* the message was this; id 0: it was not */
} fli_lua_saved;

/* Why lua_resume came back. */
typedef enum fli_lua_why { FLI_LUA_BY_USER, FLI_LUA_BY_PARK, FLI_LUA_BY_PAUSE } fli_lua_why;

/* What most processes never need: a process that waits for its first message should be small. */
typedef struct fli_lua_rare {
    filch_data           result; /* of process.exit, kept */
    struct fli_lua_job  *jobs;   /* of work.run, that it waits for */
    struct fli_lua_job  *job;    /* it is no process but this job, on the work pool */
    struct fli_lua_blob *blobs;  /* all that it holds */
    struct fli_lua_long *longs;  /* strings of this step that were put into blocks */
    uint64_t             random[4];
    uint32_t farewell; /* kept messages to be received before the cancel of a stop is told; 0: it is not held back */
} fli_lua_rare;

typedef struct fli_lua_proc {
    fli_lua_heap           heap;
    struct filch_lua      *lua;
    struct filch_lua_code *code;
    struct fli_lua_file   *file; /* what it was started from, by name; NULL: a function, or from C */
    filch_sched           *sched;
    filch_pid              self;
    lua_State             *L;     /* the main task's */
    size_t                 chunk; /* bytes of the first chunk, of which this is the beginning */

    /* During a step. */
    filch_out         *out;
    const filch_event *events;
    size_t             event_count, event_at; /* the events before have been dealt with */
    fli_lua_task      *current;
    /* The innermost coroutine of it.  writes: the worker.  reads: the watchdog, or a signal handler of this thread. */
    FLI_ATOMIC(lua_State *) running;
    struct fli_lua_runner *runner; /* of this thread; NULL: nobody watches */
    union {
        uint64_t unyielding; /* hooks that could not yield, in a simulation */
        uint64_t began_ns;   /* when the hook was first called, where instructions are counted otherwise; 0: not yet */
    } counted;
    uint64_t    drawn;    /* of the points where it is interrupted, in a simulation */
    uint8_t     why;      /* fli_lua_why */
    unsigned    no_yield; /* resumed coroutines through which no yield can pass */
    const char *spent;    /* words for why its budget is spent; NULL: it is not */
    const void *stack;    /* the C stack where this step began; NULL: none yet */
    lua_State  *closing;  /* the coroutine whose variables are being closed; NULL: none */
    uint64_t    stuck_ns; /* processor time when this step was first late where it cannot yield; 0: it was not */

    bool out_of_memory, exiting; /* errors that nobody may catch */
    bool handing_over;           /* what is read comes from the one before it: streams and requests too */
    bool outdated;               /* has been told that a file it uses has changed */
    bool subscribed;             /* wants to be told: see files.h */
    bool runaway;                /* its budget is spent: final, see budget.h */
    bool random_ready, simulated;
    bool wants_long; /* rare->longs would have been of use */

    fli_lua_task          main;
    fli_lua_task         *tasks;
    fli_lua_task         *ready, **ready_end;
    fli_lua_saved        *saved, **saved_end;
    uint64_t              removals; /* of kept messages */
    fli_lua_task        **alarms;   /* a heap by alarm_ns */
    uint32_t              alarm_count, alarm_room;
    uint64_t              sleeps[FLI_LUA_SLEEPS]; /* for when sleeps are outstanding, ascending; FLI_LUA_NEVER: none */
    uint64_t              next_tag;
    uint32_t              inbox_tasks; /* parked for a message */
    uint32_t              reply_tasks; /* parked for a reply, which comes as a message */
    uint32_t              yields;      /* outstanding */
    struct fli_lua_known *known;       /* functions that it has started */
    fli_lua_rare         *rare;        /* NULL: none of it */
    uint64_t              seed;
    struct fli_lua_used  *used;                               /* files it has code from; under the host's lock */
    struct fli_lua_proc  *next_subscriber, **subscriber_link; /* under the host's lock */
    struct fli_lua_proc  *next;                               /* who goes on in its place: with `exiting` */
} fli_lua_proc;

/* p->rare, made if there was none. NULL: no memory. */
fli_lua_rare *fli_lua_rarely(fli_lua_proc *p);

/* The job that this is instead of a process; NULL: it is one. */
static inline struct fli_lua_job *fli_lua_job_of(const fli_lua_proc *p)
{
    return p->rare != NULL ? p->rare->job : NULL;
}

/* The process that L belongs to. The lowest bit of the word is for coroutines: see fli_lua_set_away. */
static inline fli_lua_proc *fli_lua_self(lua_State *L)
{
    return (fli_lua_proc *)(*(uintptr_t *)lua_getextraspace(L) & ~(uintptr_t)1);
}

/* A coroutine inside which a task waits, or a task's own until it ends. It may look suspended to Lua, but only the task
 * goes on in it, and nobody closes it. The main task's has no bit: new coroutines would begin with a copy of it. */
static inline bool fli_lua_is_away(lua_State *L)
{
    return (*(uintptr_t *)lua_getextraspace(L) & 1) != 0 || L == fli_lua_self(L)->L;
}
static inline void fli_lua_set_away(lua_State *L, bool away)
{
    *(uintptr_t *)lua_getextraspace(L) = (uintptr_t)fli_lua_self(L) | (away ? 1 : 0);
}

/* ---- tasks.c ------------------------------------------------------------------------------------------------- */

/* The process inside its step, or a Lua error: a module's top level may run elsewhere. */
fli_lua_proc *fli_lua_need_process(lua_State *L);
/* The same, or a job of one: for what needs no more than to know whose it is. */
fli_lua_proc *fli_lua_for(lua_State *L);

uint64_t fli_lua_now(const fli_lua_proc *p);
/* `span_ns` from now. */
uint64_t fli_lua_until(const fli_lua_proc *p, uint64_t span_ns);

/* Parks the running task until it is woken or `until_ns`; then `k` goes on. Raises when no yield can pass. */
int fli_lua_park(lua_State *L, uint64_t until_ns, lua_KContext ctx, lua_KFunction k);

/* Lets other processes run if one should, and if a yield can pass; then `k` goes on. Returns otherwise. */
void fli_lua_pause(lua_State *L, lua_KContext ctx, lua_KFunction k);

/* The next park of the running task is for a message too. */
void fli_lua_want_inbox(fli_lua_proc *p);

/* Makes a parked task ready: it has no alarm then, and no longer waits for messages. Does nothing to any other. */
void fli_lua_wake(fli_lua_proc *p, fli_lua_task *task);

/* What a call that waits begins with: a cancel is told here, and where no yield can pass it raises, before anything was
 * sent or started. Forgets an earlier deadline. */
void fli_lua_wait_begin(lua_State *L, fli_lua_proc *p);
/* Whether a yield can pass. */
bool fli_lua_can_wait(lua_State *L, const fli_lua_proc *p);
/* The same as wait_begin for one that may not have to wait. */
void fli_lua_look_begin(lua_State *L, fli_lua_proc *p);
/* ---- farewell.c ---- */

/* Holds back the cancel of a stop while there are kept messages that came before it. Returns false if it is due at
 * once. */
bool fli_lua_farewell_begin(fli_lua_proc *p);
/* A kept message has been received. */
void fli_lua_farewell_read(fli_lua_proc *p);
/* The main task is cancelled now, if that was held back. */
void fli_lua_farewell_end(fli_lua_proc *p);

/* Raises "cancelled" if that has not been told. */
void fli_lua_check_cancel(lua_State *L, fli_lua_proc *p);

/* A task that the program started has run to its end, and may be collected: task.c. */
void fli_lua_task_end(fli_lua_proc *p, fli_lua_task *task);

/* Wakes whose deadline has passed. */
void fli_lua_alarms_ring(fli_lua_proc *p);
/* Yields a sleep if the nearest deadline needs one. */
filch_err fli_lua_alarms_set(fli_lua_proc *p);

/* The answer to `tag`: wakes its task. Takes over what `data` refers to by keeping it. False: nobody waits for it. */
bool fli_lua_answer(fli_lua_proc *p, uint64_t tag, const filch_data *data, filch_err error, bool refused);
/* Returns true if a task waits for the reply to request `tag`. */
bool fli_lua_asks(fli_lua_proc *p, uint64_t tag);
/* Whom a monitor watched for the sake of `tag` has ended. False: nobody waits for it. */
bool fli_lua_exited(fli_lua_proc *p, uint64_t tag, const filch_event *event);

/* ---- inbox.c ------------------------------------------------------------------------------------------------- */

/* The oldest message that nobody has taken, lent until the next call. False: none. */
typedef struct fli_lua_message {
    const filch_data *data;
    filch_pid         from;
    int32_t           type;
    filch_err         error;
    filch_stream      stream; /* taken over already; id 0: none */
} fli_lua_message;
bool fli_lua_inbox_peek(fli_lua_proc *p, fli_lua_message *message);
/* Keeps a notice among the messages. */
filch_err fli_lua_inbox_notice(fli_lua_proc *p, const filch_event *event);
/* Takes that one out. */
void fli_lua_inbox_take(fli_lua_proc *p);
/* The place of a message among those kept, for a search: begins at &p->saved. */
typedef fli_lua_saved **fli_lua_place;
/* Keeps the next of the new messages, so that it can be looked at in its place. False: there is none, or no memory
 * (then *err says so). */
bool fli_lua_inbox_keep(fli_lua_proc *p, filch_err *err);
/* Takes one of those kept. */
void fli_lua_inbox_remove(fli_lua_proc *p, fli_lua_place place);
/* Gives answers among the new messages to the tasks that wait for them. */
filch_err fli_lua_inbox_answers(fli_lua_proc *p);
/* Keeps whatever is left of the events. */
filch_err fli_lua_inbox_end(fli_lua_proc *p);
/* Gives all that is kept to another process, which has none yet. */
filch_err fli_lua_inbox_move(fli_lua_proc *from, fli_lua_proc *to);

/* ---- ending.c ------------------------------------------------------------------------------------------------ */

/* The main task has returned `count` values, on top of its stack. */
filch_err fli_lua_end_done(fli_lua_proc *p, int count);
/* A task has failed with `status`; the error is on top of its stack. */
filch_err fli_lua_end_failed(fli_lua_proc *p, fli_lua_task *task, int status);
/* The words for that, with the traceback, and which error it is. L has been reset. */
filch_err fli_lua_error_words(fli_lua_proc *p, lua_State *L, int status, fli_lua_bytes *words);

/* ---- upgrade.c ----------------------------------------------------------------------------------------------- */

/* What the main task of the new one begins with, from the new one's function and `start` on its stack. In a protected
 * call. */
int fli_lua_upgrade_begin(lua_State *L);
/* The end of the step of the old one: gives the new one what is to stay. */
filch_err fli_lua_upgrade_end(fli_lua_proc *p);
/* Goes over to newer code if there is any, and does not come back then. Where the main task is about to wait for a
 * message. */
void fli_lua_upgrade_look(lua_State *L, fli_lua_proc *p);

/* ---- proc.c -------------------------------------------------------------------------------------------------- */

/* What a spawn passes to init, through filch_ptr. */
typedef struct fli_lua_start {
    struct filch_lua      *lua;
    struct filch_lua_code *code;
    const char            *method;
    bool                   method_optional; /* the chunk may be all */
    size_t                 memory_max;
    fli_lua_origin         origin; /* of the code */
    struct fli_lua_proc   *old;    /* whose place it takes; NULL: a new process */
    struct fli_lua_proc   *made;   /* out, with `old` */
    uint64_t               seed;
    bool                   again; /* kept, and started again and again: each time with another seed */
    const filch_data      *args;  /* from C */
    size_t                 arg_count;
    const uint8_t         *bytes; /* from Lua: the upvalues but that for the globals, then arg_count values */
    size_t                 size;
    const fli_lua_refs    *refs;      /* what the bytes refer to */
    bool                   functions; /* there are functions among them */
    char                  *text;      /* where a failed start tells why; may be NULL */
    size_t                 text_size;
} fli_lua_start;

/* A state for `start`, with what its main thread begins with on its stack; *status as lua_load's, then with a message
 * there. NULL: not even memory for that. */
fli_lua_proc *fli_lua_open(const fli_lua_start *start, filch_sched *sched, filch_pid self, int *status);

/* filch_type's functions; `self` holds one pointer. */
filch_err fli_lua_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);
filch_err fli_lua_step(void *self, const filch_event *events, size_t count, filch_out *out);
void      fli_lua_close(void *self);

/* Sets the upvalues of the function on top, and pushes the arguments above it. */
bool fli_lua_push_start(lua_State *L, const fli_lua_start *start);

int fli_lua_pid_text(lua_State *L); /* tostring of a pid */

/* ---- base.c, receive.c ------------------------------------------------------------------------------------------ */

/* xpcall as programs know it: what ends the process passes through it. */
int fli_lua_xpcall(lua_State *L);
/* Takes the oldest message, if there is one: pushes it and its sender. Calls nothing of the program's. */
bool fli_lua_take_oldest(lua_State *L, fli_lua_proc *p);
/* Pushes the words for a process that failed: those it left, or those for the error. */
void fli_lua_push_words(lua_State *L, const filch_data *data, filch_err error);

/* ---- streams.c, process.c -------------------------------------------------------------------------------------- */

/* What belongs to a process, and can be handed over to the one that goes on in its place: streams, and who waits for a
 * reply. */
bool fli_lua_to_stream(lua_State *L, int index, filch_stream *stream);
void fli_lua_push_stream(lua_State *L, filch_stream stream);
/* A stream that somebody gave to this process: takes it over. False: the message is something else. */
bool fli_lua_take_stream(fli_lua_proc *p, const filch_data *data, filch_stream *stream);
bool fli_lua_to_request(lua_State *L, int index, filch_pid *from, uint64_t *id);
void fli_lua_push_request(lua_State *L, filch_pid from, uint64_t id);

/* The pid at `index`: of a pid, a request, or a name. Raises if it is none of them. */
filch_pid fli_lua_check_pid(lua_State *L, int index);
/* What a function of Lua returns: true, or nil and the words for `err`. */
int fli_lua_return(lua_State *L, filch_err err);
int fli_lua_return_error(lua_State *L, filch_err err);
/* Waits for the EXIT event tagged `tag`, of a process just spawned: what `push` makes of its result, or nil and why.
 * `push` pushes one value and raises only memory errors. */
int fli_lua_await_end(lua_State *L, fli_lua_proc *p, uint64_t tag,
                      void (*push)(lua_State *L, const filch_data *answer));

#endif
