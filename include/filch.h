/* filch.h - lightweight processes inside your own program. The whole public API, and its reference manual.
 *
 * A *process* is a small state machine with an identity (a pid) and a mailbox. You describe it by a filch_type: a step
 * function, the size of its state, and optionally functions that prepare and release it. A *scheduler* runs the steps
 * of ready processes on a few threads, the *workers*, or on your thread (filch_tick). Processes exchange messages
 * (filch_send). For anything slow they *yield* a command (filch_yield), which a command handler completes
 * (filch_complete); the *completion* arrives as an event.
 *
 *     filch_sched_create -> filch_spawn -> filch_send ... -> filch_sched_stop
 *
 * How to read the functions. The comment of each function has the same four lines:
 *     Thread   on which threads the function may be called
 *     Blocks   whether the function can make the caller wait
 *     Owns     which side frees what. *Takes*: the function frees it. *Lends*: valid until the call returns, or as long
 *              as the line says. *Gives*: you must free it.
 *     Errors   what can go wrong. On an error nothing has changed and nothing has leaked, unless stated otherwise.
 * Every function returns FILCH_EINVAL for a NULL pointer, unless its comment says what NULL means. After
 * FILCH_EINVAL filch_err_detail says which argument was wrong, and why.
 *
 * Memory order. Memory may be passed along with an event or a new process, without locks:
 *     what a sender, completer or spawner wrote before its call is seen by the step that gets the message or the
 *     completion, or by the first step; what a spawner wrote is seen by `init` too, which runs inside filch_spawn
 *     what a step wrote is seen by the next step of that process, by `close` and by `on_exit`, on any thread
 *     what was written before a cancel is seen by the step that gets the cancel, also if several threads cancel at
 *     once and one FILCH_EVENT_CANCEL stands for all of them
 *     what a process wrote before its end is seen by the step that gets its FILCH_EVENT_EXIT or FILCH_EVENT_LINK_DOWN,
 *     and by the thread that called filch_sched_stop, when it returns FILCH_OK
 * Nothing else is ordered: steps of two processes that exchange no event may run at the same time.
 *
 * The library prints nothing, installs no signal handler, never exits, and has no global state but the handler for
 * failed assertions (filch_assert_handler): any number of schedulers can exist side by side. Compiles as C99, C11 and
 * C++.
 */
#ifndef FILCH_H
#define FILCH_H

#include <stdint.h>
#if UINTPTR_MAX < UINT64_MAX
#error "Filch needs a 64-bit target"
#endif

#include <stddef.h>
#include <string.h>

/* Value of FILCH_OPTIONS_INIT and similar macros: a struct with all fields zero except `size`. */
#ifdef __cplusplus
template <typename T> inline T filch_sized()
{
    T made = T();
    made.size = sizeof(T);
    return made;
}
#define FILCH_SIZED_INIT(type) filch_sized<type>()
#else
/* clang-format off */
#define FILCH_SIZED_INIT(type) { .size = sizeof(type) }
/* clang-format on */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* FILCH_HIDDEN is set while libfilch.a is compiled, so that a shared library or program that links it does not
 * export Filch's names. */
#if defined(__GNUC__) && defined(FILCH_HIDDEN)
#define FILCH_API __attribute__((visibility("hidden")))
#define FILCH_MUST_USE __attribute__((warn_unused_result))
#elif defined(__GNUC__)
#define FILCH_API __attribute__((visibility("default")))
#define FILCH_MUST_USE __attribute__((warn_unused_result))
#else
#define FILCH_API
#define FILCH_MUST_USE
#endif

/* Marks functions that only build or read a value: their bodies are at the end of this file, so that the compiler
 * can inline them. The library also exports each of them, for code without optimization and for other languages.
 * Define FILCH_NO_INLINE before including this file to get declarations only, because generators of bindings
 * (bindgen, cffi) skip functions with bodies. */
#if defined(FILCH_NO_INLINE)
#define FILCH_INLINE FILCH_API
#elif defined(__cplusplus)
#define FILCH_INLINE inline
#elif defined(__GNUC_GNU_INLINE__) /* gnu89 mode: `extern inline` has the meaning that `inline` has in C99 */
#define FILCH_INLINE FILCH_API extern inline
#else
#define FILCH_INLINE FILCH_API inline
#endif

#define FILCH_VERSION_MAJOR 0
#define FILCH_VERSION_MINOR 1
#define FILCH_VERSION_PATCH 0

/* All times are in nanoseconds: points in time of the monotonic clock, or spans. On Linux the monotonic clock stands
 * still while the machine is suspended: a sleep lasts that much longer, and a ticker counts no ticks for that time. */
#define FILCH_MICROSECONDS(n) (1000u * (uint64_t)(n))
#define FILCH_MILLISECONDS(n) (1000000u * (uint64_t)(n))
#define FILCH_SECONDS(n) (1000000000u * (uint64_t)(n))
#define FILCH_FOREVER UINT64_MAX

/* ---- errors ------------------------------------------------------------------------------------------------- */

/* Zero is success. Codes below FILCH_EUSER belong to Filch. Codes from FILCH_EUSER up are yours, to return from a
 * step or to pass to filch_complete; Filch passes them on unchanged. */
typedef int filch_err;

#define FILCH_ERR_MAP(X)                                                                        \
    X(FILCH_OK, 0, "no error")                                                                  \
    X(FILCH_EINVAL, 1, "invalid argument")                                                      \
    X(FILCH_ENOMEM, 2, "out of memory")                                                         \
    X(FILCH_EFULL, 3, "the mailbox or queue is full")                                           \
    X(FILCH_ECLOSED, 4, "the scheduler is shutting down")                                       \
    X(FILCH_EDEAD, 5, "no such process: it has ended, or never was")                            \
    X(FILCH_EFOREIGN, 6, "the pid belongs to another scheduler")                                \
    X(FILCH_EMETHOD, 7, "the process type has no such method")                                  \
    X(FILCH_ECOMMAND, 8, "no handler is registered for this command")                           \
    X(FILCH_EEXISTS, 9, "this name or id already exists")                                       \
    X(FILCH_EFROZEN, 10, "the registry is in use and can no longer change")                     \
    X(FILCH_ETOOBIG, 11, "the payload is larger than the scheduler allows")                     \
    X(FILCH_ESTALE, 12, "the yield is already completed, or there is no such relation")         \
    X(FILCH_ECANCELLED, 13, "cancelled")                                                        \
    X(FILCH_EKILLED, 14, "the process was ended by force")                                      \
    X(FILCH_EDEADLINE, 15, "the deadline has passed")                                           \
    X(FILCH_EBUSY, 16, "in use: another call or operation has not ended")                       \
    X(FILCH_ESTATE, 17, "not possible on this thread, or not at this moment")                   \
    X(FILCH_ELIMIT, 18, "a configured limit has been reached")                                  \
    X(FILCH_ENOSTATUS, 19, "the step returned without saying what comes next")                  \
    X(FILCH_ENOYIELD, 20, "the step chose to wait, but no yield is outstanding")                \
    X(FILCH_EOVERFLOW, 21, "the process was ended because its mailbox overflowed")              \
    X(FILCH_EDROPPED, 22, "the receiver's mailbox is full, and its policy dropped the message") \
    X(FILCH_ESYS, 23, "the operating system refused the call")                                  \
    X(FILCH_ELINK, 24, "a linked process has failed")                                           \
    X(FILCH_EDENIED, 25, "the policy of the node does not allow this call")                     \
    X(FILCH_EFORKED, 26, "the scheduler belongs to the program that forked")                    \
    X(FILCH_ESTREAM, 60, "no such stream: closed, given away, or not yours")                    \
    X(FILCH_EEND, 61, "the stream has ended")                                                   \
    X(FILCH_ERESET, 62, "the other side of the connection is gone")                             \
    X(FILCH_EREFUSED, 63, "the address refuses connections: nothing listens there")             \
    X(FILCH_EINUSE, 64, "the address is in use, or not of this machine")                        \
    X(FILCH_ENOHOST, 65, "the host is unknown, or cannot be reached")                           \
    X(FILCH_EFILES, 66, "out of file descriptors: a limit of the system is reached")            \
    X(FILCH_ENOFILE, 67, "no such file or directory")                                           \
    X(FILCH_EACCESS, 68, "permission denied")                                                   \
    X(FILCH_ENOSPACE, 69, "no space left: the device or a quota is full")                       \
    X(FILCH_EIO, 70, "the device failed; what was written may be lost")                         \
    X(FILCH_EDIRECTORY, 71, "the path is a directory, or a directory that is not empty")        \
    X(FILCH_EDEVICE, 72, "the two paths are on different devices")                              \
    X(FILCH_EDESC, 73, "the number is not an open descriptor")

enum {
#define FILCH_ERR_ENUM(name, value, text) name = value,
    /* clang-format off */
    FILCH_ERR_MAP(FILCH_ERR_ENUM)
#undef FILCH_ERR_ENUM
    FILCH_EUSER = 1000
    /* clang-format on */
};

/* Returns a sentence that describes a code, for people. Unknown codes give "unknown error", your own codes
 * "application error".
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends a constant text that is never freed.
 * Errors:  none; never NULL.
 */
FILCH_API const char *filch_err_text(filch_err err);

/* Returns the name of a code ("FILCH_EFULL"), for logs. All your own codes give "FILCH_EUSER": log the number too.
 * Unknown codes give "unknown".
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends a constant text that is never freed.
 * Errors:  none; never NULL.
 */
FILCH_API const char *filch_err_name(filch_err err);

/* Says what was wrong with an argument. After a call of this thread that returned FILCH_EINVAL, returns a text that
 * names the argument and the reason ("options.batch_max is over 1024"). The text is for people and may change
 * between versions. An event with the error FILCH_EINVAL sets no text. Returns "" if no call of this thread has
 * returned FILCH_EINVAL yet.
 *
 * Thread:  any; each thread has its own text.                   Blocks:  never.
 * Owns:    lends a constant text that is never freed.
 * Errors:  none; never NULL.
 */
FILCH_API const char *filch_err_detail(void);

/* Sets the text that filch_err_detail returns, and returns FILCH_EINVAL. For an init function, or any other function of
 * yours, that refuses an argument.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    keeps the pointer, so pass a literal. NULL means "".
 * Errors:  FILCH_EINVAL, always.
 */
FILCH_API filch_err filch_invalid(const char *text);

/* Returns the version of the linked library, as "0.1.0"; compare it with FILCH_VERSION_*.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends a constant text that is never freed.
 * Errors:  none.
 */
FILCH_API const char *filch_version(void);

/* ---- handles and ids ---------------------------------------------------------------------------------------- */

typedef struct filch_sched    filch_sched;    /* a runtime: workers, processes, mailboxes */
typedef struct filch_registry filch_registry; /* a set of command handlers */
typedef struct filch_out      filch_out;      /* output of a step: its status and its yields */
typedef struct filch_ctx      filch_ctx;      /* context of a process: its pid, scheduler and values */
typedef struct filch_values   filch_values;   /* named values that children inherit */
typedef struct filch_node     filch_node;     /* several schedulers (hosts) that can reach each other */

/* Identity of a process. Never reused: the pid of an ended process stays invalid. {0, 0} is the pid of no process. */
typedef struct filch_pid {
    uint64_t node;   /* number of the scheduler: its option `node`, random by default */
    uint64_t serial; /* number of the process within its scheduler */
} filch_pid;

/* Identifies one yield of one process, so that filch_complete can complete it. May be copied. A receiver may be used
 * after the end of the yield and of the process, but not after the end of the scheduler: see filch_sched_stop. The
 * fields are private. */
typedef struct filch_receiver {
    filch_sched *sched;
    uint64_t     key;
    uint64_t     tag;
} filch_receiver;

/* ---- payloads ----------------------------------------------------------------------------------------------- */

/* The payload of a message, a command, a completion or a result. Make one with the functions below and pass it by
 * value; read it with the accessors. The fields are private.
 *
 *   made with                         what Filch does with it when you send it
 *   filch_none/int/num/pid/ptr        carries the value itself; no allocation
 *   filch_str/bytes                   copies the bytes once: up to 24 bytes into the event, more into a shared block
 *   filch_move                        takes the memory and frees it with your function; no copy
 *   filch_share                       as filch_move, but reference counted: many sends and filch_keep make no copy
 *   event->data, if you pass it on    shares the block of the event; no copy
 *
 * A filch_data made by str/bytes/move *lends* its memory until it is sent. A filch_data made by filch_share or
 * filch_keep holds a reference, which filch_drop releases. Send, yield, complete and done never take that reference:
 * each makes a reference of its own. Only the memory of a filch_move is taken, and only if the call returns
 * FILCH_OK. */
typedef struct filch_data {
    uint8_t kind;  /* kind of the payload: FILCH_KIND_* */
    uint8_t form;  /* where the bytes are stored; private */
    uint8_t small; /* number of bytes stored inside this struct */
    uint8_t spare[5];
    union {
        int64_t   i;
        double    d;
        void     *ptr;
        filch_pid pid;
        uint8_t   bytes[24];
        struct {
            const void *at;
            size_t      size;
            void       *block;
        } ref;
        struct {
            void  *at;
            size_t size;
            void (*free_fn)(void *user, void *bytes, size_t size);
        } move;
    } as;
} filch_data;

typedef enum filch_kind {
    FILCH_KIND_NONE,
    FILCH_KIND_INT,
    FILCH_KIND_NUM,
    FILCH_KIND_PID,
    FILCH_KIND_PTR,
    FILCH_KIND_TEXT,
    FILCH_KIND_BYTES
} filch_kind;

/* Payloads as constant initialisers, for static descriptions such as filch_spawn_options.args of a filch_child. */
#ifdef __cplusplus
#define FILCH_INT_INIT(n) filch_int(n)
#define FILCH_PTR_INIT(p) filch_ptr(p)
#else
/* clang-format off */
#define FILCH_INT_INIT(n) { .kind = FILCH_KIND_INT, .as = { .i = (n) } }
#define FILCH_PTR_INIT(p) { .kind = FILCH_KIND_PTR, .as = { .ptr = (p) } }
/* clang-format on */
#endif

/* Frees memory that was passed to filch_move or filch_share. Runs on the thread that drops the last reference: for a
 * message that was read, usually the worker that ran the step, after the step; for a message that was never read, the
 * worker that ends the receiver. A thread that calls filch_drop, filch_tick or a stop may run this function too, and so
 * may a thread of the work pool. `user` is the argument of filch_share; NULL for filch_move. */
typedef void (*filch_free_fn)(void *user, void *bytes, size_t size);

/* Payloads that carry a value. A pointer (filch_ptr) is passed unchanged: the memory it points to remains yours,
 * even if the message is never read because the receiver ended first. Use filch_share for memory that should go with
 * the message.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing to free.
 * Errors:  none.
 */
FILCH_INLINE filch_data filch_none(void);
FILCH_INLINE filch_data filch_int(int64_t value);
FILCH_INLINE filch_data filch_num(double value);
FILCH_INLINE filch_data filch_of_pid(filch_pid pid);
FILCH_INLINE filch_data filch_ptr(void *pointer);

/* Makes a payload of a text, or of `size` bytes, which are copied once when the payload is sent. A NULL text means
 * an empty text; NULL bytes need size 0.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends `text`, `bytes`: they must stay valid until the payload has been sent.
 * Errors:  none here; sending NULL bytes with a size over 0 returns FILCH_EINVAL.
 */
FILCH_INLINE filch_data filch_str(const char *text);
FILCH_INLINE filch_data filch_bytes(const void *bytes, size_t size);

/* Makes a payload of bytes that pass to the receiver without a copy. `free_fn` is called once, when the last reader
 * is done; NULL means free().
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    the call that sends the payload takes `bytes` if it returns FILCH_OK; otherwise `bytes` stay yours.
 * Errors:  none here; sending NULL bytes returns FILCH_EINVAL.
 */
FILCH_API filch_data filch_move(void *bytes, size_t size, filch_free_fn free_fn);

/* Puts `bytes` under a reference count, so that one block can be sent to many receivers. Release the block with
 * filch_drop.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    takes `bytes` when it returns FILCH_OK; gives *out one reference.
 * Errors:  FILCH_EINVAL  bytes or out is NULL      FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_share(void *bytes, size_t size, filch_free_fn free_fn, void *user,
                                               filch_data *out);

/* Returns the `user` that was passed to filch_share together with `free_fn`. By the result a receiver recognises
 * payloads that its own code has made, even if other payloads have the same bytes.
 *
 * Thread:  any that may read `data`.                            Blocks:  never.
 * Owns:    lends; the result is valid as long as `data`.
 * Errors:  NULL: `data` was not made by filch_share, or with another `free_fn`, or `user` was NULL.
 */
FILCH_API void *filch_shared_user(const filch_data *data, filch_free_fn free_fn);

/* Makes a payload *out that outlives the event or call that `data` came from: shares blocks, copies lent bytes.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    gives *out one reference; return it with filch_drop. `data` may be the same object as `out`.
 * Errors:  FILCH_EINVAL      FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_keep(const filch_data *data, filch_data *out);

/* Releases the reference that filch_share or filch_keep gave, and leaves `data` empty. NULL and empty payloads are
 * allowed.
 *
 * Thread:  any.                                                 Blocks:  never, unless your free function does.
 * Owns:    takes the reference.
 * Errors:  none.
 */
FILCH_API void filch_drop(filch_data *data);

/* Reading a payload. Reading the wrong kind is safe and returns 0, 0.0, the pid {0, 0}, NULL, "" or size 0. filch_text
 * is NUL-terminated for texts made by filch_str (also inside events); filch_raw also reads texts.
 *
 * Thread:  any that may read `data`.                            Blocks:  never.
 * Owns:    lends; the result is valid as long as `data`.
 * Errors:  none. NULL reads as an empty payload.
 */
FILCH_INLINE filch_kind  filch_kind_of(const filch_data *data);
FILCH_INLINE int64_t     filch_as_int(const filch_data *data);
FILCH_INLINE double      filch_as_num(const filch_data *data);
FILCH_INLINE filch_pid   filch_as_pid(const filch_data *data);
FILCH_INLINE void       *filch_as_ptr(const filch_data *data);
FILCH_INLINE const char *filch_text(const filch_data *data);
FILCH_INLINE const void *filch_raw(const filch_data *data);
FILCH_INLINE size_t      filch_size(const filch_data *data);

/* ---- processes ---------------------------------------------------------------------------------------------- */

typedef enum filch_event_type {
    FILCH_EVENT_MESSAGE = 1, /* a message with `data`; a timer that fires is a message with the timer's `tag` */
    FILCH_EVENT_YIELD = 2,   /* the yield tagged `tag` is complete: `data` is its result, or `error` says why it
                                failed */
    FILCH_EVENT_CANCEL = 3,  /* a request to end: clean up and return filch_done. Delivered before every other event,
                                with one exception: during a stop, a cancel from the stop or from the supervisor comes
                                after the messages in the mailbox (filch_sched_stop). `error` is the reason: after
                                filch_cancel_with, the reason of that call; otherwise, if a scope of the process is
                                cancelled, the reason that filch_ctx_cancelled returns; otherwise FILCH_ECANCELLED.
                                After filch_cancel_with, `from` is the process that cancelled, and `data` is the
                                `deadline_ns` of that call (filch_as_int), counted from the call, not from this event.
                                `data` is 0 if that call had no deadline (FILCH_FOREVER) */
    FILCH_EVENT_DROPPED = 4, /* the mailbox policy dropped messages; `data` is the number of messages dropped since the
                                last event of this type */
    /* Notices. Like completions, notices are delivered before messages, also to a process that waits (filch_wait). If
     * notices and completions fill a step while messages are in the mailbox, the next step gets at least one message:
     * see filch_step_fn. */
    FILCH_EVENT_EXIT = 5,      /* the monitored process `from` has ended: `data` is its result, or `error` says why
                                  it failed */
    FILCH_EVENT_LINK_DOWN = 6, /* the linked process `from` has failed, with `error`; only sent to a process that
                                  traps links */
    FILCH_EVENT_JOINED = 7,    /* the process `from` has joined a group; `data` is the group's name */
    FILCH_EVENT_LEFT = 8       /* the process `from` has left a group, or has ended; `data` is the group's name */
} filch_event_type;

/* An event. Valid until the step returns. */
typedef struct filch_event {
    int32_t   type;  /* filch_event_type */
    filch_err error; /* FILCH_OK, or why the yield or the process failed, or the reason of a cancel */
    uint64_t  tag;   /* of a completion or a timer's message: the tag of the yield; of a notice: the tag passed to
                        filch_monitor or filch_watch */
    filch_pid from;  /* the sender, or the process that a notice is about; {0, 0} for foreign threads, timers and
                        handlers */
    filch_data data;
} filch_event;

/* Prepares an instance in `self` (type->size zeroed bytes). `method` names the entry point, NULL means the default one;
 * return FILCH_EMETHOD for an unknown name. Runs inside the call of filch_spawn, which returns the error of init. The
 * new process cannot be reached yet, not even by init: until init returns, sends and relations treat its pid like the
 * pid of an ended process. */
typedef filch_err (*filch_init_fn)(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);

/* Advances the instance by the events that arrived. At its end the step chooses a status with one of filch_continue,
 * _wait, _idle, _done, _upgrade and returns what that function returned. A step that returns an error ends its process
 * with that error; a step that returns FILCH_OK and has chosen no status ends its process with FILCH_ENOSTATUS. The
 * first step of a process may have no events. The steps of one process never run on two threads at once. A step must
 * not block.
 *
 * A step gets at most batch_max events: cancels, then completions and notices, then messages. However many completions
 * and notices arrive, of any two successive steps at least one gets the oldest waiting message. This rule does not
 * count a step after filch_wait, because it gets no messages, and, if batch_max is 1, a step that gets a cancel. */
typedef filch_err (*filch_step_fn)(void *self, const filch_event *events, size_t count, filch_out *out);

/* Releases what the instance holds. Called exactly once for each instance after a successful init, never during its
 * step. */
typedef void (*filch_close_fn)(void *self);

/* Inside `close`: returns the error with which the process ends, as on_exit gets it. FILCH_OK: the process ends without
 * an error, or the instance was replaced by filch_upgrade, or the call is not inside `close`. If one step calls
 * filch_upgrade and then filch_fail, the `close` of the new instance gets the error that was passed to filch_fail.
 *
 * Thread:  only inside `close`.                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  none.
 */
FILCH_API filch_err filch_close_error(const filch_sched *sched);

/* Inside `close`: tells the scheduler that the instance has got `count` messages in its steps and has not used them,
 * for example because it kept them for later. These messages are counted like messages that are in the mailbox when the
 * process ends: in filch_stats.undelivered, and during a stop in filch_report.unread and in the filch_loss of the
 * process. Several calls add up.
 *
 * Thread:  only inside `close`.                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   `sched` is NULL
 *          FILCH_ESTATE   not inside `close`, or the process was never started because its spawn failed after init
 */
FILCH_API FILCH_MUST_USE filch_err filch_close_unread(filch_sched *sched, uint64_t count);

/* A kind of process. Must outlive every scheduler that uses it: usually a static const. Zeroed fields are defaults. */
typedef struct filch_type {
    const char *name;           /* name in reports; NULL is shown as "?" */
    size_t      size;           /* bytes of state per instance, may be 0. Aligned for any type; up to 16 bytes need no
                                   allocation */
    filch_init_fn init;         /* NULL: a zeroed state needs no init; then a spawn with `method` returns FILCH_EMETHOD,
                                   and with `args` FILCH_EINVAL */
    filch_step_fn  step;        /* required */
    filch_close_fn close;       /* NULL: nothing to release */
    const void    *reserved[3]; /* must be NULL */
} filch_type;

/* What happens to a message for a mailbox that is at its limit. Notices, completions and messages of timers do not
 * count against the limit and are never refused. */
typedef enum filch_overflow {
    FILCH_OVERFLOW_FAIL,        /* the sender gets FILCH_EFULL */
    FILCH_OVERFLOW_WAIT,        /* filch_send returns FILCH_EFULL; filch_yield_send completes when there is space */
    FILCH_OVERFLOW_DROP_NEWEST, /* the new message is dropped: the sender gets FILCH_EDROPPED, the receiver
                                   EVENT_DROPPED */
    FILCH_OVERFLOW_DROP_OLDEST, /* the oldest message is dropped: the sender gets FILCH_OK, the receiver EVENT_DROPPED.
                                   While the receiver is busy, up to twice as many messages as the limit may be queued;
                                   a further message is dropped as with DROP_NEWEST */
    FILCH_OVERFLOW_STOP         /* the receiver ends with FILCH_EOVERFLOW, the sender gets FILCH_EFULL */
} filch_overflow;

/* Called once when the process has ended: `error` is FILCH_OK and `result` the one passed to filch_done; or `error`
 * says why the process failed, and `result` is the detail passed to filch_fail, if any. Runs on the worker that ended
 * the process, after close. By then the names of the process are free, the processes that monitor it have been
 * notified, and it does not count as alive: the hook may send, and may spawn another process under the same name, even
 * if `max_processes` was reached. Must not block. filch_sched_stop waits for the hook, and for processes that the hook
 * spawns: a hook that replaces every ended process must stop doing so once filch_sched_stopping(sched) returns 1. */
typedef void (*filch_exit_fn)(void *user, filch_pid pid, filch_err error, const filch_data *result);

typedef struct filch_spawn_options {
    size_t        size;          /* sizeof(filch_spawn_options); a shorter, older struct works too */
    const char   *method;        /* name of the entry point, for init; lent; NULL: the default one */
    filch_data    args;          /* argument of init, lent: the memory of a filch_move is not taken */
    filch_values *values;        /* inherited values; NULL: those of the spawning process, if any */
    uint32_t      mailbox_max;   /* most messages in the mailbox, at most 2^23 - 1; 0: no limit */
    uint32_t      overflow;      /* filch_overflow: what happens at a limit; no effect without limits */
    size_t        mailbox_bytes; /* most payload bytes in the mailbox, less than 2^28; each payload counts as a multiple
                                    of 16 bytes; 0: no limit */
    filch_exit_fn on_exit;       /* NULL: none */
    void         *on_exit_user;
    uint32_t      blackbox;  /* how many of the process's last steps are recorded; 0: as option `blackbox` of the
                                scheduler says */
    uint32_t          spare; /* must be 0 */
    const char       *name; /* name for the process, registered before other processes can reach it; lent; NULL: none */
    const filch_data *messages; /* first messages in the mailbox, lent like `args`; they do not count against the
                                   mailbox limit */
    size_t   message_count;     /* number of `messages`, at most 2^26 */
    uint64_t tag;               /* tag of the EXIT event that FILCH_SPAWN_MONITOR causes */
    uint32_t relations;         /* FILCH_SPAWN_*: relations with the process that spawns; 0: none */
    uint32_t spare_too;         /* must be 0 */
} filch_spawn_options;
#define FILCH_SPAWN_OPTIONS_INIT FILCH_SIZED_INIT(filch_spawn_options)

enum {
    FILCH_SPAWN_MONITOR = 1, /* the spawning process monitors the new process */
    FILCH_SPAWN_LINK = 2,    /* the spawning process is linked with the new process; if MONITOR is set too, LINK_DOWN
                                comes before EXIT */
    FILCH_SPAWN_TRAP = 4,    /* the new process traps links from the beginning */
    /* Only with MONITOR. When the scheduler stops, the spawner must send the cancel to the new process
     * (filch_cancel_with); the stop itself sends the new process no cancel while both processes live in this scheduler.
     * Once a stop has begun, the spawn is refused: FILCH_ECLOSED. */
    FILCH_SPAWN_SUPERVISED = 8,
    FILCH_SPAWN_ALL = 15
};

/* Starts a process of `type`. Its init runs inside this call, on this thread; its first step follows on a worker. If
 * called inside a step, the child starts on the same worker. `pid` may be NULL if you do not need it. The name and
 * relations in `options` exist before the first step of the new process, and before any other process can reach it.
 *
 * Thread:  any, also inside steps and handlers.                 Blocks:  never, unless init does.
 * Owns:    lends `options`; *pid is a value.
 * Errors:  FILCH_EINVAL   NULL, a type without step or with `reserved` not NULL, bad options, args for a type without
 *                         init
 *          FILCH_EMETHOD  the type does not know the method     FILCH_ENOMEM
 *          FILCH_ELIMIT   option `max_processes` is reached
 *          FILCH_ECLOSED  the scheduler is stopping; inside steps and handlers: the deadline of the stop has passed
 *          FILCH_EEXISTS  the name is taken                     FILCH_ETOOBIG  a first message is too large
 *          FILCH_ESTATE   `options` has relations, and the call is not inside a step
 *          and every error that init returns.
 */
FILCH_API FILCH_MUST_USE filch_err filch_spawn(filch_sched *sched, const filch_type *type,
                                               const filch_spawn_options *options, filch_pid *pid);

/* Sends `data` to the process `to`, and makes that process ready if it was idle.
 *
 * Messages from one sender to one receiver arrive in the order sent. FILCH_OK does not mean that `to` will read the
 * message: if the process ends first, the message is dropped and counted (filch_stats.undelivered).
 *
 * Thread:  any, also inside steps and handlers.                 Blocks:  never.
 * Owns:    copies or shares `data` (see filch_data); takes the memory of a filch_move when it returns FILCH_OK.
 * Errors:  FILCH_EDEAD     no such process, or its host is gone (adds to filch_stats.undelivered)
 *          FILCH_EFOREIGN  a pid of another scheduler, no route
 *          FILCH_EFULL     at the mailbox limit                 FILCH_EDROPPED  at the limit, policy is drop newest
 *          FILCH_ETOOBIG   `data` is larger than option `payload_max`, or than the whole mailbox may hold
 *          FILCH_ENOMEM    FILCH_EINVAL
 *          FILCH_ECLOSED   the scheduler is stopping (sends inside steps still work, so that processes can
 *                          finish), or the host of `to` is stopping
 */
FILCH_INLINE FILCH_MUST_USE filch_err filch_send(filch_sched *sched, filch_pid to, filch_data data);

/* Cancels `pid`: the process gets a FILCH_EVENT_CANCEL, before all other events, even if its mailbox is full. A second
 * cancel before the first was delivered adds no event, but the step that gets the first cancel sees the memory that was
 * written before the second call (see "Memory order" above). During a stop, the stop and filch_cancel together deliver
 * only one cancel to a process: if the cancel of the stop is still behind messages, filch_cancel moves that cancel to
 * the front; if the cancel of the stop was delivered, filch_cancel has no effect. A cancel completes no yield:
 * outstanding yields stay outstanding until they are completed or `pid` ends.
 *
 * A cancel of a process of another host (filch_node_add) acts as filch_cancel_with without a deadline: it needs memory,
 * and each call adds one event, also during a stop.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_EDEAD   FILCH_EFOREIGN; for a process of another host also FILCH_ENOMEM, FILCH_EDENIED
 */
FILCH_API FILCH_MUST_USE filch_err filch_cancel(filch_sched *sched, filch_pid pid);

/* Terminates `pid` with FILCH_EKILLED: after the current step, if any, the process is not stepped again, and is closed.
 * If the current step itself ends the process (done or an error), the process ends with that result or error instead of
 * FILCH_EKILLED.
 *
 * Thread:  any, also from inside the process itself.            Blocks:  never; the end may come a little later.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_EDEAD   FILCH_EFOREIGN; for a process of another host also FILCH_EDENIED
 */
FILCH_API FILCH_MUST_USE filch_err filch_terminate(filch_sched *sched, filch_pid pid);

typedef enum filch_state {
    FILCH_STATE_READY = 1, /* the process waits for a worker */
    FILCH_STATE_RUNNING,   /* a worker is inside the process's step */
    FILCH_STATE_BLOCKED,   /* the process waits for the completion of a yield */
    FILCH_STATE_IDLE,      /* the process waits for any event */
    FILCH_STATE_COMPLETE   /* the process has ended and is about to be freed */
} filch_state;

typedef struct filch_info {
    size_t      size;     /* set by the caller: sizeof(filch_info) */
    const char *name;     /* name of the process's type; valid as long as the type */
    int32_t     state;    /* filch_state of the process at some moment during the call */
    uint32_t    messages; /* messages in the mailbox of the process; counted only if the mailbox has a limit */
    uint64_t    dropped;  /* messages that the mailbox policy of the process has dropped so far */
    int32_t     overflow; /* filch_overflow: what happens to a message that exceeds the limit */
    uint32_t    spare;    /* 0 */
    /* approximate number of bytes of the relations that the process itself has made: monitors, links, names, group
     * memberships, watches and deadlines. A monitor counts for the process that monitors, a link for process `a` of
     * filch_link */
    uint64_t relation_bytes;
    uint64_t given_bytes; /* approximate number of bytes of the names, group memberships, watches and deadlines that
                             other processes and foreign threads have given the process */
} filch_info;

/* Reports the state of one process.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    fills *info.
 * Errors:  FILCH_EINVAL   FILCH_EDEAD   FILCH_EFOREIGN
 */
FILCH_API FILCH_MUST_USE filch_err filch_inspect(filch_sched *sched, filch_pid pid, filch_info *info);

/* ---- inside a step ------------------------------------------------------------------------------------------ */

/* The functions by which a step chooses its status. If a step calls several, the last call counts. The step returns the
 * value that this call returned.
 *   continue  the process is ready again at once; other processes still get their turn (docs/ARCHITECTURE.md, fairness)
 *   wait      no step until a yield of the process completes, or a cancel or notice comes. The next step gets
 *             completions, cancels and notices only; messages stay in the mailbox until a step chooses another status.
 *             If no yield is outstanding, the process ends with FILCH_ENOYIELD
 *   idle      no step until any event arrives
 *   done      ends the process; `result` goes to on_exit and to the processes that monitor it
 * Whichever status a step chooses, also done, its yields are dispatched after the step. If the step fails (filch_fail,
 * or it returns another error), its yields are dropped, but its sends, spawns and cancels remain in effect.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    done copies or shares `result`, and takes a filch_move when it returns FILCH_OK.
 * Errors:  FILCH_EINVAL out is NULL; done also FILCH_ENOMEM, FILCH_ETOOBIG. If the step returns such an error, its
 *                       process ends with that error.
 *          FILCH_ESTATE called after the step is over, if the call would have to take or free memory (any other late
 *                       call has no effect). Also: continue, wait or idle after filch_upgrade in the same step; the
 *                       upgrade stays chosen, unless the step returns this error
 */
FILCH_API filch_err    filch_continue(filch_out *out);
FILCH_API filch_err    filch_wait(filch_out *out);
FILCH_API filch_err    filch_idle(filch_out *out);
FILCH_INLINE filch_err filch_done(filch_out *out, filch_data result);

/* Ends the process with `error` (one of your codes or of Filch's), and with an explanation `detail`. on_exit gets
 * `detail` as the result, or no result if `detail` is too large or there is no memory for it.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies or shares `detail`. Pass no filch_move: you could not know whether its memory was taken.
 * Errors:  `error` itself, to be returned from the step (if the step returns FILCH_OK instead, its process ends with
 *          FILCH_ENOSTATUS and `detail`); FILCH_EINVAL  out is NULL, or error is FILCH_OK.
 */
FILCH_API filch_err filch_fail(filch_out *out, filch_err error, filch_data detail);

/* Replaces the type and the instance of the process. The process keeps its pid, mailbox, outstanding yields and
 * relations. The new instance's init runs now; if it fails, this call returns the error, and the step may choose
 * another status. The old instance is closed after the step, and the new one is stepped at once, as after
 * filch_continue. filch_upgrade must be the last status of a step: continue, wait and idle are refused after it
 * (FILCH_ESTATE). A filch_done, filch_fail or returned error after filch_upgrade ends the process: filch_done and
 * filch_fail close the new instance at once, a returned error closes it after the step; the old instance is closed
 * after the new one, when the process ends. A second filch_upgrade in one step closes at once the instance that the
 * first one made.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never, unless init does.
 * Owns:    lends `method` and `args`.
 * Errors:  as filch_spawn, and FILCH_ESTATE outside of that step.
 */
FILCH_API filch_err filch_upgrade(filch_out *out, const filch_type *type, const char *method, filch_data args);

/* Yields a command, for anything slow: the handler registered for `command` gets `data` after the step, and the
 * completion arrives as a FILCH_EVENT_YIELD with this `tag`. Any number of yields may be outstanding; the runtime does
 * not interpret tags, and they need not differ.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies or shares `data`; takes a filch_move when it returns FILCH_OK.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ETOOBIG   FILCH_ESTATE  outside of that step
 *          (if no handler is registered for `command`, the completion has the error FILCH_ECOMMAND)
 */
FILCH_INLINE FILCH_MUST_USE filch_err filch_yield(filch_out *out, uint32_t command, uint64_t tag, filch_data data);

/* filch_out_ctx returns the context of the process being stepped; filch_out_sched returns its scheduler, for
 * filch_send and filch_spawn.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    lends the result until the step returns.
 * Errors:  NULL when out is NULL.
 */
FILCH_API const filch_ctx *filch_out_ctx(const filch_out *out);
FILCH_INLINE filch_sched  *filch_out_sched(const filch_out *out);

/* Returns 1 if the step has sent `send_budget` messages or more, or if other workers send to the same processes at the
 * same time, otherwise 0. A result of 1 is a hint to return filch_continue soon, so that the receivers run: messages
 * that are read while they are still in the cache cost less.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    nothing.
 * Errors:  0 when out is NULL.
 */
FILCH_API int filch_should_yield(const filch_out *out);

/* ---- context ------------------------------------------------------------------------------------------------ */

/* Functions that read a context: the process's pid, its scheduler, and the value inherited under `key` (an empty
 * payload if there is none).
 *
 * Thread:  inside the function that got ctx.                      Blocks:  never.
 * Owns:    lends; the value lives as long as the process.
 * Errors:  {0, 0}, NULL, an empty payload when ctx (or key) is NULL.
 */
FILCH_API filch_pid         filch_ctx_self(const filch_ctx *ctx);
FILCH_INLINE filch_sched   *filch_ctx_sched(const filch_ctx *ctx);
FILCH_API const filch_data *filch_ctx_value(const filch_ctx *ctx, const char *key);

/* Adds one named value in front of the chain of values `parent` (NULL: none) and sets *out to the longer chain. A chain
 * never changes, so any number of processes can share it. A process that is spawned with a chain in
 * filch_spawn_options.values has the values of the chain, and passes the chain on to its children.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    copies `key`, keeps `data` (as filch_keep), holds `parent`; gives *out one reference.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_values_create(filch_values *parent, const char *key, filch_data data,
                                                       filch_values **out);

/* Adds a deadline in front of the chain of values `parent` (NULL: none): `at_ns`, a time of filch_now. A process that
 * is spawned with the new chain is cancelled (FILCH_EVENT_CANCEL) at the deadline, or at once if the deadline has
 * passed. Of several deadlines in a chain the earliest counts. filch_ctx_deadline returns that deadline to steps and
 * handlers, or FILCH_FOREVER if the chain has none.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    holds `parent`; gives *out one reference.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM; filch_ctx_deadline: FILCH_FOREVER for NULL
 */
FILCH_API FILCH_MUST_USE filch_err filch_values_deadline(filch_values *parent, uint64_t at_ns, filch_values **out);
FILCH_API uint64_t                 filch_ctx_deadline(const filch_ctx *ctx);

/* Makes a new chain of values: a scope in front of the chain `parent` (NULL: none). The scope contains each process, on
 * any scheduler, that is spawned with the new chain or with a chain made from it, also if the process inherits the
 * chain. filch_values_cancel cancels all of these processes (FILCH_EVENT_CANCEL with `reason` as its error); a process
 * that enters the scope later is cancelled at once. filch_ctx_cancelled returns the `reason` to steps and handlers that
 * poll it, or FILCH_OK while no scope of the process is cancelled. Cancelling a scope twice has no further effect.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    holds `parent`; gives *out one reference. filch_values_cancel lends `scope`.
 * Errors:  FILCH_EINVAL  also: not a scope, reason is FILCH_OK   FILCH_ENOMEM   FILCH_ESYS;
 *          filch_ctx_cancelled: FILCH_OK for NULL
 */
FILCH_API FILCH_MUST_USE filch_err filch_values_scope(filch_values *parent, filch_values **out);
FILCH_API FILCH_MUST_USE filch_err filch_values_cancel(filch_values *scope, filch_err reason);
FILCH_API filch_err                filch_ctx_cancelled(const filch_ctx *ctx);

/* Releases a reference to a chain. NULL is allowed.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    takes the reference.
 * Errors:  none.
 */
FILCH_API void filch_values_drop(filch_values *values);

/* ---- commands ----------------------------------------------------------------------------------------------- */

enum {
    FILCH_CMD_SEND = 1,
    FILCH_CMD_SPAWN = 2,
    FILCH_CMD_TERMINATE = 3,
    FILCH_CMD_CANCEL = 4,
    FILCH_CMD_MONITOR = 5,
    FILCH_CMD_UNMONITOR = 6,
    FILCH_CMD_LINK = 7,
    FILCH_CMD_UNLINK = 8,
    FILCH_CMD_EXEC = 9,
    FILCH_CMD_SLEEP = 10,
    FILCH_CMD_TIMER = 11,
    FILCH_CMD_TICKER = 12,
    FILCH_CMD_TIMER_CANCEL = 13,
    FILCH_CMD_CONNECT = 30,
    FILCH_CMD_LISTEN = 31,
    FILCH_CMD_ACCEPT = 32,
    FILCH_CMD_RESOLVE = 33,
    FILCH_CMD_DATAGRAM = 34,
    FILCH_CMD_SEND_TO = 35,
    FILCH_CMD_RECEIVE_FROM = 36,
    FILCH_CMD_POLL = 40,
    FILCH_CMD_POLL_CANCEL = 41,
    FILCH_CMD_ADOPT = 42,
    FILCH_CMD_READ = 50,
    FILCH_CMD_WRITE = 51,
    FILCH_CMD_CLOSE = 52,
    FILCH_CMD_SEEK = 53,
    FILCH_CMD_OPEN = 54,
    FILCH_CMD_SHUTDOWN = 55,
    FILCH_CMD_IO_CANCEL = 56,
    FILCH_CMD_TAG_CANCEL = 57,
    FILCH_CMD_SYNC = 60,
    FILCH_CMD_TRUNCATE = 61,
    FILCH_CMD_STAT = 62,
    FILCH_CMD_RENAME = 63,
    FILCH_CMD_REMOVE = 64,
    FILCH_CMD_MKDIR = 65,
    FILCH_CMD_RMDIR = 66,
    FILCH_CMD_LIST = 67,
    FILCH_CMD_RUN = 150,
    FILCH_CMD_EXIT = 151,
    FILCH_CMD_KILL = 152,
    FILCH_CMD_SIGNALS = 153,
    FILCH_CMD_WORK = 180,
    FILCH_CMD_JOIN = 200,
    FILCH_CMD_LEAVE = 201,
    FILCH_CMD_MEMBERS = 202,
    FILCH_CMD_BROADCAST = 203,
    FILCH_CMD_WATCH = 204,
    FILCH_CMD_UNWATCH = 205,
    FILCH_CMD_REGISTER = 206,
    FILCH_CMD_UNREGISTER = 207,
    FILCH_CMD_SEND_NAME = 208,
    FILCH_CMD_USER = 256 /* the first id for commands of your own */
};

/* Yields of the clock:
 *   sleep         completes after `delay_ns`, never early and never synchronously; with FILCH_FOREVER never
 *   timer         completes synchronously with an id (filch_as_int); sends one message with this `tag` after `delay_ns`
 *   ticker        completes synchronously with an id; sends a message with this `tag` every `period_ns` (> 0); unread
 *                 ticks are merged, `data` is their number
 *   timer cancel  completes with 1 if timer or ticker `id` of this process was stopped before it fired (again), else 0.
 *                 A message that the timer had sent before still arrives, after this completion
 * Timers end with their process. A scheduler without other work fires timers that are due close together in groups: it
 * wakes about every 150 us, or every 250 us if more than eight timers were due at once.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_sleep(filch_out *out, uint64_t tag, uint64_t delay_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_timer(filch_out *out, uint64_t tag, uint64_t delay_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_ticker(filch_out *out, uint64_t tag, uint64_t period_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_timer_cancel(filch_out *out, uint64_t tag, int64_t id);

/* A function that may block, for the work pool. The error it returns and *result complete the yield. *result is empty
 * at first; set it to a lent, moved or shared payload, as for filch_complete. If *result holds a reference
 * (filch_share, filch_keep), the library takes that reference. */
typedef filch_err (*filch_work_fn)(void *arg, filch_data *result);

/* Runs `fn(arg)` on the work pool (options `work_threads`, `work_queue`): completes with the result of `fn`, or with
 * FILCH_EFULL when the pool's queue is full. The pool works until the last process has ended, also while the scheduler
 * stops.
 *
 * If the process ends before the completion, `fn` is still called, unless the queue was full, the yield was cancelled
 * (filch_yield_tag_cancel), or the scheduler has stopped before `fn` began: then memory that `fn` would have freed is
 * leaked. To prevent this, wait for the completions even after a FILCH_EVENT_CANCEL, or keep every `arg` in a list of
 * your own and, after filch_sched_stop, free each `arg` that `fn` has not freed.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    lends `arg` until the yield completes; if the yield is cancelled with data 0, until `fn` has returned.
 *          If the process may end before that, do not keep `arg` in its state.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_work(filch_out *out, uint64_t tag, filch_work_fn fn, void *arg);

/* As filch_yield_work, but completes with FILCH_EDEADLINE when `fn` has not returned after `timeout_ns`. The timeout
 * does not interrupt `fn`: `fn` occupies its thread until it returns, and may even begin after the timeout. The result
 * of a late `fn` is released. `arg` must stay valid until `fn` has returned, not only until the yield completes. For a
 * process that ends first, see filch_yield_work.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    lends `arg` until `fn` has returned.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_work_within(filch_out *out, uint64_t tag, filch_work_fn fn, void *arg,
                                                           uint64_t timeout_ns);

/* Tag cancel: cancels all outstanding yields of this process with the tag `which` that are a work, open, resolve, run,
 * connect, poll, stat, rename, remove, mkdir, rmdir or list. They complete with FILCH_ECANCELLED, then tag cancel
 * completes with their number (filch_as_int), which may be 0. A yield that is completed already keeps its result and is
 * not counted. Other yields with this tag go on; for commands on an open stream see filch_yield_io_cancel. The yields
 * of a step are carried out in order, so an earlier yield of the same step is cancelled, and a later one is not.
 *
 * The data of a cancelled work, or of a cancelled call of the system on the work pool, says whether it had begun:
 *   1  it had not begun and never will. The `arg` of a work is not used any more
 *   0  it has begun and is not interrupted: it occupies its thread until it returns, as after a deadline. Then its
 *      result is released, a file that it opened is closed, a program that it started is killed. A rename and other
 *      changes of files may still happen. The `arg` of a work must stay valid until `fn` has returned
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_tag_cancel(filch_out *out, uint64_t tag, uint64_t which);

/* Sends like filch_send, but as a yield: completes when the message is in the mailbox. If the receiver's mailbox is
 * full and its policy is FILCH_OVERFLOW_WAIT, the yield waits until that mailbox has space; waiting senders are served
 * in order of arrival.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies or shares `data`; takes a filch_move when it returns FILCH_OK.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ETOOBIG   FILCH_ESTATE  outside of that step
 *          (all other errors of filch_send, such as FILCH_EDEAD, are errors of the completion)
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_send(filch_out *out, uint64_t tag, filch_pid to, filch_data data);

/* A yielded command, as its handler sees it. Lent until the handler returns; use filch_keep for data that you need
 * longer. */
typedef struct filch_command {
    uint32_t         id;
    filch_pid        from;   /* the process that yielded the command */
    filch_pid        target; /* pid of the process that the command acts on; {0, 0}: none */
    filch_data       data;
    const filch_ctx *ctx; /* context of the process that yielded */
} filch_command;

/* Starts the work and returns at once; must not block. `user` is the pointer passed to filch_registry_add. Call
 * filch_complete(receiver, tag, ...) once when the result is available: from any thread, later (asynchronously) or
 * before the handler returns (synchronously). Returning an error completes the yield with that error. */
typedef filch_err (*filch_handler_fn)(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver);

/* Creates a set of command handlers, which contains the built-in handlers. Pass the registry in
 * filch_options.registry; the first scheduler that uses it freezes it. Several schedulers may share one registry.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    gives *out; return it with filch_registry_destroy. Schedulers hold a reference of their own.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_registry_create(filch_registry **out);

/* Registers `handler` for command `id` (1 up to UINT32_MAX).
 *
 * Thread:  one at a time.                                       Blocks:  never.
 * Owns:    keeps the pointer `user`, which must stay valid until the registry and all its schedulers are freed.
 * Errors:  FILCH_EINVAL   FILCH_EEXISTS  the id is taken   FILCH_EFROZEN  a scheduler uses the registry
 *          FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_registry_add(filch_registry *registry, uint32_t id, filch_handler_fn handler,
                                                      void *user);

/* Removes the handler of command `id`, also a built-in one: yields of this command then complete with
 * FILCH_ECOMMAND.
 *
 * Thread:  one at a time.                                       Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_ECOMMAND  the command has no handler   FILCH_EFROZEN  a scheduler uses the registry
 */
FILCH_API FILCH_MUST_USE filch_err filch_registry_remove(filch_registry *registry, uint32_t id);

/* Releases the registry. It is freed with the last scheduler that uses it. NULL is allowed.
 *
 * Thread:  any, once.                                           Blocks:  never.
 * Owns:    takes the registry.
 * Errors:  none.
 */
FILCH_API void filch_registry_destroy(filch_registry *registry);

/* Completes a yield: the process gets a FILCH_EVENT_YIELD with `tag`, `data` and `error`.
 *
 * Only the first completion takes effect. A second completion, or one for a process that has ended, has no effect
 * and returns an error.
 *
 * Thread:  any, also inside the handler.                        Blocks:  never.
 * Owns:    copies or shares `data`; takes a filch_move when it returns FILCH_OK.
 * Errors:  FILCH_EINVAL  `receiver` is not valid, or `tag` is not its tag
 *          FILCH_ESTALE  the yield is already completed, or the process has ended
 *          FILCH_EDEAD   the process ended during this call
 *          FILCH_ENOMEM  no memory for `data`: the yield stays outstanding
 *          FILCH_ETOOBIG `data` is over `payload_max`: the yield stays outstanding
 *          FILCH_ECLOSED the scheduler is closed
 */
FILCH_INLINE FILCH_MUST_USE filch_err filch_complete(filch_receiver receiver, uint64_t tag, filch_data data,
                                                     filch_err error);

/* ---- relations ---------------------------------------------------------------------------------------------- */

/* Processes monitor each other, are linked, and have names. Each operation is a function that any thread may call. Most
 * operations also exist as a yield: its completion carries what the function would return, the error in `error` and the
 * result in `data`. Relations survive filch_upgrade and are removed when a process ends. Sending a notice
 * (FILCH_EVENT_EXIT, _LINK_DOWN) needs no memory, because its memory was reserved when the relation was made.
 *
 * A black box (option `blackbox`) does not record calls of filch_members; it does record filch_yield_members. */

/* Makes `watcher` monitor `target`: when `target` ends, `watcher` gets a FILCH_EVENT_EXIT with this `tag`. If
 * `target` has already ended, or ends before the monitor is made, the event comes at once, with FILCH_EDEAD instead of
 * the result. A process that monitors another several times gets one event for each monitor. *ref, if not NULL, is set
 * to the number of the monitor, for filch_unmonitor.
 *
 * Thread:  any; inside a step `watcher` is usually filch_ctx_self.      Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL  NULL, the pid {0, 0}, or `watcher` is `target`   FILCH_ENOMEM   FILCH_EFOREIGN   FILCH_EDENIED
 *          FILCH_EDEAD   the watcher has ended, or the scheduler of `target` is gone; then no event comes
 */
FILCH_API FILCH_MUST_USE filch_err filch_monitor(filch_sched *sched, filch_pid watcher, filch_pid target, uint64_t tag,
                                                 uint64_t *ref);

/* Ends a monitor. If this call returns FILCH_OK, the EXIT event of the monitor does not come.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_EFOREIGN   FILCH_EDENIED  the watcher belongs to another host
 *          FILCH_ESTALE  no such monitor: its event has been sent, or it was ended before
 */
FILCH_API FILCH_MUST_USE filch_err filch_unmonitor(filch_sched *sched, filch_pid watcher, uint64_t ref);

/* Links two processes. When one fails (ends with an error), the other ends too, with FILCH_ELINK and the error as its
 * result (filch_as_int). Processes that are linked with that other process then end in turn, with the first error as
 * their result. A process that traps links gets a FILCH_EVENT_LINK_DOWN instead of ending. When one of the two ends
 * without an error, the link is removed and nothing else happens. If a linked process fails during the step in which a
 * process ends by itself, the process ends with the result of that step. Two processes have at most one link: linking
 * them again returns FILCH_OK and changes nothing. Linking with an ended process has the same effect as if that process
 * failed with FILCH_EDEAD.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL  the pid {0, 0}, or `a` is `b`   FILCH_EDEAD  both have ended, or the host of one is gone
 *          FILCH_ENOMEM
 *          FILCH_EFOREIGN   FILCH_EDENIED
 */
FILCH_API FILCH_MUST_USE filch_err filch_link(filch_sched *sched, filch_pid a, filch_pid b);

/* Removes the link between two processes.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_EFOREIGN   FILCH_EDENIED   FILCH_ESTALE  they are not linked (any more)
 */
FILCH_API FILCH_MUST_USE filch_err filch_unlink(filch_sched *sched, filch_pid a, filch_pid b);

/* If `on` is not 0, this process gets a FILCH_EVENT_LINK_DOWN when a linked process fails; if `on` is 0, it ends
 * when a linked process fails.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_trap_links(filch_out *out, int on);

/* Cancels a process as filch_cancel does, with a `reason` (the event's `error`), which must not be FILCH_OK, and a
 * deadline: if the process still lives `deadline_ns` from now, it is ended as by filch_terminate. FILCH_FOREVER: no
 * deadline. During a stop, a cancel by the process that supervises `pid` (FILCH_SPAWN_SUPERVISED) is delivered after
 * the messages in the mailbox of `pid`, unless the stop has the flag FILCH_STOP_CANCEL_FIRST.
 *
 * Each call adds one event. If one step gets several cancels, the cancel by filch_cancel comes first, and then come the
 * cancels by filch_cancel_with, in the reverse order of the calls. Each call has its own deadline, and a later call
 * does not change an earlier deadline: the process is ended at the earliest deadline.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_EDEAD   FILCH_EFOREIGN   FILCH_ENOMEM   FILCH_EDENIED
 */
FILCH_API FILCH_MUST_USE filch_err filch_cancel_with(filch_sched *sched, filch_pid pid, filch_err reason,
                                                     uint64_t deadline_ns);

/* Gives `pid` a name (1 to 255 bytes) in this scheduler. A process may have several names; a name belongs to one
 * process, until that process ends.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    copies `name`.
 * Errors:  FILCH_EINVAL   FILCH_EEXISTS  the name is taken   FILCH_EDEAD   FILCH_EFOREIGN   FILCH_ENOMEM
 *          FILCH_EDENIED
 */
FILCH_API FILCH_MUST_USE filch_err filch_register(filch_sched *sched, const char *name, filch_pid pid);

/* filch_unregister removes a name. filch_whereis returns the pid of the process with the name. filch_send_name sends
 * a message to the process with the name.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends `name`; filch_send_name as filch_send.
 * Errors:  FILCH_EINVAL   FILCH_EDEAD  no process has this name; filch_send_name also as filch_send.
 */
FILCH_API FILCH_MUST_USE filch_err filch_unregister(filch_sched *sched, const char *name);
FILCH_API FILCH_MUST_USE filch_err filch_whereis(filch_sched *sched, const char *name, filch_pid *pid);
FILCH_API FILCH_MUST_USE filch_err filch_send_name(filch_sched *sched, const char *name, filch_data data);

/* Spawning, monitors, links, names and cancels as yields. The yielding process is the watcher, or one side of the link.
 * The yields complete with:
 *   spawn     the pid: filch_as_pid
 *   exec      the result of the new process, or its error, when it has ended; the new process goes on if the
 *             yielding process ends
 *   monitor   the number of the monitor, for unmonitor: filch_as_int. The EXIT event has the tag of the yield
 *   others    an empty payload
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    spawn and exec copy what `options` lends; `type` must stay valid.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ETOOBIG   FILCH_ESTATE; all other errors come with the completion.
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_spawn(filch_out *out, uint64_t tag, const filch_type *type,
                                                     const filch_spawn_options *options);
FILCH_API FILCH_MUST_USE filch_err filch_yield_exec(filch_out *out, uint64_t tag, const filch_type *type,
                                                    const filch_spawn_options *options);
FILCH_API FILCH_MUST_USE filch_err filch_yield_terminate(filch_out *out, uint64_t tag, filch_pid pid);
FILCH_API FILCH_MUST_USE filch_err filch_yield_cancel(filch_out *out, uint64_t tag, filch_pid pid, filch_err reason,
                                                      uint64_t deadline_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_monitor(filch_out *out, uint64_t tag, filch_pid pid);
FILCH_API FILCH_MUST_USE filch_err filch_yield_unmonitor(filch_out *out, uint64_t tag, uint64_t ref);
FILCH_API FILCH_MUST_USE filch_err filch_yield_link(filch_out *out, uint64_t tag, filch_pid pid);
FILCH_API FILCH_MUST_USE filch_err filch_yield_unlink(filch_out *out, uint64_t tag, filch_pid pid);
FILCH_API FILCH_MUST_USE filch_err filch_yield_register(filch_out *out, uint64_t tag, const char *name);
FILCH_API FILCH_MUST_USE filch_err filch_yield_unregister(filch_out *out, uint64_t tag, const char *name);
FILCH_API FILCH_MUST_USE filch_err filch_yield_send_name(filch_out *out, uint64_t tag, const char *name,
                                                         filch_data data);

/* ---- groups ------------------------------------------------------------------------------------------------- */

/* A group is a set of processes of one scheduler under a common name (1 to 255 bytes). A group exists while it has
 * members or watchers; a group that does not exist counts as empty.
 *
 * filch_join makes a process a member, filch_leave ends one membership. A process that joins several times is a
 * member that many times, and must leave as often.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    copies `group`.
 * Errors:  FILCH_EINVAL   FILCH_EDEAD   FILCH_EFOREIGN  a process of another scheduler   FILCH_ENOMEM
 *          FILCH_ESTALE   filch_leave: the process is not a member
 */
FILCH_API FILCH_MUST_USE filch_err filch_join(filch_sched *sched, const char *group, filch_pid pid);
FILCH_API FILCH_MUST_USE filch_err filch_leave(filch_sched *sched, const char *group, filch_pid pid);

/* Makes `watcher` watch the group: `watcher` gets FILCH_EVENT_JOINED and _LEFT with this `tag` for each join and leave,
 * in order, until filch_unwatch was called as often as filch_watch. A watcher gets these events for its own joins and
 * leaves, too. For a process that was a member before the watch began, the watcher gets no JOINED, but gets LEFT when
 * that process leaves or ends. If a process watches a group several times, it gets each event once for each watch;
 * filch_unwatch ends the newest watch.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    copies `group`.
 * Errors:  as filch_join; FILCH_ESTALE  filch_unwatch: the process does not watch the group
 */
FILCH_API FILCH_MUST_USE filch_err filch_watch(filch_sched *sched, const char *group, filch_pid watcher, uint64_t tag);
FILCH_API FILCH_MUST_USE filch_err filch_unwatch(filch_sched *sched, const char *group, filch_pid watcher);

/* Lists the members in the order they joined: writes up to `room` pids to `pids`, and the number of members to
 * *count.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    fills `pids`, which may be NULL if `room` is 0, and *count.
 * Errors:  FILCH_EINVAL
 */
FILCH_API FILCH_MUST_USE filch_err filch_members(filch_sched *sched, const char *group, filch_pid *pids, size_t room,
                                                 size_t *count);

/* Sends `data` to every member, as often as that member has joined, and copies `data` at most once. *sent, if not NULL,
 * is the number of members that accepted the message. A member that has a full mailbox or has just ended does not
 * accept it. In filch_stats such a send counts like a filch_send with the same error.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    as filch_send.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ETOOBIG   FILCH_ECLOSED  as filch_send
 */
FILCH_API FILCH_MUST_USE filch_err filch_broadcast(filch_sched *sched, const char *group, filch_data data,
                                                   uint64_t *sent);

/* The operations on groups as yields; the yielding process is the one that joins, leaves or watches. Members completes
 * with the pids of the members as bytes (an array of filch_pid), broadcast with the number of members that accepted the
 * message: filch_as_int.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    broadcast as filch_yield.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ETOOBIG   FILCH_ESTATE; all other errors come with the completion.
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_join(filch_out *out, uint64_t tag, const char *group);
FILCH_API FILCH_MUST_USE filch_err filch_yield_leave(filch_out *out, uint64_t tag, const char *group);
FILCH_API FILCH_MUST_USE filch_err filch_yield_watch(filch_out *out, uint64_t tag, const char *group);
FILCH_API FILCH_MUST_USE filch_err filch_yield_unwatch(filch_out *out, uint64_t tag, const char *group);
FILCH_API FILCH_MUST_USE filch_err filch_yield_members(filch_out *out, uint64_t tag, const char *group);
FILCH_API FILCH_MUST_USE filch_err filch_yield_broadcast(filch_out *out, uint64_t tag, const char *group,
                                                         filch_data data);

/* ---- supervision -------------------------------------------------------------------------------------------- */

/* A supervisor is a process that starts other processes, its children, in order; restarts them when they end; and stops
 * them in reverse order when it ends. A child may itself be a supervisor, so supervisors form a tree, which constants
 * can describe:
 *
 *     static const filch_child children[] = {
 *         { .id = "store", .type = &store },
 *         { .id = "fetch", .type = &fetch, .restart = FILCH_TRANSIENT, .stop_ns = FILCH_SECONDS(1) },
 *     };
 *     static const filch_supervisor tree = { .strategy = FILCH_REST_FOR_ONE, .children = children, .child_count = 2 };
 *     filch_supervise(sched, &tree, NULL, &pid);
 *
 * A supervisor stops a child by filch_cancel_with, with FILCH_ECANCELLED and the child's `stop_ns` as the deadline.
 * Children are stopped one at a time. When the scheduler stops, it cancels the supervisor, not the children; a child
 * gets the messages in its mailbox before the cancel, and a child that ends is not started again. If there is no memory
 * for a cancel, the supervisor terminates the child. When a supervisor is terminated, its children end with it, because
 * they are linked with it. If a process fails that is linked with a supervisor but is not its child, the supervisor
 * stops its children and ends with FILCH_ELINK. */
typedef enum filch_strategy {
    FILCH_ONE_FOR_ONE, /* only the child that ended is restarted */
    FILCH_ONE_FOR_ALL, /* when one child ends, all children are stopped and restarted */
    FILCH_REST_FOR_ONE /* the child that ended is restarted; the children after it are stopped and restarted */
} filch_strategy;

typedef enum filch_restart {
    FILCH_PERMANENT, /* restarted whenever it ends */
    FILCH_TRANSIENT, /* restarted when it fails. A child that ended without an error by itself is not restarted, even
                        if other children are; a child that the supervisor stopped, to restart it with its siblings,
                        is restarted however it ended */
    FILCH_TEMPORARY  /* never restarted; removed from the list of children when it ends */
} filch_restart;

#define FILCH_CHILD_ID_MAX 63
#define FILCH_NO_RESTARTS UINT32_MAX

struct filch_supervisor;

/* Description of a child. The memory it points to must stay valid as long as the supervisor; for a child started by
 * filch_child_start, until `release` is called. */
typedef struct filch_child {
    const char       *id;                      /* 1 to 63 bytes, different from the ids of its siblings */
    const filch_type *type;                    /* type of the child; if `supervisor` is set: NULL, or a type that wraps
                                                  filch_supervisor_type */
    const struct filch_supervisor *supervisor; /* NULL, or: the child is a supervisor with this description, which it
                                                  gets as its `args` (filch_ptr) */
    const filch_spawn_options *options;        /* options of each start; NULL: none. A name given here is free again
                                                  at each restart */
    uint64_t stop_ns;                          /* time that the child has to end after a cancel; 0: 5 s, or no limit if
                                                  the child is a supervisor */
    uint32_t restart;                          /* filch_restart */
    uint32_t spare;                            /* must be 0 */
    /* For a child started by filch_child_start: called once when the supervisor no longer uses this description, on
     * any worker. NULL: none. */
    void (*release)(const struct filch_child *child);
} filch_child;

/* Description of a supervisor. A field of 0 means the default that its comment gives. */
typedef struct filch_supervisor {
    uint32_t strategy;  /* filch_strategy */
    uint32_t intensity; /* most restarts within `period_ns`, at most 10000; 0: 3; FILCH_NO_RESTARTS: none. If a further
                           restart is needed, the supervisor stops all children and ends with FILCH_ELIMIT and a text;
                           the supervisor above it handles this end. The end of one child counts once, however many
                           children are restarted for it; the end of a sibling that must be stopped for the restart is
                           not counted, even if that sibling ends by itself. A restart that fails (init, no memory)
                           counts too, and is tried again */
    uint64_t period_ns; /* 0: 5 s */
    /* Wait before a restart: at first `backoff_ns`, each further time `backoff_percent` of the previous wait, up to
     * `backoff_max_ns`. After a child has run for `stable_ns`, its next wait is `backoff_ns` again. Each wait is made
     * longer or shorter at random, by up to half of `jitter` (per mille of the wait); a simulated run with the same
     * seed has the same waits. A wait has its full length even if there is no memory for its timer: the supervisor is
     * then stepped again and again, and reads the clock, until there is memory or the wait is over. */
    uint64_t           backoff_ns;      /* 0: no wait */
    uint64_t           backoff_max_ns;  /* 0: 30 s */
    uint64_t           stable_ns;       /* 0: 5 s */
    uint32_t           backoff_percent; /* 0: 200 */
    uint32_t           jitter;          /* per mille */
    const filch_child *children;
    size_t             child_count;
    uint64_t           spare; /* must be 0 */
} filch_supervisor;

/* The process type of supervisors. Its `args` are a filch_ptr to a filch_supervisor. */
FILCH_API extern const filch_type filch_supervisor_type;

/* Starts a supervisor; its first step starts its children. If a child cannot be started, the children before it are
 * stopped, and the supervisor ends with the error of that start. `options` may set a name, on_exit and so on; the args
 * of the supervisor are `spec`.
 *
 * Thread:  any, also inside steps.                              Blocks:  never.
 * Owns:    lends `spec` until the supervisor has ended; otherwise as filch_spawn.
 * Errors:  FILCH_EINVAL   FILCH_EEXISTS  two children have one id; and as filch_spawn
 */
FILCH_API FILCH_MUST_USE filch_err filch_supervise(filch_sched *sched, const filch_supervisor *spec,
                                                   const filch_spawn_options *options, filch_pid *pid);

/* Information about one child of a supervisor: see filch_child_list. */
typedef struct filch_child_info {
    char      id[FILCH_CHILD_ID_MAX + 1];
    filch_pid pid; /* {0, 0} while the child is not running */
    uint32_t  running;
    uint32_t  restarts; /* number of restarts since the child last ran for `stable_ns` */
} filch_child_info;

/* Starting and stopping children at run time. Each of these functions sends a request to the supervisor. If the
 * function is called inside a step, the supervisor replies to that step's process with a message, described below. A
 * supervisor that ends before its reply sends none, so monitor it.
 *   start  the pid (filch_as_pid), or an error (filch_as_int): FILCH_EEXISTS if a child has this id, FILCH_ECLOSED if
 *          the supervisor is ending, FILCH_ENOMEM, or the error of filch_spawn. The child comes last in the order. It
 *          is started at once, also while other children are being stopped or wait for their restart; it is not part
 *          of a restart that is under way. If a child with this id is being stopped by filch_child_stop, the new one
 *          is started when the old one has ended. Replies about one id keep the order of requests
 *   stop   FILCH_OK once the child has ended and is removed, FILCH_EDEAD if no child has this id (filch_as_int)
 *   list   all children in order: bytes, an array of filch_child_info; or an error (filch_as_int)
 *   await  FILCH_OK (filch_as_int) once every child that should run is running, also the children of supervisors
 *          below this one
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    start copies *child and the args in its options. Everything else that *child points to must stay valid until
 *          `child->release` is called, which happens only if start returned FILCH_OK.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM; and as filch_send.
 */
FILCH_API FILCH_MUST_USE filch_err filch_child_start(filch_sched *sched, filch_pid supervisor,
                                                     const filch_child *child);
FILCH_API FILCH_MUST_USE filch_err filch_child_stop(filch_sched *sched, filch_pid supervisor, const char *id);
FILCH_API FILCH_MUST_USE filch_err filch_child_list(filch_sched *sched, filch_pid supervisor);
FILCH_API FILCH_MUST_USE filch_err filch_child_await(filch_sched *sched, filch_pid supervisor);

/* The reply to a request with a tag: filch_child_start_tagged, _stop_tagged, _list_tagged, _await_tagged. */
typedef struct filch_child_answer {
    uint64_t  tag;
    filch_pid pid;   /* pid of the child that was started; {0, 0} for every other request and after an error */
    filch_err error; /* FILCH_OK, or why the request failed */
    /* Reply to a list request: all children in order, valid as long as the payload of the reply. NULL and 0 in every
     * other reply. */
    const filch_child_info *children;
    size_t                  child_count;
} filch_child_answer;

/* As filch_child_start, _stop, _list and _await, but the reply carries `tag`, so that it can be matched to its request:
 * see filch_child_answered. Replies about different children may come in another order than the requests, and the reply
 * to await may come after replies to later requests.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    as filch_child_start.
 * Errors:  as filch_child_start.
 */
FILCH_API FILCH_MUST_USE filch_err filch_child_start_tagged(filch_sched *sched, filch_pid supervisor,
                                                            const filch_child *child, uint64_t tag);
FILCH_API FILCH_MUST_USE filch_err filch_child_stop_tagged(filch_sched *sched, filch_pid supervisor, const char *id,
                                                           uint64_t tag);
FILCH_API FILCH_MUST_USE filch_err filch_child_list_tagged(filch_sched *sched, filch_pid supervisor, uint64_t tag);
FILCH_API FILCH_MUST_USE filch_err filch_child_await_tagged(filch_sched *sched, filch_pid supervisor, uint64_t tag);

/* Returns 1 and writes *out if `data`, the payload of a message, is a filch_child_answer; otherwise 0. A payload
 * that only has the same bytes is not accepted.
 *
 * Thread:  any that may read `data`.                            Blocks:  never.
 * Owns:    lends out->children as long as `data` is valid: inside a step until it returns; longer after filch_keep.
 * Errors:  0 also for NULL.
 */
FILCH_API int filch_child_answered(const filch_data *data, filch_child_answer *out);

/* ---- routing ------------------------------------------------------------------------------------------------ */

/* A message to be delivered, with its sender and receiver. */
typedef struct filch_package {
    filch_pid  to;
    filch_pid  from;
    filch_data data;
} filch_package;

/* Delivers a package, or returns an error. filch_deliver is a function of this type; option `route` sets the function
 * that is called for messages to pids of other nodes. */
typedef filch_err (*filch_route_fn)(void *user, const filch_package *package);

/* Delivers a package to a process of this scheduler, keeping its `from`. Used as a filch_route_fn, its `user` is the
 * scheduler, so one scheduler can be the route of another.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    as filch_send.
 * Errors:  as filch_send.
 */
FILCH_API FILCH_MUST_USE filch_err filch_deliver(void *sched, const filch_package *package);

/* ---- the scheduler ------------------------------------------------------------------------------------------ */

/* Allocator. One function does all: old == NULL allocates `size` bytes aligned for any type; size == 0 frees `old`,
 * which has `old_size` bytes; otherwise resizes. Must be safe to call from all workers at once. NULL means out of
 * memory. The creation of a scheduler or node allocates a few blocks as a test, and fails with FILCH_EINVAL if one of
 * them is not aligned to alignof(max_align_t). Payloads that outlive the scheduler (filch_keep, or routed to another
 * scheduler) are freed through this function when they are dropped, so the function and its `alloc_user` must stay
 * valid until then. */
typedef void *(*filch_alloc_fn)(void *user, void *old, size_t old_size, size_t size);

/* Called when a step has taken longer than option `long_step_ns`. The step's worker calls it after the step (`finished`
 * 1), for every long step. If another worker is parked or searches for work, that worker also calls it once while the
 * step still runs (`finished` 0): then the step is reported twice, and logged twice. Must not block. */
typedef void (*filch_long_step_fn)(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished);

/* Called when a process with a black box has ended with an error other than FILCH_ECANCELLED and FILCH_EKILLED: `bytes`
 * is a recording for filch_blackbox_replay, lent until the hook returns: write it to a file, for example. If there was
 * no memory, `bytes` is NULL and `size` is 0. Runs on the worker that ended the process, after close and before
 * on_exit. */
typedef void (*filch_blackbox_fn)(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size);

/* Describes a process that has failed. Valid until the hook returns. */
typedef struct filch_failure {
    size_t            size; /* sizeof(filch_failure) of the library: a later version may add fields */
    filch_pid         pid;
    const char       *type;   /* name of the process's type */
    const char       *name;   /* the name that the process registered last; NULL: none */
    filch_err         error;  /* never FILCH_OK */
    const filch_data *detail; /* detail passed to filch_fail; empty if none */
} filch_failure;

/* Called for every process that ends with an error: also FILCH_ECANCELLED (ended by force in a stop, or returned by a
 * step), FILCH_EKILLED and FILCH_ELINK, and for children that a supervisor starts again. Not called for a spawn that
 * fails: the caller of the spawn gets the error. Runs on the worker that ended the process, after close and before
 * on_exit; several workers may run it at once. Must not block; may send and spawn. */
typedef void (*filch_failure_fn)(void *user, const filch_failure *failure);

typedef enum filch_log_level {
    FILCH_LOG_DEBUG = 1,
    FILCH_LOG_INFO,
    FILCH_LOG_WARNING, /* the runtime logs at this level when a supervisor starts a child again, messages were
                          dropped, a step took long, or a stop used force */
    FILCH_LOG_ERROR    /* the runtime logs at this level when a supervisor gives up, or a step does not return */
} filch_log_level;

#define FILCH_LOG_MAX 256 /* size of the longest text that the runtime logs, with its NUL */

/* One log line. Valid until the hook returns. */
typedef struct filch_log_line {
    size_t      size;  /* sizeof(filch_log_line) of the library: a later version may add fields */
    int32_t     level; /* filch_log_level */
    filch_err   error; /* the error that the line is about; FILCH_OK: none */
    filch_pid   pid;   /* the process that the line is about; {0, 0}: none */
    const char *type;  /* name of the process's type; NULL: none */
    const char *text;  /* one sentence without a newline; a text logged by a process is passed unchanged */
} filch_log_line;

/* Called with each log line of the runtime and of processes (filch_log). Runs on any thread that is inside the runtime;
 * several threads may run it at once. Must not block, and must not call functions with this scheduler: pass the line to
 * another thread. */
typedef void (*filch_log_fn)(void *user, const filch_log_line *line);

#define FILCH_NO_WORKERS (-1)

/* Options of a scheduler. A field of 0 means the default that its comment gives; set `size` (FILCH_OPTIONS_INIT does)
 * and the fields that you want to change. */
typedef struct filch_options {
    size_t   size;          /* sizeof(filch_options); a shorter, older struct works too */
    int32_t  workers;       /* number of threads, at most 1024; 0: one per CPU; FILCH_NO_WORKERS: you call filch_tick */
    uint32_t max_processes; /* most processes alive at once, at most 2^31 - 1; 0: 2^26. Each thread that spawns at the
                               limit may exceed it by one. No spawn is refused while fewer processes than the limit are
                               alive */
    filch_alloc_fn  alloc;  /* NULL: malloc and free */
    void           *alloc_user;
    filch_registry *registry;    /* command handlers; NULL: the built-in ones */
    uint64_t        node;        /* node id, part of every pid; 0: random */
    uint64_t        seed;        /* seed of random choices; 0: from the system */
    size_t          payload_max; /* most bytes in one payload; 0: no limit */
    uint32_t        batch_max;   /* most events per step, at most 1024; 0: 64 */
    uint32_t        send_budget; /* number of sends in a step after which filch_should_yield returns 1; 0: 64 */
    uint32_t        fair_every;  /* every n-th turn runs the process that has waited longest; 0: 8, or up to 64 for
                                    short steps */
    uint32_t global_batch;       /* processes that a worker takes from the global queue at once, at most 256; 0: 16 */
    uint32_t spin_tight;         /* before it parks, a worker makes this many attempts to find work, with a
                                    pause after each; 0: 3 */
    uint32_t spin_yield;         /* after spin_tight: attempts with a sched_yield after each; 0: 12 */
    uint32_t spare;              /* must be 0 */
    uint64_t search_ns; /* after spin_yield: how long one worker continues to search before it parks; 0: 50 us; while
                           wake-ups are far apart, the worker searches for a shorter time, and makes fewer of the
                           attempts that spin_tight and spin_yield set */
    uint64_t           long_step_ns; /* longer steps are counted and reported; 0: steps are not timed */
    filch_long_step_fn on_long_step;
    void              *on_long_step_user;
    uint32_t           work_threads; /* threads for filch_yield_work, started when first needed, at most 1024; 0: 4 */
    uint32_t           work_queue;   /* most functions of filch_yield_work that wait for a thread; 0: 1024 */
    filch_route_fn     route;        /* called with messages for pids of other nodes; NULL: a send to such a
                                        pid returns FILCH_EFOREIGN */
    void             *route_user;
    filch_blackbox_fn on_blackbox; /* NULL: nothing is recorded */
    void             *on_blackbox_user;
    uint32_t          blackbox;  /* how many of the last steps of each process are recorded, at most FILCH_BLACKBOX_MAX;
                                    0: none */
    uint32_t spare_too;          /* must be 0 */
    size_t   memory_max;         /* most bytes that the scheduler may hold from `alloc`; a call that needs more returns
                                    FILCH_ENOMEM; 0: no limit */
    filch_failure_fn on_failure; /* NULL: failures are only counted (filch_stats.failed) and reported to on_exit and
                                    relations */
    void        *on_failure_user;
    filch_log_fn on_log; /* NULL: nothing is logged */
    void        *on_log_user;
} filch_options;
#define FILCH_OPTIONS_INIT FILCH_SIZED_INIT(filch_options)

/* Starts a scheduler. `options` NULL means all defaults. A fork() copies no thread of a scheduler: in the child
 * program, the stop of a scheduler that the parent made returns FILCH_EFORKED at once and frees nothing; the child must
 * call no other function on that scheduler. The child may create schedulers of its own. A program that becomes a daemon
 * must fork before it creates a scheduler.
 *
 * Thread:  any.                                                 Blocks:  until its workers have started.
 * Owns:    lends `options`; gives *out; return it with filch_sched_stop.
 * Errors:  FILCH_EINVAL  unknown or impossible option   FILCH_ENOMEM   FILCH_ESYS  a thread could not be started
 */
FILCH_API FILCH_MUST_USE filch_err filch_sched_create(filch_sched **out, const filch_options *options);

/* An allocator with its `user` argument: see filch_alloc_fn. Copy it freely. */
typedef struct filch_memory {
    filch_alloc_fn alloc;
    void          *user;
} filch_memory;

/* Returns the allocator of a scheduler, for process types that need memory besides their state. The memory comes from
 * option `alloc` and counts against `memory_max`. The memory may also be freed after the end of the scheduler, through
 * the same filch_memory.
 *
 * Thread:  any; allocate in a simulation only on its thread.   Blocks:  never.
 * Owns:    gives the memory it allocates: free it, for example in `close`.
 * Errors:  none. NULL: malloc and free.
 */
FILCH_API filch_memory filch_sched_memory(const filch_sched *sched);

/* A process that was ended by force in a stop, or that has not ended. */
typedef struct filch_straggler {
    filch_pid   pid;
    const char *name; /* name of the process's type */
    int32_t state;    /* filch_state when the stop ended the process by force: BLOCKED, IDLE or READY; RUNNING: its step
                         has not returned */
    uint32_t waiting; /* number of outstanding yields */
    uint32_t command; /* command of one of the outstanding yields; 0: none */
    uint64_t tag;     /* tag of the yield that has this `command` */
} filch_straggler;

/* What a process lost when it ended during a stop. */
typedef struct filch_loss {
    filch_pid   pid;
    const char *name;   /* name of the process's type */
    uint64_t    unread; /* messages in its mailbox that no step has read, and messages counted by filch_close_unread */
    uint64_t    writes; /* stream writes that were begun and not finished */
    uint64_t    bytes;  /* bytes of unfinished writes that the system has not accepted */
    uint64_t    spare[2];
} filch_loss;

/* A function of the work pool that has not returned. */
typedef struct filch_running_job {
    filch_pid   pid;     /* the process that yielded the job, alive or not; {0, 0}: a job of Filch itself */
    const char *name;    /* name of the process's type; "?" if it is no longer known */
    uint64_t    tag;     /* tag of the yield */
    uint32_t    command; /* FILCH_CMD_WORK, FILCH_CMD_OPEN and so on */
    uint32_t    spare;
    uint64_t    spares[2];
} filch_running_job;

/* The result of filch_sched_stop. Free it with filch_report_free. A second stop after FILCH_EBUSY reports only what is
 * new since the first stop. `size` may be that of an older, shorter struct; the stop sets it to the number of bytes
 * filled in. */
typedef struct filch_report {
    size_t   size;               /* set by the caller: sizeof(filch_report) */
    uint64_t ended;              /* processes that ended without force after stop was called. They include a process
                                    that was ended by its own step, although the step was still running at the
                                    deadline */
    uint64_t         forced;     /* processes that were closed by force at the deadline */
    uint64_t         stuck;      /* calls of steps, inits, closes and work functions that have not returned */
    filch_straggler *stragglers; /* processes ended by force, and processes whose step has not returned */
    size_t           count;
    size_t           omitted;     /* stragglers, losses and jobs that are not listed, for lack of memory */
    void            *reserved[4]; /* private */
    uint64_t         terminated;  /* how many of `ended` were ended by filch_terminate, or by a supervisor after
                                     `stop_ns` */
    uint64_t unread;              /* accepted messages that no step has read, or that were read and not used
                                     (filch_close_unread); may be more than 0 even with FILCH_OK */
    uint64_t           writes;    /* stream writes that were begun and not finished */
    uint64_t           bytes;     /* bytes of unfinished writes that the system has not accepted */
    filch_loss        *losses;    /* one for each process that has lost messages or writes */
    size_t             loss_count;
    uint64_t           jobs;    /* how many of `stuck` are work functions */
    filch_running_job *running; /* the work functions counted in `jobs`, in the order in which they began */
    size_t             running_count;
    uint64_t starved; /* how many of `stuck` are steps on a thread that the system did not run for 10 s although the
                         thread was ready to run. Every other step in `stuck` has used 100 ms of CPU time since the
                         deadline, or slept for 100 ms */
} filch_report;
#define FILCH_REPORT_INIT FILCH_SIZED_INIT(filch_report)

/* Ends everything and frees the scheduler. Accepted work is never lost silently: it is finished in time, or counted
 * in *report, which may be NULL.
 *
 *   1. Closed to the outside. Sends (also to a name or a group) and spawns by other threads and by other hosts are
 *      refused (FILCH_ECLOSED); completions, cancels and calls that make relations still work. Listeners accept no more
 *      connections: an accept stays outstanding.
 *   2. Drain. Each process gets one FILCH_EVENT_CANCEL, after the messages that are in its mailbox; the cancel is the
 *      first event of its step. A process that was spawned with FILCH_SPAWN_SUPERVISED gets the cancel from its
 *      supervisor: a filch_supervisor stops its children one by one, the last one first. A process that waits
 *      (filch_wait) with messages in its mailbox gets the cancel when its completion has come and the messages are
 *      read, or after `patience_ns` (filch_stop_options). Timers, files, sockets, programs and the work pool go on, and
 *      a step may send and spawn; supervised processes are not started again. Processes that are spawned during the
 *      drain are cancelled too, and the stop waits for them: steps and `on_exit` hooks that go on spawning successors
 *      hold the stop until the deadline, unless they check filch_sched_stopping.
 *   3. At the deadline, `deadline_ns` from now, processes that have not ended are closed by force, with
 *      FILCH_ECANCELLED, and named in the report. With a `deadline_ns` of 0 they are closed at once: no process has
 *      time to read or write anything. With FILCH_FOREVER no process is closed by force.
 *   4. When no process is left, jobs of the work pool that have not begun are dropped. The stop waits for the jobs that
 *      run, until the deadline, but at least 100 ms. Then the threads of the scheduler end.
 * A step or work function that never returns cannot be interrupted: it is named in the report, no memory that it may
 * use is freed, and stop may be called again. A step on a thread that the system does not run is waited for, 10 s at
 * most: see filch_report.starved. With workers = FILCH_NO_WORKERS the thread that calls stop runs the processes.
 *
 * Thread:  any but a worker of this scheduler or a thread of    Blocks:  at most until shortly after the deadline.
 *          its work pool; one at a time.
 * Owns:    takes `sched` unless it returns FILCH_EBUSY, FILCH_ESTATE, FILCH_EINVAL or FILCH_EFORKED; gives what
 *          *report holds.
 * Errors:  FILCH_OK         no process was ended by force
 *          FILCH_EDEADLINE  some processes were ended by force; everything is freed, as with FILCH_OK
 *          FILCH_EBUSY      a step, work function or call of another thread (for example the init of a filch_spawn)
 *                           has not returned, or another stop is under way (then at once): the scheduler is still
 *                           alive
 *          FILCH_ESTATE     called from inside a step, a work function or a spawn (the init, for example) of this
 *                           scheduler: the stop would wait for its own thread. Also if that step is ticking, stopping,
 *                           simulating or replaying another scheduler, and the call is made inside that other scheduler
 *          FILCH_EFORKED    called in a fork of the program that created the scheduler: see filch_sched_create
 */
FILCH_API filch_err filch_sched_stop(filch_sched *sched, uint64_t deadline_ns, filch_report *report);

enum {
    FILCH_STOP_CANCEL_FIRST = 1, /* a cancel is delivered before the messages in the mailbox */
    FILCH_STOP_KEEP = 2,         /* the handle stays valid, as with filch_sched_close */
    FILCH_STOP_ALL = 3
};

typedef struct filch_stop_options {
    size_t   size;        /* sizeof(filch_stop_options); a shorter, older struct works too */
    uint64_t deadline_ns; /* time from now; 0: force at once; FILCH_FOREVER: no deadline */
    uint32_t flags;       /* FILCH_STOP_* */
    uint32_t spare;       /* must be 0 */
    /* How long the cancel of a process that waits (filch_wait) stays behind the messages in its mailbox. After this
     * time the cancel is delivered before the messages. 0: half of `deadline_ns`, at most 1 s; FILCH_FOREVER: until the
     * deadline. */
    uint64_t patience_ns;
} filch_stop_options;
#define FILCH_STOP_OPTIONS_INIT FILCH_SIZED_INIT(filch_stop_options)

/* As filch_sched_stop, with options. A second stop after FILCH_EBUSY continues from the phase that the first stop had
 * reached.
 *
 * Thread:  as filch_sched_stop.                                 Blocks:  as filch_sched_stop.
 * Owns:    lends `options`; otherwise as filch_sched_stop, with FILCH_STOP_KEEP as filch_sched_close.
 * Errors:  FILCH_EINVAL  also if `options` is NULL, its `size` is not set, it has an unknown flag, its `spare` is
 *                        not 0, or a field that this version does not know is not 0.
 *          All other errors are those of filch_sched_stop.
 */
FILCH_API filch_err filch_sched_stop_with(filch_sched *sched, const filch_stop_options *options, filch_report *report);

/* As filch_sched_stop, but the handle itself stays valid, for programs in which other threads may still use the handle
 * or a receiver. Sends, spawns, completions, ticks and calls that make relations return FILCH_ECLOSED from then on;
 * calls that look up a process return FILCH_EDEAD; filch_sched_stats still reads the counters. A later filch_sched_stop
 * frees the handle.
 *
 * Thread:  as filch_sched_stop.                                 Blocks:  as filch_sched_stop.
 * Owns:    lends `sched`; gives what *report holds.
 * Errors:  as filch_sched_stop.
 */
FILCH_API filch_err filch_sched_close(filch_sched *sched, uint64_t deadline_ns, filch_report *report);

/* Returns 1 if a stop has begun: for steps and handlers that would otherwise start long work.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  0: NULL, or no stop has begun; otherwise 1.
 */
FILCH_API int filch_sched_stopping(const filch_sched *sched);

/* Frees the memory of a report and empties it. NULL is allowed.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    frees the memory that *report points to, not the struct itself.
 * Errors:  none.
 */
FILCH_API void filch_report_free(filch_report *report);

/* ---- hosts -------------------------------------------------------------------------------------------------- */

/* Several schedulers in one program may form a *node* and are then its *hosts*. Each has its own workers, limits
 * (max_processes, memory_max) and commands (registry). filch_pid.node is the host of a process; sends, terminate,
 * cancel, monitors, links and names use it to find processes of other hosts, if the node's policy allows the
 * operation. Without a policy, every operation between hosts is denied. Inside a host everything is allowed, without
 * asking the policy. A call that the policy does not allow returns FILCH_EDENIED.
 *
 * The policy does not apply to a call that is made with the filch_sched of the other host: such a call counts as a call
 * by a foreign thread of that host.
 *
 * filch_access describes an operation on a process of another host: */
typedef struct filch_access {
    uint32_t  command; /* FILCH_CMD_SEND, _TERMINATE, _CANCEL, _MONITOR, _LINK, _UNLINK, _REGISTER, _SPAWN ... */
    filch_pid who; /* the process that does the operation; in a handler, the process that yielded the command; {0, 0}: a
                      foreign thread */
    filch_sched *from, *to; /* the host on which the call was made, and the host of the target */
    filch_pid    target;    /* {0, 0} for a spawn */
} filch_access;

/* Returns 0 to deny the operation, any other value to allow it. Must not block, nor call the schedulers. */
typedef int (*filch_policy_fn)(void *user, const filch_access *access);

typedef struct filch_node_options {
    size_t          size;  /* sizeof(filch_node_options); a shorter, older struct works too */
    filch_alloc_fn  alloc; /* allocator of the node, for relations and names; NULL: malloc and free */
    void           *alloc_user;
    filch_policy_fn policy; /* NULL: every operation between hosts is denied */
    void           *policy_user;
} filch_node_options;
#define FILCH_NODE_OPTIONS_INIT FILCH_SIZED_INIT(filch_node_options)

/* Creates a node without hosts. `options` NULL means all defaults.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends `options`; gives *out; return it with filch_node_destroy.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ESYS
 */
FILCH_API FILCH_MUST_USE filch_err filch_node_create(filch_node **out, const filch_node_options *options);

/* Starts a scheduler as a host of `node`. Its option `route` is called for pids that belong to no host.
 *
 * Thread:  any.                                                 Blocks:  until its workers have started.
 * Owns:    as filch_sched_create.
 * Errors:  as filch_sched_create; FILCH_EEXISTS  another host has or had the same option `node`
 *          FILCH_ELIMIT  the node has had 256 hosts
 */
FILCH_API FILCH_MUST_USE filch_err filch_node_add(filch_node *node, const filch_options *options, filch_sched **out);

/* Releases the node. Its hosts keep running until they are stopped. NULL is allowed.
 *
 * Thread:  any, once.                                           Blocks:  never.
 * Owns:    takes the node.
 * Errors:  none.
 */
FILCH_API void filch_node_destroy(filch_node *node);

/* As filch_spawn, but on the host whose pids have this `node`. Relations are with the process that calls this function,
 * whichever host it is on. The options' name is registered on the host of the new process.
 * If the new process is on another host than `sched`, two things differ. The policy function of the node
 * (filch_node_options.policy) is called once, for FILCH_CMD_SPAWN; it is not called again for the name and the
 * relations in the options. And FILCH_SPAWN_SUPERVISED has no effect: a stop of the host of the new process cancels
 * that process.
 *
 * Thread:  any, also inside steps.                              Blocks:  never, unless init does.
 * Owns:    as filch_spawn.
 * Errors:  as filch_spawn; FILCH_EFOREIGN  no such host   FILCH_EDEAD  that host is gone
 *          FILCH_EDENIED  the policy refuses              FILCH_ESTATE  from a process with a black box
 */
FILCH_API FILCH_MUST_USE filch_err filch_spawn_on(filch_sched *sched, uint64_t node, const filch_type *type,
                                                  const filch_spawn_options *options, filch_pid *pid);

/* ---- threads of the host program ---------------------------------------------------------------------------- */

/* Functions by which a thread that is not a worker waits for processes. While the thread waits, a process of the
 * scheduler (type "filch.call") acts for it: that process counts against `max_processes` and in filch_stats, and
 * ends with the wait. filch_spawn_wait needs no such process.
 *
 * `deadline_ns` counts from the call. FILCH_FOREVER: no deadline. At the deadline the call returns FILCH_EDEADLINE
 * whatever the workers do; a reply that arrives later is dropped, and its sender gets FILCH_EDEAD. One exception: if
 * the function `ask` of filch_call_with is running at the deadline, the call returns when `ask` has returned.
 *
 * Memory may run out after the request was sent: after FILCH_ENOMEM, as after FILCH_EDEADLINE, the request may still be
 * carried out.
 *
 * A wait never deadlocks the runtime: on a worker thread of any scheduler (in a step, init, close, handler or hook),
 * for a scheduler without workers and in a simulation each of these functions returns FILCH_ESTATE at once. In a work
 * function (filch_yield_work) these functions are allowed; while they wait, they occupy a thread of the pool.
 *
 * When the scheduler stops, each wait ends with FILCH_ECLOSED (not with FILCH_EDEAD, even if the stop has ended the
 * process), unless the reply, the mailbox space or the end of the process that the call waits for comes first.
 * filch_spawn_wait returns FILCH_OK when the process that it started has ended. A thread that waits does not use the
 * scheduler, so filch_sched_stop may be called while other threads wait.
 *
 * See docs/design/host-threads.md and examples/hostcall.c. */

/* Sends `data` to the process `to` and waits for its reply. The receiver gets an ordinary message; its `from` is the
 * pid of a process that acts for this thread. The receiver replies by filch_send(sched, event->from, ...), at once or
 * later. The first message to the pid in `from` is the reply, whichever process sends it, so a receiver may pass this
 * pid on to another process. If the mailbox is full and its policy is FILCH_OVERFLOW_WAIT, the call waits for space.
 *
 * Thread:  any but a worker.                                    Blocks:  until the reply, the deadline or stop.
 * Owns:    copies or shares `data`; a filch_move is refused. Gives *reply, if not NULL: return it with filch_drop.
 * Errors:  FILCH_EDEADLINE  no reply in time; with a deadline of 0 the request may not have been sent
 *          FILCH_ECLOSED    the scheduler is stopping, or has stopped during the call
 *          FILCH_EDEAD      no such process, or it has ended without a reply
 *          FILCH_ESTATE     not allowed on this thread, for example on a worker: see the start of this section
 *          FILCH_EINVAL     also: a filch_move   FILCH_ENOMEM   FILCH_ELIMIT  option `max_processes` is reached
 *          FILCH_ECANCELLED, FILCH_EKILLED  the process that acts for this thread was cancelled or terminated
 *          and as filch_send
 */
FILCH_API FILCH_MUST_USE filch_err filch_call(filch_sched *sched, filch_pid to, filch_data data, uint64_t deadline_ns,
                                              filch_data *reply);

/* A function that sends a request, for filch_call_with. */
typedef filch_err (*filch_ask_fn)(filch_sched *sched, filch_pid to, void *arg);

/* As filch_call, but `ask(sched, to, arg)` sends the request: a message to `to`, or to another process that will reply,
 * by any function of this header that may be called inside a step. If `ask` returns an error, so does the call. For
 * requests that only a function can send: filch_child_start_wait calls filch_child_start in this way.
 *
 * Thread:  any but a worker; `ask` runs on a worker, in a step. Blocks:  as filch_call, and until `ask` has returned.
 * Owns:    lends `arg` until the call returns: `ask` is called at most once, and never after the call has returned.
 *          Gives *reply, as filch_call does.
 * Errors:  as filch_call, and what `ask` returns
 */
FILCH_API FILCH_MUST_USE filch_err filch_call_with(filch_sched *sched, filch_pid to, filch_ask_fn ask, void *arg,
                                                   uint64_t deadline_ns, filch_data *reply);

/* filch_child_start, _stop, _list and _await for a thread that is not a worker: these functions wait for the
 * supervisor's reply and return it. *pid is set to the pid of the child, *list to an array of filch_child_info
 * (filch_raw, filch_size). `pid` and `list` may be NULL. `deadline_ns` counts from the call. After FILCH_EDEADLINE or
 * FILCH_ENOMEM the request may still be carried out.
 *
 * Thread:  any but a worker.                                    Blocks:  until the reply, the deadline or stop.
 * Owns:    as filch_child_start, but `release` is called exactly once, also if start returns an error, unless `sched`
 *          or `child` is NULL. If no request was sent, `release` is called on this thread. Gives *list: return it with
 *          filch_drop.
 * Errors:  the supervisor's reply, see filch_child_start; FILCH_EINVAL also if `supervisor` is a process that is no
 *          supervisor and has replied with a message of its own; and as filch_call
 */
FILCH_API FILCH_MUST_USE filch_err filch_child_start_wait(filch_sched *sched, filch_pid supervisor,
                                                          const filch_child *child, uint64_t deadline_ns,
                                                          filch_pid *pid);
FILCH_API FILCH_MUST_USE filch_err filch_child_stop_wait(filch_sched *sched, filch_pid supervisor, const char *id,
                                                         uint64_t deadline_ns);
FILCH_API FILCH_MUST_USE filch_err filch_child_list_wait(filch_sched *sched, filch_pid supervisor, uint64_t deadline_ns,
                                                         filch_data *list);
FILCH_API FILCH_MUST_USE filch_err filch_child_await_wait(filch_sched *sched, filch_pid supervisor,
                                                          uint64_t deadline_ns);

/* Sends as filch_send does, and waits for space in the mailbox if the receiver's policy is FILCH_OVERFLOW_WAIT, for
 * `deadline_ns` at most. With a `deadline_ns` of 0 the call does not wait.
 *
 * Thread:  any but a worker.                                    Blocks:  until there is space, the deadline or stop.
 * Owns:    copies or shares `data`; a filch_move is refused.
 * Errors:  FILCH_EDEADLINE  no space in time. If the deadline came during the send, the message may still be delivered
 *          FILCH_EFULL      no space, and the policy is not FILCH_OVERFLOW_WAIT or the deadline is 0
 *          FILCH_ECLOSED   FILCH_ESTATE   FILCH_EINVAL  also: a filch_move   FILCH_ENOMEM   FILCH_ELIMIT
 *          FILCH_ECANCELLED   FILCH_EKILLED   and as filch_send
 */
FILCH_API FILCH_MUST_USE filch_err filch_send_wait(filch_sched *sched, filch_pid to, filch_data data,
                                                   uint64_t deadline_ns);

/* Waits until the process `pid` has ended, for `deadline_ns` at most. Returns FILCH_OK if it has ended. Then *ended is
 * FILCH_OK and *result the result of filch_done; or *ended says why the process failed, and *result is the detail of
 * filch_fail. `ended` and `result` may be NULL.
 *
 * Thread:  any but a worker.                                    Blocks:  until it ends, the deadline or stop.
 * Owns:    gives *result: return it with filch_drop.
 * Errors:  FILCH_EDEAD      the process had ended before the call: its result is lost (filch_spawn_wait always gets it)
 *          FILCH_EDEADLINE  the process still lives   FILCH_EFOREIGN   FILCH_EDENIED
 *          FILCH_ECLOSED   FILCH_ESTATE   FILCH_EINVAL   FILCH_ENOMEM   FILCH_ELIMIT   FILCH_ECANCELLED   FILCH_EKILLED
 */
FILCH_API FILCH_MUST_USE filch_err filch_sched_wait(filch_sched *sched, filch_pid pid, uint64_t deadline_ns,
                                                    filch_err *ended, filch_data *result);

/* Starts a process as filch_spawn does, and waits until it has ended. *pid, if not NULL, is set as soon as the process
 * exists, also if the deadline passes. After the deadline the process goes on. If `options` has an on_exit, it is
 * called before filch_spawn_wait returns. A stop of the scheduler ends the process and thereby the wait: the call
 * returns FILCH_OK, and *ended says how the process ended.
 *
 * Thread:  any but a worker.                                    Blocks:  until it ends or the deadline; and as init
 *          does.
 * Owns:    lends `options`; gives *result: return it with filch_drop.
 * Errors:  FILCH_EDEADLINE  the process still lives   FILCH_ESTATE   and as filch_spawn
 */
FILCH_API FILCH_MUST_USE filch_err filch_spawn_wait(filch_sched *sched, const filch_type *type,
                                                    const filch_spawn_options *options, uint64_t deadline_ns,
                                                    filch_pid *pid, filch_err *ended, filch_data *result);

/* ---- your own loop ------------------------------------------------------------------------------------------ */

/* Runs ready processes and due timers on this thread: up to `steps` steps (0: until there is nothing to do right now),
 * at most 65536 steps in one call. Stores the number of steps in *ran, if not NULL. For schedulers with workers =
 * FILCH_NO_WORKERS. A step of another scheduler may call filch_tick, too; during the tick its thread counts as a
 * foreign thread of that other scheduler, but may neither tick nor stop that other scheduler.
 *
 * An exception of C++ that leaves a step passes through filch_tick, or through the stop of a scheduler without workers.
 * The process whose step threw is ended with FILCH_EKILLED by the next tick or stop, and closed; the events of that
 * step are lost. An init, a handler, a close or an on_exit must not throw: the rest of that operation would be skipped
 * (after an exception in an init no stop would succeed). On a worker's thread an exception ends the program. A library
 * that was built with a compiler without an unwinder (the configuration says FILCH_UNWINDER) does not handle
 * exceptions: with such a library an exception must not leave a step.
 *
 * Thread:  one at a time, not inside a step of `sched`.         Blocks:  never, unless a step does.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL   FILCH_EBUSY  another thread ticks   FILCH_ESTATE  `sched` has workers, or inside a step,
 *          handler, close or hook of `sched`   FILCH_ECLOSED
 */
FILCH_API FILCH_MUST_USE filch_err filch_tick(filch_sched *sched, uint32_t steps, uint32_t *ran);

/* Returns a file descriptor that becomes readable when filch_tick has something to do, including a timer that is
 * due: wait for it with poll or a similar call, without a timeout. filch_tick clears it; do not read it yourself.
 * For schedulers with workers = FILCH_NO_WORKERS.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends the descriptor until filch_sched_stop.
 * Errors:  -1: NULL, or the scheduler has workers.
 */
FILCH_API int filch_wake_fd(filch_sched *sched);

/* Returns how long poll may sleep: 0 if a process is ready, the nanoseconds until the next timer, or FILCH_FOREVER.
 * After a tick that found several timers due, the next timers may be delayed until 250 us have passed, so that your
 * program need not wake for each timer.
 *
 * Thread:  the thread that ticks.                                  Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_FOREVER: NULL, closed, or the scheduler has workers.
 */
FILCH_API uint64_t filch_next_timeout(filch_sched *sched);

/* ---- I/O ---------------------------------------------------------------------------------------------------- */

/* Sockets, files, programs and signals, as yields. The worker that runs the process makes the system call at once; if
 * the call would block, the yield waits until the descriptor is ready, without occupying a thread. The worker that
 * finds the descriptor ready makes the system call and steps the process next.
 *
 * Four kinds of calls may block, so they run on threads of the work pool: opening files and commands on paths,
 * operations on open files, lookups of names, and starts of programs. Each kind has its own limit and queue, so calls
 * that never return (a FIFO without a writer, a dead name server) hold up no other kind. Of each kind 4 calls run at
 * once; a call that has run for 50 ms no longer counts among these 4, so up to 64 calls of a kind may run. Further
 * calls wait in a queue without a limit; while 64 calls of a kind do not return, no further call of that kind begins.
 *
 * A *stream* names an open socket, file, program or other descriptor. It belongs to the process that opened it and is
 * closed when that process ends; filch_stream_give passes it to another process. A command with the id of a stream that
 * is closed, was given away, or belongs to another process fails with FILCH_ESTREAM, even if a later stream uses the
 * memory of that stream. One read and one write may be outstanding per stream; a second one fails with FILCH_EBUSY.
 *
 * A failure is reported as the error of the event. If the system gave an error number (errno), it is the data of the
 * event (filch_as_int).
 *   FILCH_EEND       the peer writes no more. data: the last bytes, if they are fewer than the read asked for
 *   FILCH_ERESET     the peer is gone; bytes that were written may be lost
 *   FILCH_EDEADLINE  timeout_ns has passed, and one last attempt after that time has not completed the operation. So a
 *                    read succeeds if enough bytes arrived in time, even if the runtime checks late. If some bytes
 *                    arrived, but too few (filch_yield_read_exactly, _until), they stay in the stream of the socket or
 *                    pipe for the next read. A write may have written a part of its bytes: close the stream. An
 *                    operation on a file runs on a thread of the work pool and is not interrupted: until it returns,
 *                    other commands on the file fail with FILCH_EBUSY; the bytes that it reads are dropped, and the
 *                    position of the file is not known afterwards; a file that it opens is closed
 *   FILCH_ECANCELLED by filch_yield_io_cancel or filch_yield_tag_cancel, or by closing a stream that is no file. A stop
 *                    alone cancels no operation. A write to a file is carried out even if its process ends
 *   FILCH_ESTREAM  FILCH_EBUSY  FILCH_EREFUSED  FILCH_EINUSE  FILCH_ENOHOST  FILCH_EFILES  FILCH_ENOFILE  FILCH_EACCESS
 *   FILCH_EINVAL     not an address, or not possible for this kind of stream: reading from a listener, for example
 *   FILCH_ENOSPACE   the device or a quota is full: a part may have been written       FILCH_EIO  the device failed
 *   FILCH_ESYS       any other error of the system
 * Timeouts: FILCH_FOREVER waits without limit, 0 takes the bytes that are available and does not wait.
 *
 * A peer cannot occupy a worker: an operation moves at most 256 KiB at a time, even if the system had more, and
 * continues after all other ready descriptors and ready processes; timers are checked before it continues.
 *
 * A write to a peer that has closed raises no signal (no SIGPIPE).
 *
 * In a simulation (filch_sim_run) real I/O is refused: it fails with FILCH_ESTATE, and the run ends with
 * FILCH_SIM_REFUSED. To simulate I/O, register handlers of your own for the I/O commands (filch_registry_remove, _add);
 * a handler decodes its command with filch_io_read. In a library built without I/O (FILCH_IO=OFF), the I/O yields
 * complete with FILCH_ECOMMAND. filch_stream_* are calls, not yields: a black box does not record them, and in a replay
 * they return FILCH_ESTREAM or FILCH_EINVAL. */
typedef struct filch_stream {
    uint64_t id; /* 0: none */
} filch_stream;

/* filch_of_stream makes a payload from a stream, filch_as_stream reads it back; {0} if the payload is no stream.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing: sending the number does not pass the stream on, see filch_stream_give.
 * Errors:  none.
 */
FILCH_INLINE filch_data   filch_of_stream(filch_stream stream);
FILCH_INLINE filch_stream filch_as_stream(const filch_data *data);

enum {
    FILCH_SOCKET_SHARED_PORT = 1, /* several listeners on one port (SO_REUSEPORT) */
    FILCH_SOCKET_GATHER = 2,      /* let the system wait for more to send (Nagle); by default it sends at once */
    FILCH_SOCKET_KEEPALIVE = 4,
    FILCH_SOCKET_BROADCAST = 8
};

typedef struct filch_socket_options {
    size_t   size;       /* sizeof(filch_socket_options); a shorter, older struct works too */
    uint64_t timeout_ns; /* timeout of a connect; 0: as long as the system waits */
    uint32_t backlog;    /* for a listener: connections that may wait to be accepted; 0: 1024 */
    uint32_t flags;      /* FILCH_SOCKET_*; accepted connections get the flags of their listener */
} filch_socket_options;
#define FILCH_SOCKET_OPTIONS_INIT FILCH_SIZED_INIT(filch_socket_options)

/* Addresses: "127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80" (the interface of a link-local address, by name or
 * number), "*:80" (every IPv4 address of this machine), "[::]:80", "unix:/path" (up to 108 bytes of path),
 * "unix:@name" (Linux, no file). Port 0 lets the system choose: see filch_stream_address. Host names are resolved by
 * filch_yield_resolve.
 * Connect, listen, datagram: complete with the stream (filch_as_stream). A unix path is not removed on close.
 * Accept: completes with the stream of the next connection. If no descriptor is left it completes with FILCH_EFILES;
 * the next accept then waits for 10 ms, then 20 ms and so on up to 1 s, so that a loop of accepts does not spin.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies `address` and `options` (NULL: defaults).
 * Errors:  FILCH_EINVAL  `address` is NULL or very long, unknown options (not an address: error of the completion)
 *          FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_connect(filch_out *out, uint64_t tag, const char *address,
                                                       const filch_socket_options *options);
FILCH_API FILCH_MUST_USE filch_err filch_yield_listen(filch_out *out, uint64_t tag, const char *address,
                                                      const filch_socket_options *options);
FILCH_API FILCH_MUST_USE filch_err filch_yield_accept(filch_out *out, uint64_t tag, filch_stream listener,
                                                      uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_datagram(filch_out *out, uint64_t tag, const char *address,
                                                        const filch_socket_options *options);

/* Send to: sends `data` as one datagram to `address`; completes with its size.
 * Receive from: receives one datagram from any address; completes with its bytes, at most `most` of them (0: 65536). If
 * the datagram was longer, the error is FILCH_ETOOBIG, data has its first bytes, and its other bytes are lost. Until
 * the next datagram, filch_stream_address with FILCH_ADDRESS_SENDER returns the sender of this one. A received payload
 * that is kept (filch_keep) uses at most twice its size of memory.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies `address` and the bytes of `data`, once.
 * Errors:  FILCH_EINVAL  also: neither bytes nor a text   FILCH_ENOMEM   FILCH_ETOOBIG
 *          FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_send_to(filch_out *out, uint64_t tag, filch_stream stream,
                                                       const char *address, filch_data data, uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_receive_from(filch_out *out, uint64_t tag, filch_stream stream,
                                                            size_t most, uint64_t timeout_ns);

/* Looks up `host` ("example.org", NULL: this machine) and `service` ("80", "http"): completes with a text of addresses
 * for filch_yield_connect, one a line, best first; or FILCH_ENOHOST, also for an unknown service or a port over 65535.
 * Runs on a thread of the work pool, because the system's resolver blocks. filch_yield_resolve_within completes with
 * FILCH_EDEADLINE after `timeout_ns`.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies both texts.
 * Errors:  FILCH_EINVAL  both NULL, or over 255 bytes   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_resolve(filch_out *out, uint64_t tag, const char *host,
                                                       const char *service);
FILCH_API FILCH_MUST_USE filch_err filch_yield_resolve_within(filch_out *out, uint64_t tag, const char *host,
                                                              const char *service, uint64_t timeout_ns);

/* Read: the bytes that are available, at most `most` (0: 65536). Exactly: `size` bytes, at least 1. Until: all bytes up
 * to and including the first `delimiter`, which has 1 to 8 bytes; if these are more than `limit` bytes, the read
 * completes with FILCH_ETOOBIG, and the bytes stay for the next read. All three complete with the bytes that were read.
 * Up to 24 bytes are stored in the event. More bytes are in the shared block in which they were received: filch_keep
 * and sending them on copy nothing. A payload that is kept keeps its whole block in memory, up to 64 KiB.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies `delimiter`.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ETOOBIG  over `payload_max`   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_read(filch_out *out, uint64_t tag, filch_stream stream, size_t most,
                                                    uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_read_exactly(filch_out *out, uint64_t tag, filch_stream stream,
                                                            size_t size, uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_read_until(filch_out *out, uint64_t tag, filch_stream stream,
                                                          const void *delimiter, size_t delimiter_size, size_t limit,
                                                          uint64_t timeout_ns);

/* Writes all of `data`: completes with its size when the system has taken the last byte, so a slow reader slows the
 * writer. A write is one system call, if the system accepts all bytes: combine small writes. An empty write
 * completes with 0.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies or shares `data`; takes a filch_move when it returns FILCH_OK. filch_share is written without a copy.
 * Errors:  FILCH_EINVAL  neither bytes nor a text   FILCH_ENOMEM   FILCH_ETOOBIG   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_write(filch_out *out, uint64_t tag, filch_stream stream, filch_data data,
                                                     uint64_t timeout_ns);

/* Shutdown: ends the writing side, so that the other side reads FILCH_EEND; reading continues.
 * Close: closes the stream; its outstanding commands are cancelled, except a command on a file, which completes later
 * with its own result. A file is closed on the work pool, and the close may return the error of an earlier write: some
 * systems report only at the close that the device was full (FILCH_ENOSPACE, FILCH_EIO). The stream is closed in any
 * case. If a file is closed while one of its commands is outstanding, or by the end of its process, the error is not
 * reported: sync it first (filch_yield_sync).
 * Io cancel: the outstanding commands of the stream complete with FILCH_ECANCELLED; io cancel completes with their
 * number. A call on a file that has begun is not interrupted: until it returns, commands on the file fail with
 * FILCH_EBUSY. The yields of a step are carried out in order: one step can cancel, write and close. Yields that have no
 * stream yet are cancelled by filch_yield_tag_cancel.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    close takes the stream.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_shutdown(filch_out *out, uint64_t tag, filch_stream stream);
FILCH_API FILCH_MUST_USE filch_err filch_yield_close(filch_out *out, uint64_t tag, filch_stream stream);
FILCH_API FILCH_MUST_USE filch_err filch_yield_io_cancel(filch_out *out, uint64_t tag, filch_stream stream);

/* Sends the stream itself to another process of this scheduler: a message from this process, with data for
 * filch_stream_take. If the stream is never taken, it is closed when the message is freed. filch_stream_take makes the
 * stream belong to this process. Bytes that were received and not read yet go with the stream. Both calls take effect
 * at once, before the yields of this step: a read that was yielded earlier in this step fails with FILCH_ESTREAM,
 * because the stream is already given away.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    give takes the stream when it returns FILCH_OK; take gives it to you, once.
 * Errors:  FILCH_EINVAL  NULL, or data is no stream   FILCH_ESTREAM  the stream is not yours, or is already taken
 *          FILCH_ENOMEM
 *          FILCH_EBUSY  a read or write is outstanding   FILCH_EFOREIGN   FILCH_ESTATE  outside of that step
 *          give also as filch_send
 */
FILCH_API FILCH_MUST_USE filch_err filch_stream_give(filch_out *out, filch_stream stream, filch_pid to);
FILCH_API FILCH_MUST_USE filch_err filch_stream_take(filch_out *out, const filch_data *data, filch_stream *stream);

/* ---- descriptors that the host program or a library owns ---- */

enum {
    FILCH_POLL_IN = 1,    /* reading would not wait: there are bytes, a connection, or an end of file */
    FILCH_POLL_OUT = 2,   /* writing would not wait */
    FILCH_POLL_ERROR = 4, /* only in the result: an error is pending; a read or write returns it */
    FILCH_POLL_HANGUP = 8 /* only in the result: the peer is gone */
};

/* Poll: waits until the descriptor `fd`, which the host program or a library owns, is ready for one of `events`
 * (FILCH_POLL_IN, FILCH_POLL_OUT or both). Completes with what the descriptor is ready for (filch_as_int), including
 * FILCH_POLL_ERROR and _HANGUP, whether requested or not. As poll(2): it reports a state, so a second poll without a
 * read in between completes synchronously; regular files are always ready. Nothing is read, and the descriptor's flags
 * are not changed.
 *   FILCH_EDESC       `fd` is not open
 *   FILCH_EDEADLINE   timeout_ns has passed and the descriptor is not ready. 0: does not wait
 *   FILCH_ECANCELLED  by filch_yield_poll_cancel or filch_yield_tag_cancel
 *   FILCH_EFILES      no descriptor is left: a poll that waits needs one
 * Any number of polls may wait for one descriptor, of one process or several, for equal or different events: each
 * completes. While a poll waits the runtime holds a duplicate of the descriptor, made after the step that yielded it.
 * If `fd` is closed while a poll waits, or its number is used again, the poll goes on with the old file, because the
 * duplicate keeps that file open. So cancel the poll before you close `fd`.
 *
 * Poll cancel: the polls of this process that wait for `fd` complete with FILCH_ECANCELLED; poll cancel completes
 * with their number. A poll that another worker is just completing completes with its result instead, and is counted
 * too.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    nothing: `fd` stays with its owner, which closes it.
 * Errors:  FILCH_EINVAL  a negative fd, no events or unknown ones   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_poll(filch_out *out, uint64_t tag, int fd, uint32_t events,
                                                    uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_poll_cancel(filch_out *out, uint64_t tag, int fd);

enum {
    FILCH_ADOPT_KEEP = 1 /* `fd` stays open and belongs to its owner: the stream has a descriptor of its own */
};

/* Makes a stream of a descriptor that is already open: a connected socket, a listener, a datagram socket, either end of
 * a pipe, a terminal, a file, standard input. Completes with the stream. A socket or listener accepts the commands of a
 * stream from filch_yield_connect or _listen; a file, or a device that cannot be polled, accepts the commands of a
 * stream from filch_yield_open; a stream of any other descriptor can be read and written. The stream takes `fd`: after
 * a completion with FILCH_OK, `fd` belongs to the stream and is closed with it. After an error `fd` is still yours.
 * With FILCH_ADOPT_KEEP `fd` stays yours in any case, as standard input should; each byte of the input is read either
 * from the stream or from `fd`, not from both.
 * Blocking: the O_NONBLOCK flag of a socket is not changed. A pipe or a terminal is opened a second time, non-blocking,
 * because all programs that have it open (for example a shell) share its O_NONBLOCK flag. If the second open fails (no
 * /proc), and for listeners, other devices and the master of a terminal, O_NONBLOCK is set on `fd`, and thereby for all
 * programs that share the open file. O_NONBLOCK stays set when the stream is closed, because other streams may have the
 * same file. With FILCH_ADOPT_KEEP, clear O_NONBLOCK yourself when the last stream of the file is closed.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    takes `fd` when it completes with FILCH_OK, without FILCH_ADOPT_KEEP.
 * Errors:  FILCH_EINVAL  a negative fd, unknown flags   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 *          as events: FILCH_EDESC  not open   FILCH_EFILES   FILCH_ENOMEM   FILCH_ESYS
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_adopt(filch_out *out, uint64_t tag, int fd, uint32_t flags);

typedef enum filch_address_of {
    FILCH_ADDRESS_LOCAL,
    FILCH_ADDRESS_PEER,
    FILCH_ADDRESS_SENDER /* address of the sender of the last received datagram */
} filch_address_of;

/* Writes an address of the stream, as text with its NUL, into text[0 .. room). The text is "" if the stream has no
 * such address. The text can be passed to filch_yield_connect, except for an abstract unix name with a NUL inside,
 * which is shown as "@".
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    fills `text`.
 * Errors:  FILCH_EINVAL   FILCH_ESTREAM   FILCH_ESYS  not a socket
 *          FILCH_ETOOBIG  `room` is too small; 128 bytes are always enough
 *          FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_stream_address(filch_out *out, filch_stream stream, filch_address_of which,
                                                        char *text, size_t room);

enum {
    FILCH_OPEN_READ = 1,
    FILCH_OPEN_WRITE = 2,
    FILCH_OPEN_CREATE = 4,  /* create the file if it does not exist; readable and writable for the owner, readable
                               for others */
    FILCH_OPEN_EMPTY = 8,   /* remove the old content */
    FILCH_OPEN_APPEND = 16, /* every write goes to the end */
    FILCH_OPEN_NEW = 32     /* with CREATE: fail with FILCH_EEXISTS if the file exists */
};

/* Open: opens a file and completes with its stream. Reads, writes and close work on it, one at a time; the end of the
 * file is FILCH_EEND. For reads and writes of a file, a timeout of 0 means no time limit. A path that blocks (a FIFO)
 * occupies a thread until the open returns. Open within: the yield completes with FILCH_EDEADLINE after `timeout_ns`,
 * and a file that is opened later is closed.
 * Seek: moves the position to `offset` from `whence` (0: the beginning, 1: the current position, 2: the end);
 * completes with the new position.
 * After a read, the position is directly behind the last byte that the read returned, also if more bytes were read
 * ahead: a write without FILCH_OPEN_APPEND begins there, and the next read continues behind the written bytes. A FIFO
 * or terminal has no position: a write leaves bytes that were read ahead for the next read.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies `path`.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_open(filch_out *out, uint64_t tag, const char *path, uint32_t flags);
FILCH_API FILCH_MUST_USE filch_err filch_yield_open_within(filch_out *out, uint64_t tag, const char *path,
                                                           uint32_t flags, uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_seek(filch_out *out, uint64_t tag, filch_stream stream, int64_t offset,
                                                    int whence);

enum {
    FILCH_SYNC_DATA = 1 /* sync the bytes and what is needed to read them, but not the time of the last change */
};

/* Sync: completes when the system has written the content of the file to the device (fsync). Also for a directory that
 * was opened with FILCH_OPEN_READ: then its entries survive a power failure. FILCH_EIO and FILCH_ENOSPACE are about
 * bytes that an earlier write seemed to have written, and are reported once. For a pipe or socket it completes with
 * FILCH_EINVAL.
 * Truncate: sets the size of the file to `size` bytes; bytes after the old end are zero. The position does not change.
 *
 * To replace a file atomically, even if the program is killed at any point: write a new file beside it, sync it,
 * close it, and rename it with FILCH_RENAME_SYNC.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL  unknown flags, over INT64_MAX bytes   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_sync(filch_out *out, uint64_t tag, filch_stream stream, uint32_t flags);
FILCH_API FILCH_MUST_USE filch_err filch_yield_truncate(filch_out *out, uint64_t tag, filch_stream stream,
                                                        uint64_t size);

enum {
    FILCH_STAT_LINK = 1,  /* information about a symbolic link itself, not about its target */
    FILCH_RENAME_NEW = 1, /* fail with FILCH_EEXISTS if `to` exists */
    FILCH_RENAME_SYNC = 2 /* also sync the directories, so that the rename survives a power failure */
};

typedef enum filch_file_kind {
    FILCH_FILE_REGULAR = 1,
    FILCH_FILE_DIRECTORY,
    FILCH_FILE_LINK, /* a symbolic link */
    FILCH_FILE_OTHER /* a device, pipe or socket */
} filch_file_kind;

typedef struct filch_file_info {
    size_t   size; /* set by the caller: sizeof(filch_file_info); a shorter, older struct works too */
    uint32_t kind; /* filch_file_kind */
    uint32_t mode; /* permissions: the low 12 bits of the system's mode */
    uint64_t byte_count;
    int64_t  modified_ns;   /* time of the last change, in ns since 1970 */
    uint64_t device, inode; /* both are equal for two paths of the same file */
} filch_file_info;
#define FILCH_FILE_INFO_INIT FILCH_SIZED_INIT(filch_file_info)

/* Files by path, on the work pool. A path is a sequence of up to 4095 bytes: any that the system accepts, also
 * newlines and bytes that are not UTF-8. A relative path begins at the working directory of the program.
 * Stat: completes with a filch_file_info, read by filch_as_file_info.
 * Rename: renames `from` to `to` atomically; an existing `to` is replaced. FILCH_RENAME_SYNC opens both directories
 * first, which must be readable: if that fails, nothing has changed. An error of the sync (FILCH_EIO) comes after the
 * rename: whether the rename survives a power failure is unknown.
 * Remove: removes the name of a file (unlink); the system frees the bytes of the file when it has no other name and is
 * not open.
 * Mkdir: makes one directory. Rmdir: removes one directory, which must be empty.
 * List: completes with the names in a directory but "." and "..", in the order of their bytes, read by filch_as_entry.
 *   FILCH_ENOFILE  FILCH_EACCESS  FILCH_EEXISTS  FILCH_EFILES  FILCH_ENOSPACE  FILCH_EIO
 *   FILCH_EDIRECTORY  remove of a directory, rmdir of a directory that is not empty, rename over a directory
 *   FILCH_EDEVICE     rename to another file system
 *   FILCH_ETOOBIG     a list of over 16 MiB, or over `payload_max`
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies the paths.
 * Errors:  FILCH_EINVAL  NULL, empty, too long; unknown flags   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_stat(filch_out *out, uint64_t tag, const char *path, uint32_t flags);
FILCH_API FILCH_MUST_USE filch_err filch_yield_rename(filch_out *out, uint64_t tag, const char *from, const char *to,
                                                      uint32_t flags);
FILCH_API FILCH_MUST_USE filch_err filch_yield_remove(filch_out *out, uint64_t tag, const char *path);
FILCH_API FILCH_MUST_USE filch_err filch_yield_mkdir(filch_out *out, uint64_t tag, const char *path);
FILCH_API FILCH_MUST_USE filch_err filch_yield_rmdir(filch_out *out, uint64_t tag, const char *path);
FILCH_API FILCH_MUST_USE filch_err filch_yield_list(filch_out *out, uint64_t tag, const char *path);

/* filch_as_file_info reads the data with which filch_yield_stat completed. filch_as_entry reads the next name from
 * the data with which filch_yield_list completed; *at is the position, 0 at first, and is advanced.
 *
 * Thread:  any that may read `data`.                            Blocks:  never.
 * Owns:    fills *info; *name is lent with `data`. `kind` may be NULL.
 * Errors:  FILCH_EINVAL  NULL, or data of another kind   FILCH_EEND  no more names; *name is NULL then
 */
FILCH_API FILCH_MUST_USE filch_err filch_as_file_info(const filch_data *data, filch_file_info *info);
FILCH_API FILCH_MUST_USE filch_err filch_as_entry(const filch_data *data, size_t *at, const char **name,
                                                  filch_file_kind *kind);

enum {
    FILCH_RUN_INPUT = 1, /* a pipe to the program's standard input; otherwise the program reads an empty input */
    FILCH_RUN_OUTPUT =
        2, /* a pipe from the program's standard output; otherwise the program writes to your standard output */
    FILCH_RUN_ERRORS = 4,     /* a pipe from the program's standard error */
    FILCH_RUN_MERGE = 8,      /* standard error goes where standard output goes */
    FILCH_RUN_SAME_GROUP = 16 /* the program stays in your process group: signals of the terminal reach it, and
                                 programs that it started outlive it */
};

typedef struct filch_run_options {
    size_t   size;       /* sizeof(filch_run_options); a shorter, older struct works too */
    uint64_t timeout_ns; /* time limit of the start; after it the yield completes with FILCH_EDEADLINE, and a program
                            that starts later is killed; 0: no limit */
    const char *const *environment; /* the whole environment: "NAME=value" texts, ended by NULL; NULL: yours */
    const char        *directory;   /* working directory; NULL: that of your program */
    uint32_t           flags;       /* FILCH_RUN_* */
    uint32_t           spare;       /* must be 0 */
} filch_run_options;
#define FILCH_RUN_OPTIONS_INIT FILCH_SIZED_INIT(filch_run_options)

/* A running program. */
typedef struct filch_program {
    filch_stream self;  /* the program itself, for filch_yield_exit and _kill; closing this stream kills the program */
    filch_stream input; /* `input`, `output` and `errors` are {0} unless requested */
    filch_stream output;
    filch_stream errors;
    int64_t      pid; /* the system's process id */
} filch_program;

/* Run: starts argv[0] (looked up in your PATH) with your environment and working directory; completes with a
 * filch_program, read by filch_as_program. In the started program no signal is blocked, only the signals that your
 * program ignores are ignored, and only the descriptors 0, 1 and 2 are open. The start runs on a thread of the work
 * pool. If the system allows no further process (RLIMIT_NPROC, pids.max), the yield completes with FILCH_EFULL and the
 * error number EAGAIN: try again later.
 * Run with: also sets the environment, the directory or a time limit for the start.
 * Exit: completes when the program has ended, with its exit status, or with -n if signal n ended it. May be yielded any
 * number of times. If your program ignores SIGCHLD, or waits for all children, the system forgets the status, and exit
 * completes with FILCH_ESYS and ECHILD. Exception: Linux 6.15 and later keep the status if the runtime had opened the
 * pidfd of the program before the program ended.
 * Kill: sends the program the signal `number`. When the Filch process that owns the program ends, or the stream `self`
 * is closed, the program is killed (SIGKILL) if it still runs, and so are the other members of the process group that
 * it leads: the programs that it has started. If your program ignores SIGCHLD, or waits for all children, and the
 * program has ended, the system may have reused the number of its process group: then the other members are not killed.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies `argv`, which ends with NULL, and what `options` (NULL: all defaults) point to.
 * Errors:  FILCH_EINVAL  no argv[0], unknown flags, an empty directory   FILCH_ENOMEM
 *          FILCH_ETOOBIG  over 16 MiB of argv or environment             FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_run(filch_out *out, uint64_t tag, const char *const *argv,
                                                   uint32_t flags);
FILCH_API FILCH_MUST_USE filch_err filch_yield_run_with(filch_out *out, uint64_t tag, const char *const *argv,
                                                        const filch_run_options *options);
FILCH_API FILCH_MUST_USE filch_err filch_yield_exit(filch_out *out, uint64_t tag, filch_stream program,
                                                    uint64_t timeout_ns);
FILCH_API FILCH_MUST_USE filch_err filch_yield_kill(filch_out *out, uint64_t tag, filch_stream program, int number);

/* Reads the data with which filch_yield_run completed.
 *
 * Thread:  any that may read `data`.                            Blocks:  never.
 * Owns:    fills *program.
 * Errors:  FILCH_EINVAL  NULL, or data of another kind; *program is empty then
 */
FILCH_API FILCH_MUST_USE filch_err filch_as_program(const filch_data *data, filch_program *program);

/* Signals as events: completes with a stream; each filch_yield_read of it completes with the number of one signal
 * that has arrived (filch_as_int). Filch does not change the signal mask of your program's threads: *your* program must
 * block these signals (pthread_sigmask) in its first thread, before it starts others. The threads that Filch starts
 * block all signals (except the signal of a Lua host: filch_lua_options.signal). A signal that some thread does not
 * block is delivered to that thread and never read from the stream.
 *
 * Thread:  only inside the step that was given `out`.           Blocks:  never.
 * Owns:    copies `numbers`.
 * Errors:  FILCH_EINVAL  none, over 64, or not signals   FILCH_ENOMEM   FILCH_ESTATE  outside of that step
 */
FILCH_API FILCH_MUST_USE filch_err filch_yield_signals(filch_out *out, uint64_t tag, const int *numbers, size_t count);

/* Arguments of an I/O command, for handlers of your own (in a simulation, for example). */
typedef struct filch_io_request {
    size_t       size; /* set by the caller: sizeof(filch_io_request) */
    filch_stream stream;
    uint64_t     timeout_ns;
    uint64_t     most;    /* read: most bytes; read exactly: number of bytes; read until: the limit in bytes */
    uint32_t     how;     /* read: 0 some, 1 exactly, 2 until. All other commands: flags */
    uint32_t     backlog; /* listen: the backlog; run: 1 if an environment was given */
    int64_t      number;  /* seek: the offset, with its whence in `how`; truncate: the size; kill: the signal; poll
                             and adopt: the descriptor; tag cancel: the tag `which` */
    uint8_t     delimiter[8];
    size_t      delimiter_size;
    const char *text; /* address, host or path; run: argv, each text followed by a NUL, `text_size` bytes in all */
    size_t      text_size;
    const char *service; /* resolve: the service; rename: the new path; run: the directory */
    const void *bytes;   /* write: the bytes; run: the environment, in the format of argv */
    size_t      byte_count;
} filch_io_request;

/* Decodes the arguments of an I/O command, for a handler of yours that has been called with `command`.
 *
 * Thread:  inside the handler.                                  Blocks:  never.
 * Owns:    fills *request; its pointers are valid as long as the command.
 * Errors:  FILCH_EINVAL  NULL, not an I/O command, or not made by a filch_yield_* function
 */
FILCH_API FILCH_MUST_USE filch_err filch_io_read(const filch_command *command, filch_io_request *request);

/* ---- counters, log, clock and failed assertions ------------------------------------------------------------- */

#define FILCH_WAIT_BUCKETS 32

/* Counters since the scheduler started. Each counter is exact, but the counters are not all read at the same moment.
 * `alive` is read up to 64 times, until no process ends during a reading: then it is exact for one moment of the call.
 * Otherwise it is wrong by at most the smallest number of processes that ended during one reading. */
typedef struct filch_stats {
    size_t   size;    /* set by the caller: sizeof(filch_stats) */
    uint32_t workers; /* threads that step processes */
    uint32_t asleep;  /* workers that are parked now */
    uint64_t alive;   /* processes whose slot is in use. A process that ends counts until its slot is free: that is a
                         moment after its exit events were sent and its pid became invalid */
    uint64_t spawned;
    uint64_t ended;
    uint64_t failed; /* processes that ended with an error */
    uint64_t steps;
    uint64_t sent;        /* messages accepted */
    uint64_t undelivered; /* messages that were refused because the receiver had ended, or not read before it ended;
                             also those of filch_close_unread */
    uint64_t refused;     /* sends that returned FILCH_EFULL because of a full mailbox. A send of a Lua process that
                             finds the mailbox full and then waits for space is counted too */
    uint64_t dropped;     /* messages dropped by a mailbox policy */
    uint64_t yields;      /* commands passed to their handler. Commands of a failed step are dropped and not counted */
    uint64_t completions;
    uint64_t late_completions;               /* second completions, and completions for ended processes: ignored. Also
                                                results of calls that filch_yield_tag_cancel has cancelled */
    uint64_t steals;                         /* successful steals */
    uint64_t stolen;                         /* processes moved by steals */
    uint64_t sleeps;                         /* times a worker parked */
    uint64_t wakes;                          /* times a worker was unparked */
    uint64_t long_steps;                     /* steps over option `long_step_ns`, each counted once */
    uint64_t timers;                         /* timers armed now */
    uint64_t queue_wait[FILCH_WAIT_BUCKETS]; /* sampled waits of ready processes in a queue: element i counts waits of
                                                2^i to 2^(i+1) ns */
    uint64_t abandoned;                      /* how many of `yields` were not completed when their process ended */
    uint64_t memory; /* bytes that are allocated through option `alloc` now, including kept payloads. Exact while no
                        thread allocates or frees */
    uint64_t memory_returned; /* bytes of `memory` in unused pages that were returned to the system; 0 with option
                                 `alloc` */
} filch_stats;
#define FILCH_STATS_INIT FILCH_SIZED_INIT(filch_stats)

/* Reads the counters, also during a stop and after filch_sched_close.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    fills *stats.
 * Errors:  FILCH_EINVAL
 */
FILCH_API FILCH_MUST_USE filch_err filch_sched_stats(filch_sched *sched, filch_stats *stats);

/* Passes a line to the hook `on_log` of the scheduler: a process can report to the host program in this way. Inside a
 * step the line carries the pid and type of the process. Without a hook nothing happens.
 *
 * Thread:  any.                                                 Blocks:  as long as the hook does.
 * Owns:    lends `text`.
 * Errors:  FILCH_EINVAL  NULL, or no such level
 */
FILCH_API filch_err filch_log(filch_sched *sched, filch_log_level level, filch_err error, const char *text);

/* Returns the scheduler's time: the monotonic clock in nanoseconds; in a simulation, virtual time that begins at 0.
 *
 * Thread:  any; in a simulation only its own thread.             Blocks:  never.
 * Owns:    nothing.
 * Errors:  returns 0 if sched is NULL.
 */
FILCH_API uint64_t filch_now(filch_sched *sched);

/* Called when an assertion of the library has failed: a bug in Filch, or memory that the program has overwritten.
 * `text` is the condition. Runs on the thread whose check failed; several threads may call it at once. Log it and
 * return: the program is stopped by a trap right after, whatever the handler does. */
typedef void (*filch_assert_fn)(const char *file, int line, const char *text);

/* Installs the handler for failed assertions (NULL: none) and returns the previous one. There is one handler for the
 * whole program, because a failed assertion cannot find out reliably in which scheduler it failed. The handler is the
 * only state that all schedulers share; it does not affect how they run. Install it once, in main.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  none.
 */
FILCH_API filch_assert_fn filch_assert_handler(filch_assert_fn fn);

/* ---- simulation --------------------------------------------------------------------------------------------- */

/* Runs *your* processes in a simulation: a seed decides which process is stepped next, which worker steals, when time
 * passes and what goes wrong, on one thread, in virtual time. A seed always gives the same run. See docs/SIMULATION.md.
 *
 * A step may also be interrupted where it calls filch_send, filch_spawn, filch_complete, filch_cancel, filch_terminate
 * or a function of the relations (filch_monitor, filch_register, filch_broadcast and so on): other workers run at that
 * point, as they would on another CPU. Between two such calls a step is never interrupted. */

/* Starts a run (spawns, sends), or checks its result. An error that it returns is a violation. */
typedef filch_err (*filch_sim_fn)(filch_sched *sched, void *user);

/* A function that is called later, as if from outside the simulated processes: see filch_sim_later. */
typedef void (*filch_sim_later_fn)(filch_sched *sched, void *arg);

typedef enum filch_sim_verdict {
    FILCH_SIM_OK,      /* no violation */
    FILCH_SIM_FAILED,  /* filch_sim_fail was called, or the scenario or check returned an error */
    FILCH_SIM_BLOCKED, /* a process waits for a yield that cannot complete any more */
    FILCH_SIM_ENDLESS, /* more than `steps_max` steps */
    FILCH_SIM_REFUSED  /* a process made a call with a result that the seed cannot repeat; `text` names the call */
} filch_sim_verdict;

/* Describes a payload of bytes for the chart of a simulated run: writes up to `text_size` printable characters to
 * `text`. Returns the number of characters, or 0 if there is no description. `bytes` are the first `size` bytes of a
 * payload of `whole` bytes. Called when the chart is drawn: pointers inside the payload may be dangling by then. */
typedef size_t (*filch_describe_fn)(void *user, const void *bytes, size_t size, size_t whole, char *text,
                                    size_t text_size);

/* Options of a simulation. A field of 0 means the default that its comment gives. Rates are per mille; the default rate
 * 0 means never. */
typedef struct filch_sim_options {
    size_t               size;         /* sizeof(filch_sim_options); a shorter, older struct works too */
    uint64_t             seed;         /* any number */
    uint32_t             workers;      /* virtual workers, at most 64; 0: 4 */
    uint32_t             chart_events; /* number of last events that are kept for the chart; 0: 200 */
    filch_sim_fn         check;        /* called when nothing is left to do, before everything is stopped; NULL: none */
    const filch_options *sched;        /* options of the scheduler, of which `workers`, `node` and `seed` are ignored;
                                          NULL: defaults. If `batch_max`, `fair_every` or `global_batch` is 0, it is
                                          drawn from the seed */
    uint64_t steps_max;                /* 0: 1 million */
    uint64_t time_max_ns;              /* virtual time at which the run ends even if work is left, as with tickers; 0:
                                          1 hour */
    uint64_t stop_ns;                  /* virtual time that processes have to end after they are cancelled; 0: 5 s */
    uint32_t blocked_ok;               /* 1: processes that wait for ever are not a violation */
    uint32_t whole_steps;              /* 1: steps are never interrupted */
    /* Rates of faults, which begin once the scenario has returned. */
    uint32_t no_memory;     /* rate of allocations of the scheduler that fail */
    uint32_t late_answer;   /* rate of completions that arrive up to `late_ns` later. Completions of sleeps may be late;
                               those of filch_yield_timer, _ticker and _timer_cancel never are */
    uint32_t double_answer; /* rate of completions that are sent twice; the second has no effect */
    uint32_t handler_error; /* rate of yields that fail: filch_yield_work with FILCH_EFULL, your commands with
                               FILCH_ESYS */
    uint32_t stall; /* rate of turns before which a worker is stalled: it runs nothing for many turns. Also, at four
                       times this rate, a wait for the next timer lasts too long, by up to `jump_ns`, so that further
                       timers are due when it ends */
    uint32_t          clock_jump; /* rate of turns before which the clock jumps ahead, by up to `jump_ns` */
    uint64_t          late_ns;    /* 0: 10 ms */
    uint64_t          jump_ns;    /* 0: 1 s */
    filch_describe_fn describe;   /* describes messages in the chart; NULL: the chart shows the size of messages */
    void             *describe_user;
    uint32_t          late_timer; /* rate of timers that are held back when they are due. Such a timer fires up to
                                     `jump_ns` after the timer that is due next, however late the next timer is due; at
                                     that time the timer may be held back again. No timer is early. Tickers are never
                                     held back */
    uint32_t spare;               /* 0 */
} filch_sim_options;
#define FILCH_SIM_OPTIONS_INIT FILCH_SIZED_INIT(filch_sim_options)

/* Result of a run. Free it with filch_sim_report_free. */
typedef struct filch_sim_report {
    size_t   size;      /* set by the caller: sizeof(filch_sim_report) */
    uint64_t seed;      /* seed of the last run; after a violation, the seed to replay */
    uint64_t runs;      /* number of runs */
    int32_t  verdict;   /* filch_sim_verdict */
    char     text[196]; /* the violation; "" if none */
    uint64_t hash;      /* hash of all that happened: equal for equal runs, whatever the compiler */
    uint64_t steps;
    uint64_t time_ns;     /* virtual time at the end */
    uint64_t forced;      /* processes that did not end when cancelled, and were ended by force */
    uint64_t interrupted; /* number of times that a step was interrupted */
    /* number of injected faults of each kind */
    uint64_t no_memory, late_answers, double_answers, handler_errors, stalls, clock_jumps;
    char    *chart;       /* the events as text: one line per event, one column per process; NULL: no memory */
    uint64_t late_timers; /* number of timers that were held back */
    void    *reserved[3]; /* private */
} filch_sim_report;
#define FILCH_SIM_REPORT_INIT FILCH_SIZED_INIT(filch_sim_report)

/* Does one run: `scenario(sched, user)`, then steps until no work is left, then options->check, then stop. `options`
 * NULL means all defaults. FILCH_OK means that the run took place; its result is in *report.
 *
 * Everything happens on this thread, work functions too. A scheduler in simulation refuses filch_tick, filch_wake_fd,
 * filch_next_timeout, filch_sched_stop, filch_sched_stop_with, filch_sched_close, the calls by which a thread waits
 * (filch_call, filch_send_wait and so on), real I/O, and every call from other threads: FILCH_ESTATE, and the run ends
 * with FILCH_SIM_REFUSED.
 *
 * Thread:  any; a run inside a run is allowed.                     Blocks:  until the run is over.
 * Owns:    lends `options`; gives what *report holds.
 * Errors:  FILCH_EINVAL  NULL scenario or report, impossible options   FILCH_ENOMEM
 */
FILCH_API FILCH_MUST_USE filch_err filch_sim_run(const filch_sim_options *options, filch_sim_fn scenario, void *user,
                                                 filch_sim_report *report);

/* Does runs with the seeds `first`, `first` + 1, ... until a run ends with a violation, at most `count` runs. *report
 * is the report of the last run. options->seed is ignored.
 *
 * Thread:  as filch_sim_run.                                    Blocks:  until the last run is over.
 * Owns:    as filch_sim_run.
 * Errors:  as filch_sim_run; also FILCH_EINVAL  count is 0
 */
FILCH_API FILCH_MUST_USE filch_err filch_sim_sweep(const filch_sim_options *options, uint64_t first, uint64_t count,
                                                   filch_sim_fn scenario, void *user, filch_sim_report *report);

/* Frees the memory of a report and empties it. NULL is allowed.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    frees the memory that *report points to, not the struct itself.
 * Errors:  none.
 */
FILCH_API void filch_sim_report_free(filch_sim_report *report);

/* Reports a violated property: the run ends as FILCH_SIM_FAILED with `text`, once the step, handler or check has
 * returned. Only the first call counts. The call has no effect in ordinary schedulers, so it may stay in the
 * program.
 *
 * Thread:  the thread of the simulation.                       Blocks:  never.
 * Owns:    copies `text`, as much as fits.
 * Errors:  FILCH_EINVAL   FILCH_ESTATE  not in a simulation
 */
FILCH_API filch_err filch_sim_fail(filch_sched *sched, const char *text);

/* Writes a line of your own into the chart. The call has no effect in ordinary schedulers.
 *
 * Thread:  the thread of the simulation.                       Blocks:  never.
 * Owns:    copies `text`, up to 63 bytes.
 * Errors:  FILCH_EINVAL   FILCH_ESTATE  not in a simulation
 */
FILCH_API filch_err filch_sim_note(filch_sched *sched, const char *text);

/* Calls `fn(sched, arg)` in `delay_ns` of virtual time or a little later, as if from outside the simulated
 * processes: for messages of other threads, and for handlers that complete later. `fn` is called exactly once, at
 * the latest when the run ends.
 *
 * Thread:  the thread of the simulation.                       Blocks:  never.
 * Owns:    lends `arg` until `fn` has been called.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_ESTATE  not in a simulation   FILCH_ECLOSED  the run is stopping
 */
FILCH_API FILCH_MUST_USE filch_err filch_sim_later(filch_sched *sched, uint64_t delay_ns, filch_sim_later_fn fn,
                                                   void *arg);

/* Returns a number below `bound`, drawn from the seed, for choices of your own.
 *
 * Thread:  the thread of the simulation.                       Blocks:  never.
 * Owns:    nothing.
 * Errors:  returns 0 if sched is NULL, bound is 0, or the scheduler is not in a simulation.
 */
FILCH_API uint32_t filch_sim_draw(filch_sched *sched, uint32_t bound);

/* Returns 1 if the scheduler runs in a simulation: for code that must not wait for the outside world in a simulation.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    nothing.
 * Errors:  0: NULL, or an ordinary scheduler; otherwise 1.
 */
FILCH_API int filch_sim_active(const filch_sched *sched);

/* The old name of filch_now. Deprecated: will be removed in 0.3.
 *
 * Thread:  as filch_now.                                        Blocks:  never.
 * Owns:    nothing.
 * Errors:  as filch_now.
 */
FILCH_API uint64_t filch_sim_now(filch_sched *sched);

/* ---- black box ---------------------------------------------------------------------------------------------- */

/* The last steps of a process can be recorded, with their events and calls: option `blackbox`, of the scheduler for all
 * processes or of filch_spawn for one. When the process fails, on_blackbox gets the recording. filch_blackbox_replay
 * passes the recorded events to one instance alone, on your thread, where a debugger can follow it. See
 * docs/BLACKBOX.md.
 *
 * A recording has at most `blackbox` steps and 1 MiB; of a payload it has the first 4096 bytes, of `args` 65536. */
#define FILCH_BLACKBOX_STEPS 256      /* enough for most uses: 50 KB if each step gets and sends one small message */
#define FILCH_BLACKBOX_MAX 1048576    /* largest value of option `blackbox` */
#define FILCH_BLACKBOX_OFF UINT32_MAX /* for filch_spawn_options: do not record this process */

/* Returns the pointer that replaces a recorded pointer; `was` is the recorded address. `step` is 0 for the args and
 * inherited values. */
typedef void *(*filch_blackbox_pointer_fn)(void *user, uint64_t step, void *was);

/* Result of a replay. */
typedef struct filch_blackbox_report {
    size_t size; /* set by the caller: sizeof(filch_blackbox_report) */
    /* in: replaces recorded pointers, which are not valid in another run. NULL: the replay ends before the first
     * step that would get a pointer, with FILCH_OK and a text; pointers among the inherited values read as NULL */
    filch_blackbox_pointer_fn pointer;
    void                     *pointer_user;
    filch_pid                 pid;      /* pid of the recorded process; filch_ctx_self returns it in the replay */
    filch_err                 recorded; /* error with which the recorded process ended */
    filch_err                 error;    /* error with which the replay ended; FILCH_OK if no step failed */
    uint64_t                  steps;    /* number of recorded steps */
    uint64_t                  fed;      /* number of steps replayed */
    uint64_t                  missing;  /* number of earlier steps that were not kept: see `partial` */
    uint64_t differs;   /* the first step (from 1) that differs from the recording, described in `text`; 0: none */
    uint64_t cut;       /* number of payloads that were recorded only in part */
    uint64_t pointers;  /* number of pointers in the recording */
    uint32_t again;     /* 1: the process failed again, with the recorded error */
    uint32_t partial;   /* 1: the recording lacks the first `missing` steps, and the instance starts from its initial
                           state. The replay is exact for a type with steps that do not depend on earlier steps;
                           otherwise expect differences */
    uint32_t lost;      /* 1: the recording is partial because memory ran out */
    char     text[260]; /* the first difference, or why there was no replay; "" if there is nothing to say */
} filch_blackbox_report;
#define FILCH_BLACKBOX_REPORT_INIT FILCH_SIZED_INIT(filch_blackbox_report)

/* Makes one instance of `type`, with the recorded method, args and values, and calls its step with the recorded events,
 * one step after the other. Its sends, spawns, cancels and yields are compared with the recording and return the
 * recorded results, but are not carried out. FILCH_OK: the replay ran; its outcome is in *report.
 *
 * After a filch_upgrade the recording is of the new type. If the step that called filch_upgrade is no longer in the
 * recording, the instance is made with method NULL and without args, because the method and args of an upgrade are not
 * recorded.
 *
 * A step that reads anything but its state, its events and its context (the clock, a global, filch_inspect) may differ.
 * A send in init returns FILCH_OK, and a spawn in init returns the pid {0, 0}.
 *
 * Thread:  any.                                                 Blocks:  until the last step has returned.
 * Owns:    lends `bytes`; fills *report.
 * Errors:  FILCH_EINVAL  NULL, not a recording, damaged, cut short, of another format, type name or state size:
 *                        report->text says which   FILCH_ENOMEM   FILCH_ESYS
 */
FILCH_API FILCH_MUST_USE filch_err filch_blackbox_replay(const void *bytes, size_t size, const filch_type *type,
                                                         filch_blackbox_report *report);

/* ---- Filch's own from here on ------------------------------------------------------------------------------- */

/* Called by a failed assertion of the library: see filch_assert_handler. */
#if defined(__GNUC__)
FILCH_API void filch_assert_failed(const char *file, int line, const char *text) __attribute__((noreturn, cold));
#else
FILCH_API void filch_assert_failed(const char *file, int line, const char *text);
#endif

#ifndef FILCH_NO_INLINE

/* The bodies of the FILCH_INLINE functions, in the common subset of C99 and C++. docs/design/mailbox-fast-paths.md
 * explains why these functions are inline. */

#if defined(__GNUC__) && defined(__x86_64__)
typedef uint64_t filch_half __attribute__((vector_size(16)));
#endif

/* Values of filch_data.form that the inline functions know. A form other than FILCH_FORM_VALUE and FILCH_FORM_INLINE
 * has the address of its bytes in the first word of `as`, and the number of its bytes in the second word. */
#define FILCH_FORM_VALUE 0  /* no bytes */
#define FILCH_FORM_INLINE 1 /* the bytes are in as.bytes, and `small` is their number */
#define FILCH_FORM_LENT 2   /* made by filch_str or filch_bytes */

/* Makes a payload with a value of up to two words. Where possible the payload is written by two stores of 16 bytes. The
 * caller usually passes it on as an argument, which copies it by loads of 16 bytes; a processor cannot forward several
 * smaller stores to one such load. */
FILCH_INLINE filch_data filch_value(filch_kind kind, uint64_t first, uint64_t second)
{
#if defined(__GNUC__) && defined(__x86_64__)
    filch_data data;
    filch_half halves[2] = { { (uint64_t)kind, first }, { second, 0 } };
    memcpy(&data, halves, sizeof data);
    return data;
#else
    filch_data data = { (uint8_t)kind, 0, 0, { 0, 0, 0, 0, 0 }, { 0 } };
    data.as.pid.node = first;
    data.as.pid.serial = second;
    return data;
#endif
}

/* Makes a payload of lent bytes, by two stores of 16 bytes as filch_value does. */
FILCH_INLINE filch_data filch_lent(filch_kind kind, const void *at, size_t size)
{
#if defined(__GNUC__) && defined(__x86_64__)
    filch_data data;
    filch_half halves[2] = { { (uint64_t)kind | FILCH_FORM_LENT << 8, (uint64_t)(uintptr_t)at }, { size, 0 } };
    memcpy(&data, halves, sizeof data);
    return data;
#else
    filch_data data = { (uint8_t)kind, FILCH_FORM_LENT, 0, { 0, 0, 0, 0, 0 }, { 0 } };
    data.as.ref.at = at;
    data.as.ref.size = size;
    data.as.ref.block = NULL;
    return data;
#endif
}

/* Returns the kind of a payload in bits 0 to 7 and its form, which is 0 for a value, in bits 8 to 15. On little-endian
 * machines these are the low bits of the first word of the payload. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FILCH_SHAPE(data, words) ((words)[0] & 0xffff)
#else
#define FILCH_SHAPE(data, words) ((uint64_t)((data).form << 8 | (data).kind))
#endif

/* The functions with names in _value are called for values by filch_send, filch_done, filch_yield and filch_complete.
 * filch_send calls filch_send_lent for lent bytes. The value, or the address and size of the bytes, is passed in
 * registers, because a payload that is passed by value is written to the stack and read back, which takes longer than
 * the rest of the call (docs/design/mailbox-fast-paths.md). */
FILCH_API FILCH_MUST_USE filch_err filch_send_value(filch_sched *sched, filch_pid to, uint64_t kind, uint64_t first,
                                                    uint64_t second);
FILCH_API FILCH_MUST_USE filch_err filch_send_lent(filch_sched *sched, filch_pid to, uint64_t kind, const void *bytes,
                                                   size_t size);
FILCH_API FILCH_MUST_USE filch_err filch_send_any(filch_sched *sched, filch_pid to, filch_data data);

FILCH_API filch_err filch_done_value(filch_out *out, uint64_t kind, uint64_t first, uint64_t second);
FILCH_API filch_err filch_done_any(filch_out *out, filch_data result);

FILCH_API FILCH_MUST_USE filch_err filch_yield_value(filch_out *out, uint32_t command, uint64_t tag, uint64_t kind,
                                                     uint64_t first, uint64_t second);
FILCH_API FILCH_MUST_USE filch_err filch_yield_any(filch_out *out, uint32_t command, uint64_t tag, filch_data data);

FILCH_API FILCH_MUST_USE filch_err filch_complete_value(filch_sched *sched, uint64_t key, uint64_t kind, uint64_t first,
                                                        uint64_t second, filch_err error);
FILCH_API FILCH_MUST_USE filch_err filch_complete_any(filch_receiver receiver, filch_data data, filch_err error);

FILCH_INLINE filch_err filch_done(filch_out *out, filch_data result)
{
    uint64_t words[4];
    memcpy(words, &result, sizeof words);
    words[0] = FILCH_SHAPE(result, words);
    if (words[0] > FILCH_KIND_PTR) return filch_done_any(out, result);
    return filch_done_value(out, words[0], words[1], words[2]);
}

FILCH_INLINE filch_err filch_send(filch_sched *sched, filch_pid to, filch_data data)
{
    uint64_t words[4];
    memcpy(words, &data, sizeof words);
    words[0] = FILCH_SHAPE(data, words);
    if (words[0] <= FILCH_KIND_PTR) return filch_send_value(sched, to, words[0], words[1], words[2]);
    if (words[0] >> 8 != FILCH_FORM_LENT) return filch_send_any(sched, to, data);
#if SIZE_MAX == UINT64_MAX
    /* Reads `data` as words. If this function read the fields of `data`, the compiler would keep a second copy of
     * `data` in memory, also for values. */
    return filch_send_lent(sched, to, words[0] & 0xff, (const void *)(uintptr_t)words[1], (size_t)words[2]);
#else
    return filch_send_lent(sched, to, words[0] & 0xff, data.as.ref.at, data.as.ref.size);
#endif
}

FILCH_INLINE filch_err filch_yield(filch_out *out, uint32_t command, uint64_t tag, filch_data data)
{
    uint64_t words[4];
    memcpy(words, &data, sizeof words);
    words[0] = FILCH_SHAPE(data, words);
    if (words[0] > FILCH_KIND_PTR) return filch_yield_any(out, command, tag, data);
    return filch_yield_value(out, command, tag, words[0], words[1], words[2]);
}

FILCH_INLINE filch_err filch_complete(filch_receiver receiver, uint64_t tag, filch_data data, filch_err error)
{
    uint64_t words[4];
    memcpy(words, &data, sizeof words);
    words[0] = FILCH_SHAPE(data, words);
    if (tag != receiver.tag) return filch_invalid("tag is not that of the receiver");
    if (words[0] > FILCH_KIND_PTR) return filch_complete_any(receiver, data, error);
    return filch_complete_value(receiver.sched, receiver.key, words[0], words[1], words[2], error);
}

/* These functions cast the pointer: a filch_ctx begins with a pointer to its scheduler, and a filch_out begins with a
 * filch_ctx. */
FILCH_INLINE filch_sched *filch_ctx_sched(const filch_ctx *ctx)
{
    return ctx != NULL ? *(filch_sched *const *)(const void *)ctx : NULL;
}

FILCH_INLINE filch_sched *filch_out_sched(const filch_out *out)
{
    return out != NULL ? *(filch_sched *const *)(const void *)out : NULL;
}

FILCH_INLINE filch_data filch_none(void)
{
    return filch_value(FILCH_KIND_NONE, 0, 0);
}

FILCH_INLINE filch_data filch_int(int64_t value)
{
    return filch_value(FILCH_KIND_INT, (uint64_t)value, 0);
}

FILCH_INLINE filch_data filch_num(double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    return filch_value(FILCH_KIND_NUM, word, 0);
}

FILCH_INLINE filch_data filch_of_pid(filch_pid pid)
{
    return filch_value(FILCH_KIND_PID, pid.node, pid.serial);
}

FILCH_INLINE filch_data filch_ptr(void *pointer)
{
    uint64_t word = 0;
    memcpy(&word, &pointer, sizeof pointer);
    return filch_value(FILCH_KIND_PTR, word, 0);
}

FILCH_INLINE filch_data filch_str(const char *text)
{
    return filch_lent(FILCH_KIND_TEXT, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

FILCH_INLINE filch_data filch_bytes(const void *at, size_t size)
{
    return filch_lent(FILCH_KIND_BYTES, at, size);
}

FILCH_INLINE filch_data filch_of_stream(filch_stream stream)
{
    return filch_value(FILCH_KIND_INT, stream.id, 0);
}

FILCH_INLINE filch_kind filch_kind_of(const filch_data *data)
{
    return data == NULL ? FILCH_KIND_NONE : (filch_kind)data->kind;
}

FILCH_INLINE int64_t filch_as_int(const filch_data *data)
{
    return filch_kind_of(data) == FILCH_KIND_INT ? data->as.i : 0;
}

FILCH_INLINE double filch_as_num(const filch_data *data)
{
    return filch_kind_of(data) == FILCH_KIND_NUM ? data->as.d : 0.0;
}

FILCH_INLINE filch_pid filch_as_pid(const filch_data *data)
{
    filch_pid nobody = { 0, 0 };
    return filch_kind_of(data) == FILCH_KIND_PID ? data->as.pid : nobody;
}

FILCH_INLINE void *filch_as_ptr(const filch_data *data)
{
    return filch_kind_of(data) == FILCH_KIND_PTR ? data->as.ptr : NULL;
}

FILCH_INLINE const void *filch_raw(const filch_data *data)
{
    filch_kind kind = filch_kind_of(data);
    if (kind != FILCH_KIND_TEXT && kind != FILCH_KIND_BYTES) return NULL;
    return data->form == FILCH_FORM_INLINE ? data->as.bytes : data->as.ref.at;
}

FILCH_INLINE const char *filch_text(const filch_data *data)
{
    return filch_kind_of(data) == FILCH_KIND_TEXT ? (const char *)filch_raw(data) : "";
}

FILCH_INLINE size_t filch_size(const filch_data *data)
{
    if (data == NULL || data->form == FILCH_FORM_VALUE) return 0;
    return data->form == FILCH_FORM_INLINE ? data->small : data->as.ref.size;
}

FILCH_INLINE filch_stream filch_as_stream(const filch_data *data)
{
    filch_stream stream = { (uint64_t)filch_as_int(data) };
    return stream;
}

#endif /* FILCH_NO_INLINE */

#ifdef __cplusplus
}
#endif

#endif
