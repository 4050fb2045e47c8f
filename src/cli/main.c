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
      "Runs a Lua program: FILE, or main.lua in FOLDER. `require` searches the folder of that\n"
      "file. The file runs as the first process, which gets the arguments. The program ends when\n"
      "all processes have ended, or when all that are left wait and no message, timer or\n"
      "completion can arrive. All words after FILE are arguments of the program, also those that\n"
      "look like options.\n"
      "SIGINT (ctrl-C) and SIGTERM stop the program gracefully. It accepts no more connections.\n"
      "Each process gets the messages that wait in its mailbox, then it is cancelled; files,\n"
      "sockets and timers work meanwhile. Processes that have not ended after --stop-after are\n"
      "ended by force. A report lists them, and counts unread messages and incomplete writes.\n"
      "With --stop-after 0 the program does not wait for its processes. A second signal ends the\n"
      "program at once.\n"
      "With --watch, a file that processes use is compiled again when it changes: new processes\n"
      "run the new code, and processes that called process.upgradable switch to it. A file that\n"
      "does not compile is reported and changes nothing. The program then ends with its last\n"
      "process.\n",
      cli_run_options, true, cli_run },
    { "test", "FILE|FOLDER...", "run tests in the simulator, each under many seeds",
      "Runs each test many times, simulated on one thread. A seed decides which process runs\n"
      "next, which worker steals, where a step is interrupted and how time passes. Time is\n"
      "virtual: a sleep takes no real time. A test file returns a table of functions, each of\n"
      "which is a test; a file that returns no table is a test by itself. A test fails when its\n"
      "process fails, or waits although no message, timer or completion can arrive. A failure\n"
      "shows the error, the output, the messages between processes, and the command that runs it\n"
      "again. In FOLDER: every file named ..._test.lua.\n"
      "A worker that stalls (--stall) is not chosen for 10 to 509 turns, like a thread that the\n"
      "system does not run: other workers steal what it has queued. Four times as many waits for\n"
      "the next timer take too long, so that timers with different due times are due together.\n"
      "A timer that is late (--late-timer) is held back until after the next other timer, however\n"
      "far away that is: of two sleeps, the longer one may end first. No sleep ends early.\n",
      cli_test_options, false, cli_test },
    { "repl", "", "evaluate Lua line by line",
      "Reads lines, runs them in one process, and prints their values. A line that is not\n"
      "complete continues in the next one. Global variables keep their values from line to line.\n"
      "Ctrl-C cancels the line that runs, at the next place where it waits; while no line runs,\n"
      "ctrl-C ends the repl, as ctrl-D and `exit` do. A second ctrl-C while a line still runs\n"
      "ends the program. Without a terminal there is no prompt, and a line that failed makes the\n"
      "exit code 1.\n",
      cli_repl_options, false, cli_repl },
    { "bench", "[MARK...]", "measure what Lua processes cost on this machine",
      "Runs benchmarks (marks) and prints one line of JSON for each: pingpong_int,\n"
      "pingpong_table (five fields), ring (100 processes), spawn (start and end of a process),\n"
      "idle_bytes (memory of a process that waits). `best` is the best run; a `median` far from\n"
      "it means that other programs were running.\n",
      cli_bench_options, false, cli_bench },
    { "new", "NAME", "create a program: a folder with a main.lua, a module, a test and a README",
      "Creates the folder NAME with a small working program and its test. Existing files are\n"
      "not changed.\n",
      no_options, false, cli_new },
    { "help", "[COMMAND]", "list all commands, or describe one", "Describes one command, or lists all commands.\n",
      help_options, false, cli_help },
    { "version", "", "print the version", "Prints the version.\n", no_options, false, version },
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
