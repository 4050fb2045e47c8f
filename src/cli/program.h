/* program.h - a Lua program under way: host, scheduler, its first process, and how it is waited for and stopped. */
#ifndef FILCH_CLI_PROGRAM_H
#define FILCH_CLI_PROGRAM_H

#include <filch_lua.h>
#include <stdbool.h>

enum { CLI_PATH_MAX = 2048 };

/* A program is a file, or a folder with a main.lua in it. */
typedef struct cli_source {
    char file[CLI_PATH_MAX];     /* what is run */
    char path[CLI_PATH_MAX * 2]; /* where `require` looks: beside it */
} cli_source;

/* Finds out what `name` is. CLI_OK, or the exit code for what has been told. */
int cli_source_find(cli_source *source, const char *name);
/* Compiles it; the same. `lua` must have been created with its path. */
int cli_source_load(const cli_source *source, filch_lua *lua, filch_lua_code **code);
/* Tells why `file` cannot be used, with its line and a hint: `hint` where there is no better one. */
void cli_source_error(const char *file, filch_err err, const char *text, const char *hint);

typedef struct cli_program cli_program;
struct cli_program {
    filch_lua_options lua_options; /* filled in by whoever runs it, but on_failure */
    int32_t           workers;     /* 0: one per CPU */
    uint32_t          processes;   /* at once; 0: a million */
    uint64_t          stop_ns;     /* what processes get to end in */

    filch_sched *sched;
    filch_lua   *lua;
    int          wake_pipe[2]; /* a pipe: the handler of signals and the first process's end write a byte into it */
    filch_err    first;        /* how the first process ended; to be read when its byte has come */
    bool         first_rings;  /* cli_program_start has started it: a byte will come */
    bool         first_over;   /* it has */
    int          signal;       /* that has come; 0 none */
    char         answer;       /* another small letter that somebody put into the pipe; 0 none */
    /* Called a few times a second; the program then goes on while it has processes. NULL: nothing. */
    void (*look)(cli_program *p);
};

/* Starts host and scheduler, and listens for SIGINT and SIGTERM. CLI_OK, or an exit code when it has been told what was
 * wrong: then nothing is left behind. One at a time. */
int cli_program_open(cli_program *p);
/* Puts a byte into the pipe: its writing end is p->wake_pipe[1]. */
void cli_program_wake(int descriptor, char what);
/* Starts the first process. CLI_OK or an exit code. */
int cli_program_start(cli_program *p, filch_lua_code *code, const filch_data *args, size_t arg_count, filch_pid *pid);
/* Waits until all have ended, nothing can happen any more, or a signal has come: p->signal. */
void cli_program_wait(cli_program *p);
/* From now on the next SIGINT and SIGTERM are heard; the one after that ends the program at once. */
void cli_program_hear(void);
/* Takes in what the pipe holds, waiting for it at most `pause_ms` (-1: as long as it takes). */
void cli_program_listen(cli_program *p, int pause_ms);
/* Everybody asleep, no timer, no answer outstanding. */
bool cli_program_is_quiet(const filch_stats *stats);
/* Stops and frees everything; tells who did not end by itself, and with `report` also what was there. */
void cli_program_close(cli_program *p, bool report);

#endif
