/* main.c - the program `filch`: finds the command, and leaves the rest to it.
 *
 *     filch run FILE [ARGUMENT...]     run a Lua program
 *     filch version
 *
 * Exit: 0 all is well, 1 the program failed, 2 the command line is wrong.
 */
#include <stdio.h>
#include <string.h>

#include "cli/run.h"

static int usage(FILE *file)
{
    fputs("usage: filch run FILE [ARGUMENT...]\n"
          "       filch version\n",
          file);
    return file == stderr ? 2 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) return usage(stderr);
    if (strcmp(argv[1], "run") == 0) return cli_run(argc - 2, argv + 2);
    if (strcmp(argv[1], "version") == 0) return printf("filch %s\n", filch_version()) > 0 ? 0 : 1;
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) return usage(stdout);
    fprintf(stderr, "filch: no command '%s'\n", argv[1]);
    return usage(stderr);
}
