/* blame.h - which code waited, and for how long. */
#ifndef SCALE_BLAME_H
#define SCALE_BLAME_H

#include <stdio.h>

#include "scale/machine.h"

typedef enum scale_blame_kind {
    SCALE_BLAME_LINE, /* wait for a cache line that came from another core */
    SCALE_BLAME_LOCK, /* wait for a lock that was held, or time to wake the waiters of a lock that was released */
    SCALE_BLAME_WAKE  /* time of a system call that woke a thread */
} scale_blame_kind;

void scale_blame(scale_blame_kind kind, const void *pc, scale_ps waited);
void scale_blame_clear(void);
/* Prints the `count` places in the code with the longest waits as a JSON list. */
void scale_blame_print(FILE *out, unsigned count);

#endif
