/* program.h - other programs: starts a program, waits for its end, kills it. Functions return negative error
 * numbers, as in net.h. */
#ifndef FLI_PORT_PROGRAM_H
#define FLI_PORT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

/* The program to start. */
typedef struct fli_program_plan {
    char *const *argv;        /* ends with NULL */
    char *const *environment; /* ends with NULL; NULL: the environment of the host program */
    const char  *directory;   /* working directory; NULL: that of the host program */
    uint32_t     flags;       /* FILCH_RUN_* bits */
} fli_program_plan;

typedef struct fli_program {
    int64_t pid;
    bool    group; /* the program leads a process group of its own */
    int     fd;    /* pidfd, readable when the program has ended; -1: the system has no pidfds */
    int     input; /* `input`, `output` and `errors` are the host program's ends of the pipes to the started program,
                      non-blocking; -1: not requested */
    int output;
    int errors;
} fli_program;

/* Starts argv[0], found in PATH. Blocks until the program runs. Returns 0 or a negative error number. */
int fli_program_start(const fli_program_plan *plan, fli_program *out);

/* Returns 1 if the program has ended: *status is its exit status, or -n for signal n; 0 if it is running. May be called
 * again. If the host program ignores SIGCHLD or waits for all children, the status comes from `fd`; -ECHILD if `fd`
 * has no status either. */
int fli_program_status(int64_t pid, int fd, int32_t *status);

/* Sends the program a signal: through `fd`, which cannot reach another program, or by pid if `fd` is -1. */
int fli_program_kill(int64_t pid, int fd, int number);

/* Releases a program: kills what is left of its `group`, kills the program if it still runs, and reaps it. Returns
 * false if the program has not died yet; then call again. With `wait` it waits until the program has died. */
bool fli_program_reap(int64_t pid, bool group, bool wait);

#endif
