/* main.c - the program `filch`: the table of commands. Calls the command that the first argument names. */
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/bench.h"
#include "cli/help.h"
#include "cli/message.h"
#include "cli/new.h"
#include "cli/repl.h"
#include "cli/run.h"
#include "cli/test.h"

static const cli_option no_options[] = { { NULL, NULL, NULL, NULL, 0 } };
static const cli_option help_options[] = { { "--man", NULL, "off", "everything, as the manual page filch(1)", 1 },
                                           { NULL, NULL, NULL, NULL, 0 } };

static int version(const cli_command *self, int argc, char **argv)
{
    cli_args args = { .command = self, .argv = argv, .argc = argc };
    int      what = cli_next(&args);
    if (what == CLI_OPERAND) cli_error("version: takes no argument, and got '%s'", args.value);
    if (what != CLI_END) return CLI_USAGE;
    printf("filch %s\n", filch_version());
    return fflush(stdout) == 0 ? CLI_OK : CLI_REFUSED;
}

const cli_command cli_commands[] = {
    { "run", "FILE|FOLDER [ARGUMENT...]", "run a program",
      "Runs a Lua program: FILE, or main.lua in FOLDER. `require` looks beside it. It is the\n"
      "first process, and gets the arguments. The program ends when all processes have ended,\n"
      "or when nothing can happen any more. What stands behind FILE belongs to the program,\n"
      "options too.\n"
      "SIGINT (ctrl-C) and SIGTERM stop it in order. No connection is accepted any more; each\n"
      "process gets the messages that wait in its mailbox (it is drained), then it is cancelled;\n"
      "files, sockets and timers go on meanwhile. Processes that have not ended after\n"
      "--stop-after are ended by force, and a report names them, messages that were not read and\n"
      "writes that were cut. With --stop-after 0 nothing is waited for. A second signal ends the\n"
      "program at once.\n"
      "With --watch, files that processes use are compiled when they change: new processes run\n"
      "the new code, and those that called process.upgradable go over to it. A file that does\n"
      "not compile is reported, and changes nothing. The program then ends with its last process.\n",
      cli_run_options, true, cli_run },
    { "test", "FILE|FOLDER...", "run tests in the simulator, each under many seeds",
      "Runs each test many times, simulated on one thread: which process runs next, which worker\n"
      "steals, where a step is interrupted and how time passes is drawn from a seed, and no time\n"
      "is spent waiting. A test file returns a table of functions, each one a test; a file that returns\n"
      "no table is a test by itself. A test fails when its process fails, or waits when nothing\n"
      "can happen any more. A failure shows the error, the output, the messages between\n"
      "processes, and the command that runs it again. In FOLDER: every file named ..._test.lua.\n"
      "A worker that stalls (--stall) is not chosen for 10 to 510 turns, as one that the system\n"
      "does not run: others steal what it has queued. Four times as many of the waits for the\n"
      "next timer take longer, so that timers which lie far apart are due together.\n",
      cli_test_options, false, cli_test },
    { "repl", "", "try things out, line by line",
      "Reads lines, runs them in a process that lives on, and shows their values. A line that\n"
      "is not finished goes on in the next. Variables last if they are global. Ctrl-C cancels\n"
      "what runs, where it waits; where nothing runs, it ends the repl, as ctrl-D and `exit`\n"
      "do. A second ctrl-C while something runs on ends the program. Without a terminal there\n"
      "is no prompt, and a line that failed makes the exit code 1.\n",
      cli_repl_options, false, cli_repl },
    { "bench", "[MARK...]", "measure what Lua processes cost on this machine",
      "Measures, and prints one line of JSON per mark: pingpong_int, pingpong_table (five\n"
      "fields), ring (100 processes), spawn (begin and end), idle_bytes (memory of a process\n"
      "that waits). `best` is the best run, `median` says how quiet the machine was.\n",
      cli_bench_options, false, cli_bench },
    { "new", "NAME", "begin a program: a folder with a main.lua, a module, a test and a README",
      "Makes the folder NAME with a small program in it that works, and its test. Nothing\n"
      "that exists is touched.\n",
      no_options, false, cli_new },
    { "help", "[COMMAND]", "this, or more about one command", "Describes one command, or lists all commands.\n",
      help_options, false, cli_help },
    { "version", "", "which version this is", "Prints the version.\n", no_options, false, version },
};
const size_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

int main(int argc, char **argv)
{
    if (argc < 2) {
        cli_help_all(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0) name = "version";
    const cli_command *command = cli_find_command(name);
    if (command == NULL) return cli_no_command(name);
    /* `filch run --help` means `filch help run`. */
    if (argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
        argv[2] = argv[1];
        return cli_help(cli_find_command("help"), 1, argv + 2);
    }
    return command->run(command, argc - 2, argv + 2);
}
