/* args.h - the commands, their options and operands. Each command has one table, from which the command line is
 * parsed and the help is written, so that the two cannot differ. */
#ifndef FILCH_CLI_ARGS_H
#define FILCH_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One option. `value` is the name of its value in the help; NULL: the option takes no value. */
typedef struct cli_option {
    const char *name, *value, *by_default, *text;
    int         id; /* greater than 0 */
} cli_option;

typedef struct cli_command cli_command;
struct cli_command {
    const char       *name, *operands, *summary;
    const char       *text;    /* description, in lines of at most 88 columns */
    const cli_option *options; /* array that ends with a NULL name */
    /* true: all words after the first operand are operands, even words that look like options */
    bool operands_last;
    int (*run)(const cli_command *self, int argc, char **argv); /* returns the exit code */
};

extern const cli_command cli_commands[];
extern const size_t      cli_command_count;
/* Returns the command with that name, or NULL if there is none. */
const cli_command *cli_find_command(const char *name);

enum { CLI_END = 0, CLI_OPERAND = -1, CLI_BAD = -2 };

/* The state of parsing a command line. */
typedef struct cli_args {
    const cli_command *command;
    char             **argv;
    int                argc, at;
    bool               only_operands;
    const cli_option  *option; /* the option that cli_next() returned last */
    const char        *value;  /* the value of `option`, or the operand */
} cli_args;

/* Returns the id of the next option, CLI_OPERAND, CLI_END, or CLI_BAD after it has printed an error message. */
int cli_next(cli_args *args);

/* Parse args->value, the value of the option that cli_next() returned last. Return false, after printing an error
 * message, if the value is not valid. */
bool cli_value_number(const cli_args *args, uint64_t min, uint64_t max, uint64_t *out);
bool cli_value_size(const cli_args *args, size_t *out);      /* accepts 4096, 64K, 8M, 1G, also with a B: 64KB */
bool cli_value_mailbox(const cli_args *args, size_t *out);   /* accepts a size below 256M, and 0 */
bool cli_value_time(const cli_args *args, uint64_t *out_ns); /* accepts 5, 0.5, 200ms, 2s; also 0 */
/* Prints an error message that args->value is not `wanted`, which describes the valid values. Returns false. */
bool cli_value_wrong(const cli_args *args, const char *wanted);

#endif
