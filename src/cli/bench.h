/* bench.h - the command `filch bench`. */
#ifndef FILCH_CLI_BENCH_H
#define FILCH_CLI_BENCH_H

#include "cli/args.h"

extern const cli_option cli_bench_options[];
int                     cli_bench(const cli_command *self, int argc, char **argv);

#endif
