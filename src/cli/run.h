/* run.h - the command `filch run`. */
#ifndef FILCH_CLI_RUN_H
#define FILCH_CLI_RUN_H

#include <filch_lua.h>

/* Runs the Lua program argv[0] with the arguments behind it. The exit code of the program. */
int cli_run(int argc, char **argv);

#endif
