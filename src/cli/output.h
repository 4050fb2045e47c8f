/* output.h - text that is kept until somebody wants to see it: what a simulated run printed. */
#ifndef FILCH_CLI_OUTPUT_H
#define FILCH_CLI_OUTPUT_H

#include <stddef.h>

typedef struct cli_output {
    char  *text;
    size_t size, room;
} cli_output;

/* Adds to it. Where memory runs out, or beyond a megabyte, the rest is left out. */
void cli_output_add(cli_output *out, const char *text, size_t size);
void cli_output_print(cli_output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Empties it; the room stays. */
void cli_output_clear(cli_output *out);
void cli_output_free(cli_output *out);

#endif
