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
    scale_ps hit;   /* an access that finds its cache line in L1, and the instructions around the access */
    scale_ps rmw;   /* a read-modify-write of a cache line that the core owns */
    scale_ps l2;    /* an access to a cache line that is in the core's L2 */
    scale_ps l3;    /* an access to a cache line that was evicted from the core's L1 and L2 */
    scale_ps page;  /* first access to a page */
    scale_ps alloc; /* a call of malloc, realloc or free */
    scale_ps clock; /* a reading of the clock */
    scale_ps pause; /* the pause instruction */
    /* ---- between cores ---- */
    scale_ps near; /* an access that waits for another core of the same socket */
    scale_ps far;  /* an access that waits for a core of another socket */
    /* number of load misses that overlap if they are close together: each costs 1 / overlap of its time */
    uint64_t overlap;
    uint64_t window;  /* two load misses are close together if at most this many accesses are between them */
    uint64_t buffers; /* number of store misses in flight: each stalls its core for 1 / buffers of its time */
    uint64_t readers; /* a load keeps its cache line busy for 1 / readers of the transfer time */
    uint64_t cores;   /* number of cores of a socket; raised if the workers need more than two sockets have */
    /* ---- the system ---- */
    scale_ps call;      /* a system call that does nothing */
    scale_ps yield;     /* a sched_yield call if no other thread is ready */
    scale_ps block;     /* from the call by which a thread blocks until its core is free */
    scale_ps wake_call; /* time that a futex call takes the calling thread if it wakes a thread */
    scale_ps wake;      /* from the end of the futex call until the woken thread runs */
    scale_ps alarm;     /* from the timeout of a wait until the waiting thread runs */
    scale_ps start;     /* from the start of a thread until it runs */
} scale_machine;

extern const scale_machine scale_machine_default;

/* Changes one value: "near=50000". Returns false if `text` is not of this form or names no value. */
bool scale_machine_set(scale_machine *machine, const char *text);

#endif
