/* repl.h - the command `filch repl`. */
#ifndef FILCH_CLI_REPL_H
#define FILCH_CLI_REPL_H

#include "cli/args.h"

extern const cli_option cli_repl_options[];
int                     cli_repl(const cli_command *self, int argc, char **argv);

#endif
