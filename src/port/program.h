/* program.h - other programs: starting one, waiting for its end, killing it. Answers as net.h: negative error numbers.
 */
#ifndef FLI_PORT_PROGRAM_H
#define FLI_PORT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

/* What is to be started. */
typedef struct fli_program_plan {
    char *const *argv;        /* ends with NULL */
    char *const *environment; /* ends with NULL; NULL: ours */
    const char  *directory;   /* NULL: ours */
    uint32_t     flags;       /* FILCH_RUN_* */
} fli_program_plan;

typedef struct fli_program {
    int64_t pid;
    bool    group; /* it leads a process group of its own */
    int     fd;    /* readable when it has ended; -1: the system has no such thing */
    int     input; /* our ends of its pipes; -1: not asked for. None of them blocks */
    int     output;
    int     errors;
} fli_program;

/* Starts argv[0], found in PATH. Blocks until it runs. 0, or why not. */
int fli_program_start(const fli_program_plan *plan, fli_program *out);

/* Returns 1 if the program has ended: *status is its exit status, or -n for signal n; 0 if it is running. May be called
 * again. If the host program ignores SIGCHLD or waits for all children, the status comes from `fd`; -ECHILD if that has
 * none either. */
int fli_program_status(int64_t pid, int fd, int32_t *status);

/* Sends it a signal: through `fd`, which never reaches another program, or by number where that is -1. */
int fli_program_kill(int64_t pid, int fd, int number);

/* The last thing: what is left of its `group` is killed, and it is reaped, killed first if it still runs. False: it has not
 * died yet, call again; with `wait` it waits for that. */
bool fli_program_bury(int64_t pid, bool group, bool wait);

#endif
