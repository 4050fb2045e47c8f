/* test.h - the command `filch test`. */
#ifndef FILCH_CLI_TEST_H
#define FILCH_CLI_TEST_H

#include "cli/args.h"

extern const cli_option cli_test_options[];
int                     cli_test(const cli_command *self, int argc, char **argv);

#endif
