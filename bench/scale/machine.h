/* machine.h - the machine that the model predicts: what each kind of access and each system call costs. All times are
 * picoseconds of virtual time. The values were chosen once, before any change that they are used to judge; the source
 * of each is in docs/design/scale.md. */
#ifndef SCALE_MACHINE_H
#define SCALE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t scale_ps;

#define SCALE_NS ((scale_ps)1000)
#define SCALE_US ((scale_ps)1000000)
#define SCALE_NEVER UINT64_MAX

typedef struct scale_machine {
    /* ---- one core ---- */
    scale_ps hit;   /* an access that finds its line in L1, and the instructions around it */
    scale_ps rmw;   /* a read-modify-write of a line that this core owns */
    scale_ps l2;    /* the line is in L2 */
    scale_ps l3;    /* the line was in L1 or L2 of this core once, and was evicted */
    scale_ps page;  /* first access to a page */
    scale_ps alloc; /* a call of malloc, realloc or free */
    scale_ps clock; /* a reading of the clock */
    scale_ps pause; /* the pause instruction */
    /* ---- between cores ---- */
    scale_ps near;    /* a line comes from a core of the same socket */
    scale_ps far;     /* a line comes from another socket */
    uint64_t overlap; /* load misses close together: each costs 1 / overlap of the time */
    uint64_t window;  /* two load misses are close together if at most this many accesses are between them */
    uint64_t buffers; /* store misses in flight: each stalls its core for 1 / buffers of the time */
    uint64_t readers; /* a load occupies its line for 1 / readers of the transfer */
    uint64_t cores;   /* cores of a socket; more if two sockets have too few for the workers */
    /* ---- the system ---- */
    scale_ps call;      /* a system call that does nothing */
    scale_ps yield;     /* sched_yield with no other thread */
    scale_ps block;     /* from the call that blocks a thread until its core is free */
    scale_ps wake_call; /* a futex call that wakes a thread: time of the caller */
    scale_ps wake;      /* from the end of the futex call until the woken thread runs */
    scale_ps alarm;     /* from the end of a timed wait until the thread runs */
    scale_ps start;     /* from the start of a thread until it runs */
} scale_machine;

extern const scale_machine scale_machine_default;

/* Changes one value: "near=50000". Returns false if `text` is not of this form or names no value. */
bool scale_machine_set(scale_machine *machine, const char *text);

#endif
