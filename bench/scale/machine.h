/* machine.h - the machine that the scale model predicts: what each kind of access and each system call costs. All times
 * are picoseconds of virtual time. The values were chosen once, before any change that they are used to judge; the
 * source of each is in docs/design/scale.md. */
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
    scale_ps hit;   /* time of an access that finds its cache line in L1, and of the instructions around the access */
    scale_ps rmw;   /* additional time of a read-modify-write of a cache line that the core owns */
    scale_ps l2;    /* additional time of an access to a cache line that is in the core's L2 */
    scale_ps l3;    /* additional time of an access to a cache line that was evicted from the core's L1 and L2 */
    scale_ps page;  /* additional time of the first access to a page */
    scale_ps alloc; /* time of a call of malloc, realloc or free */
    scale_ps clock; /* time of a reading of the clock */
    scale_ps pause; /* time of the pause instruction */
    /* ---- between cores ---- */
    scale_ps near; /* time that an access waits for another core of the same socket */
    scale_ps far;  /* time that an access waits for a core of another socket */
    /* number of load misses that overlap if they are close together: each costs 1 / overlap of its time */
    uint64_t overlap;
    uint64_t window; /* two load misses are close together if at most this many accesses are between them */
    /* number of store misses that can be in flight: each store miss stalls its core for 1 / buffers of the transfer
     * time */
    uint64_t buffers;
    uint64_t readers; /* a load keeps its cache line busy for 1 / readers of the transfer time */
    /* number of cores of a socket; main.c raises it if two sockets have fewer cores than there are workers */
    uint64_t cores;
    /* ---- the system ---- */
    scale_ps call;      /* time of a system call that does nothing */
    scale_ps yield;     /* time of a sched_yield call if no other thread is ready */
    scale_ps block;     /* time from a thread's blocking call until the core of the thread is free */
    scale_ps wake_call; /* time that a futex call takes the calling thread if it wakes a thread */
    scale_ps wake;      /* time from the end of the futex call of the waking thread until the woken thread runs */
    scale_ps alarm;     /* time from the timeout of a wait until the waiting thread runs */
    scale_ps start;     /* time from the call that starts a thread until the thread runs */
} scale_machine;

extern const scale_machine scale_machine_default;

/* Changes one value: "near=50000". Returns false if `text` is not of this form or names no value. */
bool scale_machine_set(scale_machine *machine, const char *text);

#endif
