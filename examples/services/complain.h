/* complain.h - lines on stderr that never block: a reader that does not read must not stop the service. */
#ifndef SERVICE_COMPLAIN_H
#define SERVICE_COMPLAIN_H

/* Writes a line, formatted as by printf, without its end. If there is no room for it now, it is dropped; the next line that
 * is written says how many were. Thread: any. */
void complain_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
