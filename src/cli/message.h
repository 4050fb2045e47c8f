/* message.h - what the program says to people: errors with a hint, in colour where somebody looks. */
#ifndef FILCH_CLI_MESSAGE_H
#define FILCH_CLI_MESSAGE_H

#include <filch.h>
#include <stdbool.h>
#include <stdio.h>

/* The exit codes; docs/lua/program.md and `filch help` list them. Ended by a signal: 128 and its number. */
enum { CLI_OK, CLI_FAILED, CLI_USAGE, CLI_NOT_STARTED, CLI_REFUSED, CLI_BY_SIGNAL = 128 };

typedef enum cli_ink { CLI_PLAIN, CLI_RED, CLI_GREEN, CLI_FAINT, CLI_BOLD } cli_ink;

/* What switches `file` to that ink, and CLI_PLAIN back: "" unless it is a terminal that knows colours, and NO_COLOR is
 * not set. */
const char *cli_ink_on(FILE *file, cli_ink ink);

/* Text on standard error. A reader that does not read is waited for only briefly (WAIT_MS), and the rest given up: a
 * full pipe does not keep the program alive. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "filch: ..." on standard error, as one text. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line below it that says what to do. */
void cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What Lua shows for a pid of this program. */
const char *cli_pid_text(filch_pid pid, char *text, size_t size);

/* The one of `count` texts, `stride` bytes apart, that `word` may have been meant to be; NULL: none is near. */
const char *cli_nearest(const char *word, const char *const *texts, size_t count, size_t stride);

#endif
