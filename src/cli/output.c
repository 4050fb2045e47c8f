/* output.c - see output.h. */
#include "cli/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MAX = 1 << 20 };

void cli_output_add(cli_output *out, const char *text, size_t size)
{
    if (size > OUTPUT_MAX - out->size) size = OUTPUT_MAX - out->size;
    if (out->size + size > out->room) {
        size_t room = (out->size + size) * 2;
        char  *more = realloc(out->text, room);
        if (more == NULL) return;
        out->text = more;
        out->room = room;
    }
    if (size > 0) memcpy(out->text + out->size, text, size);
    out->size += size;
}

void cli_output_print(cli_output *out, const char *format, ...)
{
    char    text[4096];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_output_add(out, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}

void cli_output_clear(cli_output *out)
{
    out->size = 0;
}

void cli_output_free(cli_output *out)
{
    free(out->text);
    *out = (cli_output){ NULL, 0, 0 };
}
