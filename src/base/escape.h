/* escape.h - makes text of unknown origin safe to write into a line of a log, a report or a terminal.
 *
 * Names, chunk names and error texts may be chosen by a script. Written unchanged, a newline in them would look like
 * the beginning of another line of the log, and an escape sequence would command the terminal. The functions here
 * replace the control characters: newline, carriage return and tab by \n, \r and \t, other bytes below 0x20 and 0x7f by
 * \x1b (for example), and U+0080 to U+009F, U+2028 and U+2029 in UTF-8 by \u{85} (for example). A byte from 0x80 to
 * 0x9f that is not part of a UTF-8 character becomes \x9b (for example), because terminals without UTF-8 take it as a
 * control character. All other bytes are kept; a backslash is not doubled. */
#ifndef FLI_BASE_ESCAPE_H
#define FLI_BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>

/* FLI_ESCAPE_MAX: maximum number of bytes that fli_escape_next() writes. FLI_ESCAPE_GROWTH: the escaped text has at
 * most this many times the bytes of the text. */
enum { FLI_ESCAPE_MAX = 8, FLI_ESCAPE_GROWTH = 4 };

/* Writes the first character of text[0 .. size), escaped if needed, to `to`, and the number of written bytes to
 * *length. Returns how many bytes of `text` the character has. Precondition: size > 0. */
size_t fli_escape_next(const char *text, size_t size, char to[FLI_ESCAPE_MAX], size_t *length);

/* Writes the escaped text and a NUL to `to`, which has `room` > 0 bytes. Omits the characters at the end that do not
 * fit; an escape is never cut. Returns the number of written bytes without the NUL. */
size_t fli_escape(char *to, size_t room, const char *text, size_t size);

/* Returns true if fli_escape() would change the text. */
bool fli_escape_is_needed(const char *text, size_t size);

#endif
