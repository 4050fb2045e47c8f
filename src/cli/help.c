/* help.c - `filch help [COMMAND]`: prints the help from the tables that also parse the command line (args.h). With
 * --man it prints the manual page filch(1), which the build installs. */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "cli/message.h"

static const char *const exit_codes[][2] = {
    { "0", "no failure" },
    { "1", "the program, a test or a line of the repl failed" },
    { "2", "the command line is wrong; nothing was started" },
    { "3", "the program could not be started: no such file, a syntax error, bytecode" },
    { "4", "the system refused memory, a thread, a pipe or a write" },
    { "130, 143", "stopped by SIGINT or SIGTERM (128 + the signal's number); standard error lists the processes "
                  "that were ended by force after --stop-after" },
};

static void print_exit_codes(void)
{
    printf("\nexit codes:\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++) {
        printf("  %-10s %s\n", exit_codes[i][0], exit_codes[i][1]);
    }
}

void cli_help_all(FILE *file)
{
    fprintf(
        file,
        "filch runs programs made of many small processes, written in Lua.\n\nusage: filch COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        const cli_command *command = &cli_commands[i];
        fprintf(file, "  %s%-8s%s %s\n", cli_ink_on(file, CLI_BOLD), command->name, cli_ink_on(file, CLI_PLAIN),
                command->summary);
    }
    fprintf(file, "\n`filch help COMMAND` describes one command.\n");
}

static void print_command(const cli_command *command)
{
    bool options = command->options->name != NULL;
    printf("usage: filch %s%s%s%s\n\n%s", command->name, options ? " [OPTION...]" : "",
           command->operands[0] != '\0' ? " " : "", command->operands, command->text);
    if (options) printf("\noptions:\n");
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        char head[40];
        snprintf(head, sizeof head, "%s%s%s", option->name, option->value != NULL ? " " : "",
                 option->value != NULL ? option->value : "");
        printf("  %-20s %s (default: %s)\n", head, option->text, option->by_default);
    }
    print_exit_codes();
}

/* ---- filch(1) ---- */

/* Prints `text` as roff source. Escapes characters that have a meaning in roff: a dot or a quote at the start of a
 * line, a backslash, and a minus. */
static void roff(const char *text)
{
    for (bool begins = true; *text != '\0'; text++) {
        if (begins && strchr(".'", *text) != NULL) printf("\\&");
        if (strchr("\\-", *text) != NULL) putchar('\\');
        putchar(*text);
        begins = *text == '\n';
    }
}

static void roff_options(const cli_option *options)
{
    for (; options->name != NULL; options++) {
        printf(".TP\n.B ");
        roff(options->name);
        if (options->value != NULL) printf(" \\fI%s\\fR", options->value);
        printf("\n");
        roff(options->text);
        printf(" (default: ");
        roff(options->by_default);
        printf(")\n");
    }
}

static void print_manual(void)
{
    printf(".TH FILCH 1 \"\" \"filch %s\"\n.SH NAME\nfilch \\- run programs made of many small processes, written in "
           "Lua\n",
           filch_version());
    printf(".SH SYNOPSIS\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        printf("%s.B filch %s\n", i > 0 ? ".br\n" : "", cli_commands[i].name);
        if (cli_commands[i].options->name != NULL) printf("[OPTION...]\n");
        roff(cli_commands[i].operands);
        printf("\n");
    }
    printf(".SH COMMANDS\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        printf(".SS filch %s\n.nf\n", cli_commands[i].name);
        roff(cli_commands[i].text);
        printf(".fi\n");
        roff_options(cli_commands[i].options);
    }
    printf(".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++) {
        printf(".TP\n.B %s\n%s\n", exit_codes[i][0], exit_codes[i][1]);
    }
    printf(".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nset and not empty: no colours, on terminals too\n");
}

int cli_help(const cli_command *self, int argc, char **argv)
{
    cli_args           args = { .command = self, .argv = argv, .argc = argc };
    const cli_command *command = NULL;
    bool               manual = false;
    for (int what; (what = cli_next(&args)) != CLI_END;) {
        if (what == CLI_BAD) return CLI_USAGE;
        if (what == CLI_OPERAND && command != NULL) {
            cli_error("help: takes one command, and got also '%s'", args.value);
            return CLI_USAGE;
        }
        if (what == CLI_OPERAND) {
            command = cli_find_command(args.value);
            if (command == NULL) return cli_no_command(args.value);
        } else {
            manual = true;
        }
    }
    if (manual) print_manual();
    else if (command != NULL) print_command(command);
    else cli_help_all(stdout), print_exit_codes();
    return fflush(stdout) == 0 ? CLI_OK : CLI_REFUSED;
}

int cli_no_command(const char *word)
{
    const char *near = cli_nearest(word, &cli_commands->name, cli_command_count, sizeof *cli_commands);
    cli_error("there is no command '%s'", word);
    if (near != NULL) cli_hint("did you mean `filch %s`? `filch help` lists the commands", near);
    else cli_hint("`filch help` lists the commands; a program is run by `filch run FILE`");
    return CLI_USAGE;
}
