/* message.c - see message.h. */
#include "cli/message.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"
#include "port/clock.h"
#include "port/output.h"

const char *cli_ink_on(FILE *file, cli_ink ink)
{
    static const char *const codes[] = { "\033[0m", "\033[31m", "\033[32m", "\033[2m", "\033[1m" };
    const char              *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((no != NULL && no[0] != '\0') || term == NULL || strcmp(term, "dumb") == 0 || !isatty(fileno(file))) return "";
    return codes[ink];
}

/* How long a write waits for space in a full pipe. */
#define WAIT_NS FILCH_MILLISECONDS(100)

/* Standard output and standard error. Used by the main thread only. */
static struct {
    fli_output out, err;
    bool       opened, ready; /* opened: open_streams() was called; ready: it succeeded */
} streams;

static void open_streams(void)
{
    streams.opened = true;
    if (fli_output_init(&streams.out, STDOUT_FILENO) != FILCH_OK) return;
    streams.ready = fli_output_init(&streams.err, STDERR_FILENO) == FILCH_OK;
}

/* Writes the text, or drops it if the pipe is still full after WAIT_NS. Once a text has been dropped, no later text
 * waits, so that the waits of many texts do not add up. */
static void write_some(fli_output *to, const char *text, size_t size)
{
    uint64_t now = fli_clock_ns();
    if (!fli_output_write_by(to, text, size, fli_output_dropped(to) > 0 ? now : now + WAIT_NS)) fli_output_drop(to);
}

static void write_text(bool to_err, const char *text)
{
    if (!streams.opened) open_streams();
    if (streams.ready) write_some(to_err ? &streams.err : &streams.out, text, strlen(text));
}

void cli_show(const char *text)
{
    write_text(false, text);
}

void cli_say(const char *format, ...)
{
    char    text[8192 + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_text(true, text);
}

void cli_error(const char *format, ...)
{
    char    text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char escaped[8192];
    (void)fli_escape(escaped, sizeof escaped, text, strlen(text));
    cli_say("%sfilch:%s %s\n", cli_ink_on(stderr, CLI_RED), cli_ink_on(stderr, CLI_PLAIN), escaped);
}

void cli_hint(const char *format, ...)
{
    char    text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char escaped[1024];
    (void)fli_escape(escaped, sizeof escaped, text, strlen(text));
    cli_say("%shint: %s%s\n", cli_ink_on(stderr, CLI_FAINT), escaped, cli_ink_on(stderr, CLI_PLAIN));
}

const char *cli_pid_text(filch_pid pid, char *text, size_t size)
{
    snprintf(text, size, "<%u.%u>", (unsigned)(pid.serial & UINT32_MAX), (unsigned)(pid.serial >> 32));
    return text;
}

/* Returns the edit distance of two words: letters changed, added, left out, or swapped with a neighbour. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 24 };
    size_t rows[3][LONGEST + 1], n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best) {
                best = above2[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest(const char *word, const char *const *texts, size_t count, size_t stride)
{
    const char *nearest = NULL;
    size_t      best = 3; /* words at a distance of 3 or more are not similar */
    for (size_t i = 0; i < count; i++) {
        const char *text = *(const char *const *)((const char *)texts + i * stride);
        size_t      far = distance(word, text);
        if (far < best && far < strlen(text)) {
            best = far;
            nearest = text;
        }
    }
    return nearest;
}
