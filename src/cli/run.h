/* run.h - the command `filch run`. */
#ifndef FILCH_CLI_RUN_H
#define FILCH_CLI_RUN_H

#include "cli/args.h"

extern const cli_option cli_run_options[];
int                     cli_run(const cli_command *self, int argc, char **argv);

#endif
