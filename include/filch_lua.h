/* filch_lua.h - processes written in Lua 5.4, on a filch scheduler.
 *
 * Each Lua process is a lua_State of its own: own memory limit, own collector, stepped by whichever worker is free. It
 * is written straight down (`local message = process.receive()`) and waits without holding a thread. What the process
 * finds there (process, time, channel, ...) is described in docs/lua.
 *
 *     filch_lua_create -> filch_lua_load_file -> filch_lua_spawn ... -> filch_sched_stop -> filch_lua_destroy
 *
 * The functions carry the same four lines as those of filch.h.
 *
 * Processes are isolated against loops, leaks, deep recursion and wrong messages, by mistake or on purpose: a process
 * cannot keep a worker, and can always be terminated (docs/design/lua/budgets.md). Two things are not isolated:
 * processes of one scheduler may end each other (option `without` with FILCH_LUA_WITHOUT_HARM forbids it), and an error
 * in the Lua interpreter affects the whole program. For code that you do not trust, use one operating-system process
 * each.
 */
#ifndef FILCH_LUA_H
#define FILCH_LUA_H

#include <filch.h>

/* FILCH_LUA_HIDDEN is set while libfilch_lua.a is compiled, so that a program or library that links it does not export
 * the names of filch_lua. */
#if defined(__GNUC__) && defined(FILCH_LUA_HIDDEN)
#define FILCH_LUA_API __attribute__((visibility("hidden")))
#else
#define FILCH_LUA_API FILCH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State;

typedef struct filch_lua      filch_lua;      /* shared by Lua processes: compiled code, settings, a watchdog */
typedef struct filch_lua_code filch_lua_code; /* a compiled chunk, to start processes from */

/* Errors with which a Lua process ends, besides FILCH_OK, FILCH_ECANCELLED and FILCH_EKILLED. For each error listed
 * here, the result that on_exit gets is a text: message and traceback. */
enum {
    FILCH_LUA_EERROR = FILCH_EUSER + 501,  /* a Lua error that was not caught */
    FILCH_LUA_EMEMORY = FILCH_EUSER + 502, /* the process exceeded its memory limit */
    FILCH_LUA_ESYNTAX = FILCH_EUSER + 503, /* the chunk does not compile */
    FILCH_LUA_EFILE = FILCH_EUSER + 504,   /* the file cannot be read */
    FILCH_LUA_EBUDGET = FILCH_EUSER + 505  /* the process ran for too long where it cannot be interrupted: see
                                              runaway_ns */
};

/* The levels of the Lua library `log`. Lines with a level below option `log_level` are not written. */
enum {
    FILCH_LUA_LOG_DEBUG = 0,
    FILCH_LUA_LOG_INFO = 1,
    FILCH_LUA_LOG_WARN = 2,
    FILCH_LUA_LOG_ERROR = 3,
    FILCH_LUA_LOG_NONE = 4
};

/* Writes text that a process printed or logged, `size` bytes with the newline. Called on workers; several workers may
 * call it at once. */
typedef void (*filch_lua_write_fn)(void *user, const char *text, size_t size);

/* Called once for each process that has failed. `text`, lent, is the error message with its traceback; if no code of
 * the process was running (FILCH_ELINK and FILCH_EOVERFLOW, for example), the text of the error code. `name` is the
 * name of the process's type. Called on workers; several workers may call it at once. Not called for processes that
 * were cancelled or killed. */
typedef void (*filch_lua_failure_fn)(void *user, filch_pid pid, const char *name, filch_err error, const char *text,
                                     size_t size);

/* Adds functions of your own to a Lua state: called for each new state inside a protected call, with the global table
 * on top of the stack. The added functions may call filch_lua_self and the functions that are declared after it. */
typedef void (*filch_lua_open_fn)(struct lua_State *L, void *user);

/* Rights that processes do not have by default. */
enum {
    FILCH_LUA_MAY_ENV = 1,   /* os.getenv */
    FILCH_LUA_MAY_NET = 2,   /* net: sockets */
    FILCH_LUA_MAY_FILES = 4, /* fs: files */
    FILCH_LUA_MAY_EXEC = 8   /* exec: programs */
};

/* How a step that runs too long is detected. */
enum {
    FILCH_LUA_WATCH_THREAD = 0, /* by a watchdog thread, which sleeps while no Lua code runs */
    FILCH_LUA_WATCH_COUNT = 1,  /* by counting the Lua instructions, without a thread; the counting about doubles the
                                   time that Lua code takes */
    FILCH_LUA_WATCH_NONE = 2 /* not at all: other processes run only when the process calls a function of Filch, and a
                                job of work.run is never stopped */
};

/* Options of a filch_lua. A field of 0 means the default that its comment gives. */
typedef struct filch_lua_options {
    size_t size;         /* sizeof(filch_lua_options); a shorter, older struct works too */
    size_t memory_max;   /* bytes that one process may hold; 0: 16 MiB. The limit also bounds work that cannot be
                            interrupted: docs/design/lua/budgets.md */
    uint64_t slice_ns;   /* a step that runs longer is interrupted and goes on later; 0: 5 ms */
    uint64_t runaway_ns; /* CPU time that a step may use after slice_ns while it cannot be interrupted (in a metamethod
                            called by C, for example). If it uses more, the process ends with FILCH_LUA_EBUDGET, an
                            error that it cannot catch; 0: 25 ms */
    uint32_t watch;      /* FILCH_LUA_WATCH_*; 0: FILCH_LUA_WATCH_THREAD */
    int32_t  signal;     /* signal that the watchdog thread sends to a worker to interrupt it; 0: the watchdog uses no
                            signal */
    uint32_t    rights;  /* FILCH_LUA_MAY_* bits */
    const char *path;    /* path patterns of the files that `require` tries, as "lib/?.lua;lib/?/init.lua"; copied;
                            NULL: "./?.lua" */
    /* NULL: standard output. A process waits until standard output has accepted its line. Where Lua cannot yield, the
     * process does not wait, and a line for which the output buffer has no space is dropped and counted */
    filch_lua_write_fn   print;
    void                *print_user;
    filch_lua_write_fn   log; /* NULL: standard error; a line that is not accepted there is dropped and counted */
    void                *log_user;
    filch_lua_failure_fn on_failure; /* NULL: a failure is reported only to the on_exit given to filch_lua_spawn */
    void                *on_failure_user;
    filch_lua_open_fn    open; /* NULL: no functions of your own */
    void                *open_user;
    uint32_t             count; /* with FILCH_LUA_WATCH_COUNT: instructions between two clock readings; 0: 10,000. In a
                                   simulation, whatever `watch` is: instructions between two interruptions; 0: drawn
                                   from the seed */
    const char *roots;          /* folders, separated by ';', from which code may be loaded besides those of
                                   `path`; copied; NULL: none */
    size_t code_max;            /* most bytes of a code file that a process names, and of a text for `load`; 0:
                                   256 KiB */
    uint32_t log_level;         /* the lowest FILCH_LUA_LOG_* level that `log` writes; 0: all levels */
    size_t memory_total; /* bytes that all processes may hold together, including code, blobs and messages of 16 KiB and
                            more; 0: no limit. Smaller messages count against filch_options.memory_max */
    /* functions that are removed from processes, separated by spaces; NULL: none. With FILCH_LUA_WITHOUT_HARM no
     * process can take a name, or end a process that it has not started. Without process.register the option `name` of
     * process.spawn and of supervisors is refused too. */
    const char *without;
    /* most payload bytes in the mailbox of a Lua process whose spawn does not set `mailbox_bytes`; less than 2^28; 0:
     * no limit. With a limit, a mailbox also holds at most 2^23 - 1 messages. The option `overflow` of the spawn says
     * what happens at the limit; by default the sender gets FILCH_EFULL (in Lua: nil and the reason). */
    size_t mailbox_bytes;
} filch_lua_options;
/* For option `without`: every function by which a process can end another process or take a name. */
#define FILCH_LUA_WITHOUT_HARM                                                                           \
    "process.terminate process.cancel process.link process.register process.unregister supervisor.stop " \
    "supervisor.stop_child supervisor.start_child"
#define FILCH_LUA_OPTIONS_INIT FILCH_SIZED_INIT(filch_lua_options)

/* Creates a filch_lua, which Lua processes of any number of schedulers may share. `options` NULL means all defaults.
 *
 * If `watch` is FILCH_LUA_WATCH_THREAD, the filch_lua has a watchdog thread, which sleeps while no Lua code runs. No
 * signal handler is installed unless option `signal` is set: then one handler for that signal is installed for the
 * whole program, and the previous handler is restored when the last filch_lua is freed. Set `signal` if your own
 * functions cannot call filch_lua_settle where it is needed.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends `options`; gives *out; return it with filch_lua_destroy.
 * Errors:  FILCH_EINVAL  also: unknown rights, an unknown name in `without`, no such `log_level`,
 *                              `mailbox_bytes` of 2^28 or more   FILCH_ENOMEM
 *          FILCH_ESYS    no thread, or the signal is taken
 */
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_create(filch_lua **out, const filch_lua_options *options);

/* Frees `lua`. The schedulers on which its processes ran must have been stopped, because they refer to `lua`.
 *
 * Thread:  any, once.                                           Blocks:  until the watchdog thread has ended.
 * Owns:    takes `lua` unless it returns an error.
 * Errors:  FILCH_EINVAL   FILCH_EBUSY  a Lua process is still alive, or code has not been dropped
 */
FILCH_LUA_API filch_err filch_lua_destroy(filch_lua *lua);

/* Writes a line of your own (`size` bytes with its newline) to the output that `log` of the processes uses.
 *
 * Thread:  any.                                                 Blocks:  never: a line that standard error
 *                                                               does not accept is dropped and counted.
 * Owns:    lends `text`.
 * Errors:  FILCH_EINVAL
 */
FILCH_LUA_API filch_err filch_lua_log(filch_lua *lua, const char *text, size_t size);

/* Waits until standard output and standard error have accepted all that `print` and `log` wrote, at most for
 * `timeout_ns`. Call it at the end of a program. *dropped (may be NULL) is the number of lines lost since
 * filch_lua_create: log lines while the reader was too slow, printed lines for which the output buffer had no space
 * while Lua could not yield, and lines that the system refused.
 *
 * Thread:  any.                                                 Blocks:  for `timeout_ns` at the most.
 * Owns:    nothing.
 * Errors:  FILCH_EINVAL      FILCH_EDEADLINE  some text has not been accepted
 */
FILCH_LUA_API filch_err filch_lua_flush(filch_lua *lua, uint64_t timeout_ns, uint64_t *dropped);

/* Compiles a chunk: `size` bytes of text, named `name` in messages (NULL: "chunk"), or a file. Bytecode is refused. The
 * same text under the same name is compiled once. On a failure the reason is written to `text`, which may be NULL.
 *
 * Thread:  any.                                                 Blocks:  load_file while it reads.
 * Owns:    lends; gives *out; return it with filch_lua_code_drop.
 * Errors:  FILCH_EINVAL   FILCH_ENOMEM   FILCH_LUA_ESYNTAX   FILCH_LUA_EFILE
 *          FILCH_LUA_EMEMORY  the code does not fit into `memory_total`
 */
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_load(filch_lua *lua, const char *chunk, size_t size, const char *name,
                                                      filch_lua_code **out, char *text, size_t text_size);
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_load_file(filch_lua *lua, const char *path, filch_lua_code **out,
                                                           char *text, size_t text_size);

/* Releases a reference to code. Processes started from it are not affected. NULL is allowed.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    takes the reference.
 * Errors:  none.
 */
FILCH_LUA_API void filch_lua_code_drop(filch_lua *lua, filch_lua_code *code);

/* Called by filch_lua_reload for each file that has changed. If `error` is FILCH_OK, `notified` is the number of
 * processes that were notified of the new code. Otherwise `text` says why the new file is not used. All pointers are
 * lent. */
typedef void (*filch_lua_reload_fn)(void *user, const char *path, filch_err error, const char *text, uint64_t notified);

/* Checks the files from which processes were started by name, and the files that processes have loaded with `require`;
 * each file is read once. A file that has changed is compiled. If it does not compile, nothing changes. Otherwise new
 * processes and restarted children run the new code. A process that called process.upgradable is notified. It notices
 * the reload when it has read the messages that were sent before the reload, or when the step that received the
 * notification ends. After that, it continues with the new code when its main task calls process.receive without a
 * pattern (docs/design/lua/upgrade.md). A file that is missing or empty is ignored. `report` may be NULL. A scheduler
 * that runs processes of `lua` must not be destroyed during the call.
 *
 * Thread:  any, also inside a function that Lua calls.          Blocks:  while it reads.
 * Owns:    lends.
 * Errors:  FILCH_EINVAL  lua is NULL
 */
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_reload(filch_lua *lua, filch_lua_reload_fn report, void *user);

typedef struct filch_lua_spawn_options {
    size_t      size;   /* sizeof(filch_lua_spawn_options); a shorter, older struct works too */
    const char *method; /* The chunk runs first and returns a table; then the function with this name in the table is
                           called. NULL: only the chunk runs */
    const filch_data *args; /* arguments of the chunk, and also of the method; lent */
    size_t            arg_count;
    size_t            memory_max; /* memory limit of the process in bytes; 0: as in filch_lua_options */
    /* options for mailbox, on_exit, values; spawn->method and spawn->args must be empty; NULL: defaults */
    const filch_spawn_options *spawn;
} filch_lua_spawn_options;
#define FILCH_LUA_SPAWN_OPTIONS_INIT FILCH_SIZED_INIT(filch_lua_spawn_options)

/* Starts a process that runs `code`. The process ends when the chunk returns, with the returned values as its
 * result.
 *
 * Thread:  any, also inside steps.                              Blocks:  never.
 * Owns:    lends everything; the process holds a reference of its own to `code`.
 * Errors:  FILCH_EINVAL   FILCH_LUA_EMEMORY  the memory limit is too small to start the process
 *          and those of filch_spawn
 */
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_spawn(filch_lua *lua, filch_sched *sched, filch_lua_code *code,
                                                       const filch_lua_spawn_options *options, filch_pid *pid);

/* Runs `code` as the first process of a simulation, with the seeds sim->seed, sim->seed + 1, ... until a run ends with
 * a violation, at most `count` runs: filch_sim_sweep for Lua programs. A run fails when its first process fails or
 * never ends, or when the program calls sim.fail. math.random, the order of pairs over string keys and all clocks
 * follow the seed. `options` and `sim` may be NULL; options->spawn and sim->check must be NULL.
 *
 * Thread:  as filch_sim_sweep.                                  Blocks:  until the last run is over.
 * Owns:    lends everything; gives what *report holds: filch_sim_report_free.
 * Errors:  as filch_sim_sweep
 */
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_sim(filch_lua *lua, filch_lua_code *code,
                                                     const filch_lua_spawn_options *options,
                                                     const filch_sim_options *sim, uint64_t count,
                                                     filch_sim_report *report);

/* Describes a message between Lua processes as a Lua program would write it: { kind = "x", n = 1 }. For
 * filch_sim_options.describe; filch_lua_sim sets it by itself. `user` is not used. Writes up to `text_size`
 * characters; a part that does not fit is written as "...". Returns how many characters were written.
 *
 * Thread:  any.                                                 Blocks:  never.
 * Owns:    lends.
 * Errors:  none. 0: `bytes` or `text` is NULL.
 */
FILCH_LUA_API size_t filch_lua_describe(void *user, const void *bytes, size_t size, size_t whole, char *text,
                                        size_t text_size);

/* ---- for functions of your own (option `open`) ---------------------------------------------------------------- */

/* filch_lua_self returns the pid of the process that `L` belongs to, filch_lua_sched its scheduler.
 *
 * Thread:  inside a function that Lua calls.                    Blocks:  never.
 * Owns:    nothing.
 * Errors:  the pid {0, 0}, and NULL: L is NULL or not the state of a Lua process.
 */
FILCH_LUA_API filch_pid    filch_lua_self(struct lua_State *L);
FILCH_LUA_API filch_sched *filch_lua_sched(struct lua_State *L);

/* Call this function before lua_pcallk with a continuation; lua_pcall and lua_callk do not need it. The watchdog thread
 * may be about to set a hook in this state, and would overwrite data that lua_pcallk stores; filch_lua_settle waits
 * until the hook is set.
 *
 * Thread:  inside a function that Lua calls.                    Blocks:  for microseconds, seldom.
 * Owns:    nothing.
 * Errors:  none. For NULL, or a state that is not of a Lua process, it does nothing.
 */
FILCH_LUA_API void filch_lua_settle(struct lua_State *L);

/* Pushes the content of a payload as a Lua value, as process.receive returns it.
 *
 * Thread:  inside a function that Lua calls.                    Blocks:  never.
 * Owns:    lends `data`.
 * Errors:  raises a Lua error when memory runs out. NULL is nil.
 */
FILCH_LUA_API void filch_lua_push(struct lua_State *L, const filch_data *data);

/* Converts the Lua value at `index` to a payload that outlives the call, as process.send does.
 *
 * Thread:  inside a function that Lua calls.                    Blocks:  never.
 * Owns:    gives *out one reference; return it with filch_drop.
 * Errors:  FILCH_EINVAL  the value cannot be sent: `text` (may be NULL) says which part of it, and why   FILCH_ENOMEM
 */
FILCH_LUA_API FILCH_MUST_USE filch_err filch_lua_pack(struct lua_State *L, int index, filch_data *out, char *text,
                                                      size_t text_size);

#ifdef __cplusplus
}
#endif

#endif
