/* help.h - the command `filch help`. */
#ifndef FILCH_CLI_HELP_H
#define FILCH_CLI_HELP_H

#include <stdio.h>

#include "cli/args.h"

int cli_help(const cli_command *self, int argc, char **argv);

/* Prints the list of commands. */
void cli_help_all(FILE *file);
/* Prints an error message that there is no command `word`. Returns the exit code. */
int cli_no_command(const char *word);

#endif
