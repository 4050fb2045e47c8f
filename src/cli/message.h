/* message.h - messages for users on standard error: errors with a hint, with colours on terminals. */
#ifndef FILCH_CLI_MESSAGE_H
#define FILCH_CLI_MESSAGE_H

#include <filch.h>
#include <stdbool.h>
#include <stdio.h>

/* The exit codes; docs/lua/program.md and `filch help` list them. A program that was stopped by a signal:
 * CLI_BY_SIGNAL plus its number. */
enum { CLI_OK, CLI_FAILED, CLI_USAGE, CLI_NOT_STARTED, CLI_REFUSED, CLI_BY_SIGNAL = 128 };

typedef enum cli_ink { CLI_PLAIN, CLI_RED, CLI_GREEN, CLI_FAINT, CLI_BOLD } cli_ink;

/* Returns the escape sequence that switches `file` to `ink` (CLI_PLAIN: back), or "" if `file` is no terminal with
 * colours or NO_COLOR is set. */
const char *cli_ink_on(FILE *file, cli_ink ink);

/* Prints text on standard error. Waits at most WAIT_MS for a full pipe and then drops the rest, so that a reader
 * that does not read cannot keep the program alive. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints "filch: ..." on standard error, in one write. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line "hint: ..." that says what to do. */
void cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a pid as Lua shows it. */
const char *cli_pid_text(filch_pid pid, char *text, size_t size);

/* Returns the text that `word` was probably meant to be, of `count` texts `stride` bytes apart; NULL if none is
 * similar. */
const char *cli_nearest(const char *word, const char *const *texts, size_t count, size_t stride);

#endif
