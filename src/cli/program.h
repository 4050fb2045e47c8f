/* program.h - a running Lua program: host, scheduler, first process, and waiting for its end. */
#ifndef FILCH_CLI_PROGRAM_H
#define FILCH_CLI_PROGRAM_H

#include <filch_lua.h>
#include <stdbool.h>

enum { CLI_PATH_MAX = 2048 };

/* A program is a file, or a folder with a main.lua in it. */
typedef struct cli_source {
    char file[CLI_PATH_MAX];     /* path of the file that is run */
    char path[CLI_PATH_MAX * 2]; /* search path of `require`: the folder of the file */
} cli_source;

/* Finds the file for `name`. Returns CLI_OK, or prints an error message and returns the exit code. */
int cli_source_find(cli_source *source, const char *name);
/* Compiles the source. Returns CLI_OK, or prints an error message and returns the exit code. `lua` must have been
 * created with source->path. */
int cli_source_load(const cli_source *source, filch_lua *lua, filch_lua_code **code);
/* Prints why `file` cannot be used, with the line and a hint. `hint` is printed if this function knows no better
 * hint. */
void cli_source_error(const char *file, filch_err err, const char *text, const char *hint);

typedef struct cli_program cli_program;
struct cli_program {
    filch_lua_options lua_options; /* set by the caller; cli_program_open() adds on_failure and on_failure_user */
    int32_t           workers;     /* number of worker threads; 0: one per CPU */
    uint32_t          processes;   /* limit of processes at the same time; 0: a million */
    uint64_t          stop_ns;     /* how long a stop waits for processes to end by themselves */

    filch_sched *sched;
    filch_lua   *lua;
    int          wake_pipe[2];  /* a pipe: the signal handler and the end of the first process write a byte into it */
    filch_err    first;         /* error code of the first process; valid once first_over is set */
    bool         first_started; /* the first process was started; when it ends, a byte is written into wake_pipe */
    bool         first_over;    /* the first process has ended */
    int          signal;        /* number of the signal that was received; 0: none */
    /* last lower-case letter that was read from wake_pipe, an answer of the process `terminal` (repl.c); 0: none */
    char answer;
    /* Called a few times a second; NULL: not called. If `look` is set, the program ends only when all processes have
     * ended or a signal has come. */
    void (*look)(cli_program *p);
};

/* Creates the Lua host (p->lua) and the scheduler, and catches SIGINT and SIGTERM. Returns CLI_OK, or prints an
 * error message and returns the exit code; after an error there is nothing to close. Only one program may be open at
 * a time. */
int cli_program_open(cli_program *p);
/* Writes the byte `what` into the pipe p->wake_pipe; `descriptor` is p->wake_pipe[1]. */
void cli_program_wake(int descriptor, char what);
/* Starts the first process. Returns CLI_OK, or prints an error message and returns the exit code. */
int cli_program_start(cli_program *p, filch_lua_code *code, const filch_data *args, size_t arg_count, filch_pid *pid);
/* Waits until all processes have ended, no process can run any more, or a signal has come (p->signal). */
void cli_program_wait(cli_program *p);
/* Catches the next SIGINT and the next SIGTERM once each. A second signal with the same number ends the program at
 * once. */
void cli_program_catch_signals(void);
/* Reads the bytes in p->wake_pipe and sets the fields first_over, signal and answer. If the pipe is empty, waits for a
 * byte at most `pause_ms` milliseconds (-1: without limit). */
void cli_program_listen(cli_program *p, int pause_ms);
/* Returns true if no process can run any more: all workers are parked, no timer is set, and all yields are completed or
 * abandoned. */
bool cli_program_is_quiet(const filch_stats *stats);
/* Stops the scheduler and frees everything; if a step does not return, frees nothing. If `report` is set, or if a
 * process did not end by itself, prints how many processes ended, which of them by force, and what was lost. */
void cli_program_close(cli_program *p, bool report);

#endif
