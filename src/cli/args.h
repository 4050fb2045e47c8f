/* args.h - the commands, their options and operands. One table each, from which the command line is read and the help
 * is written: they cannot differ. */
#ifndef FILCH_CLI_ARGS_H
#define FILCH_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One option. `value` is what stands behind it in the help; NULL: it takes none. */
typedef struct cli_option {
    const char *name, *value, *by_default, *text;
    int         id; /* above 0 */
} cli_option;

typedef struct cli_command cli_command;
struct cli_command {
    const char       *name, *operands, *summary;
    const char       *text;          /* what it does, in lines of at most 88 columns */
    const cli_option *options;       /* ended by a NULL name */
    bool              operands_last; /* behind the first operand nothing is an option of ours */
    int (*run)(const cli_command *self, int argc, char **argv); /* gives the exit code */
};

extern const cli_command cli_commands[];
extern const size_t      cli_command_count;
/* NULL: there is none of that name. */
const cli_command *cli_find_command(const char *name);

enum { CLI_END = 0, CLI_OPERAND = -1, CLI_BAD = -2 };

/* Where the reading is. */
typedef struct cli_args {
    const cli_command *command;
    char             **argv;
    int                argc, at;
    bool               only_operands;
    const cli_option  *option; /* the last one */
    const char        *value;  /* of it; or the operand */
} cli_args;

/* The next one: an option's id, CLI_OPERAND, CLI_END, or CLI_BAD when it has been told what is wrong. */
int cli_next(cli_args *args);

/* The value of the last option. False: it is none, and that has been told. */
bool cli_value_number(const cli_args *args, uint64_t min, uint64_t max, uint64_t *out);
bool cli_value_size(const cli_args *args, size_t *out);      /* 4096, 64K, 8M, 1G; MB and so on are fine too */
bool cli_value_time(const cli_args *args, uint64_t *out_ns); /* 5, 0.5, 200ms, 2s; may be 0 */
/* Tells that the value is not `wanted`. Returns false. */
bool cli_value_wrong(const cli_args *args, const char *wanted);

#endif
