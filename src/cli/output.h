/* output.h - a buffer for the text that a simulated run prints. The text is shown only if the run fails. */
#ifndef FILCH_CLI_OUTPUT_H
#define FILCH_CLI_OUTPUT_H

#include <stddef.h>

typedef struct cli_output {
    char  *text;
    size_t size, room;
} cli_output;

/* Appends text to the buffer. Drops the part that exceeds one megabyte or for which there is no memory. */
void cli_output_add(cli_output *out, const char *text, size_t size);
void cli_output_print(cli_output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Empties the buffer and keeps its memory. */
void cli_output_clear(cli_output *out);
void cli_output_free(cli_output *out);

#endif
