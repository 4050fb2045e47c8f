/* complain.h - writes lines to stderr and stdout without ever blocking: a process that does not read the pipe must not
 * stop the service. */
#ifndef SERVICE_COMPLAIN_H
#define SERVICE_COMPLAIN_H

/* Writes a line, formatted as by printf; `format` has no newline at its end. If the line cannot be written without
 * blocking, it is dropped; the next line that is written says how many were dropped. Thread: any. */
void complain_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes a line to stdout; if that would block, writes it to stderr like complain_line(). Thread: any. */
void announce_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
