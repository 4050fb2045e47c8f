/* message.h - messages for users on standard error: errors with a hint, with colours on terminals. */
#ifndef FILCH_CLI_MESSAGE_H
#define FILCH_CLI_MESSAGE_H

#include <filch.h>
#include <stdbool.h>
#include <stdio.h>

/* The exit codes; docs/lua/program.md and `filch help` list them. If a signal stopped the program, the exit code is
 * CLI_BY_SIGNAL plus the signal number. */
enum { CLI_OK, CLI_FAILED, CLI_USAGE, CLI_NOT_STARTED, CLI_REFUSED, CLI_BY_SIGNAL = 128 };

typedef enum cli_ink { CLI_PLAIN, CLI_RED, CLI_GREEN, CLI_FAINT, CLI_BOLD } cli_ink;

/* Returns the escape sequence that switches the colour of `file` to `ink` (CLI_PLAIN: the default colour). Returns ""
 * if `file` is no terminal with colours or if NO_COLOR is set. */
const char *cli_ink_on(FILE *file, cli_ink ink);

/* Prints text on standard error. If standard error is a full pipe, waits at most 0.1 s and then drops the text; once a
 * text has been dropped, no later text waits. So a program that does not read its end of the pipe cannot keep this
 * program alive. Everything that is printed after a signal, or while processes run, is printed with these functions.
 * Only the main thread calls them; workers use filch_lua_log. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line "filch: ..." on standard error. Control characters are escaped: file names and error texts are not
 * chosen by this program, and must not look like further lines. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line "hint: ..." that tells the user what to do. Control characters are escaped. */
void cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints text on standard output, like cli_say(). */
void cli_show(const char *text);

/* Writes the pid into `text` in the form that Lua prints. */
const char *cli_pid_text(filch_pid pid, char *text, size_t size);

/* Returns the candidate most similar to `word`, or NULL if none is similar. The candidates are `count` texts whose
 * pointers are `stride` bytes apart. */
const char *cli_nearest(const char *word, const char *const *texts, size_t count, size_t stride);

#endif
