/* new.h - the command `filch new`. */
#ifndef FILCH_CLI_NEW_H
#define FILCH_CLI_NEW_H

#include "cli/args.h"

int cli_new(const cli_command *self, int argc, char **argv);

#endif
