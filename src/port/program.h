/* program.h - other programs: starting one, waiting for its end, killing it. Answers as net.h: negative error numbers.
 */
#ifndef FLI_PORT_PROGRAM_H
#define FLI_PORT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fli_program {
    int64_t pid;
    int     fd;    /* readable when it has ended; -1: the system has no such thing */
    int     input; /* our ends of its pipes; -1: not asked for. None of them blocks */
    int     output;
    int     errors;
} fli_program;

/* Starts argv[0], found in PATH, with FILCH_RUN_* `flags`. Blocks until it runs. 0, or why not. */
int fli_program_start(char *const *argv, uint32_t flags, fli_program *out);

/* Has it ended? 1: yes, *status is its exit status, or -n for signal n; 0: no. It stays to be asked again. */
int fli_program_status(int64_t pid, int32_t *status);

int fli_program_kill(int64_t pid, int number);

/* The last thing: it is buried, killed first if it still runs. False: it has not died yet, call again; with `wait` it
 * waits for that. */
bool fli_program_bury(int64_t pid, bool wait);

#endif
