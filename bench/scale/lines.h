/* lines.h - where each cache line is, and what an access to it costs.
 *
 * A core has an L1 and an L2 of its own; a line that was evicted from both is in L3, which has no limit. A directory
 * knows the cores that hold a valid copy of each line, and the core that owns it (holds the only copy and may write).
 *
 *     load      hit if the core holds a copy; otherwise the line is transferred, and the owner keeps a copy
 *     store     hit if the core owns the line; otherwise the line is transferred and all other copies become invalid.
 *               The core continues at once (store buffer), and waits at its next read-modify-write
 *     rmw       as a store, but the core waits until its stores and the transfer have ended
 *
 * Transfers of one line are served one after another, first come, first served.
 *
 * Lines are numbered in the order in which their pages are first accessed, so that the cost does not depend on the
 * addresses that the system happens to give.
 */
#ifndef SCALE_LINES_H
#define SCALE_LINES_H

#include "scale/machine.h"

#define SCALE_CORES_MAX 512

typedef enum scale_access { SCALE_LOAD, SCALE_STORE, SCALE_RMW } scale_access;

typedef struct scale_counts {
    uint64_t accesses, rmws, l2, l3, pages;
    uint64_t transfers; /* number of cache lines that came from another core */
    uint64_t far;       /* how many of `transfers` came from a core of another socket */
    scale_ps stall;     /* time in which the core waited for transfers */
} scale_counts;

typedef struct scale_core {
    uint32_t            index;
    uint32_t            socket;
    scale_ps            now;         /* clock of this core */
    scale_ps            stores_done; /* time at which the transfer for the core's last store ends */
    uint64_t            last_miss;   /* value of counts.accesses at the last load miss */
    struct scale_cache *cache;
    scale_counts        counts;
} scale_core;

typedef struct scale_lines scale_lines;

scale_lines *scale_lines_create(const scale_machine *machine);
void         scale_lines_destroy(scale_lines *lines);

void scale_core_init(scale_core *core, uint32_t index, uint32_t socket);
void scale_core_fini(scale_core *core);

/* Models an access to the cache line of the address `at`, which is not dereferenced. Advances the clock of the core.
 * Returns the time in which the core waited for a transfer: 0 if the access was a hit. */
scale_ps scale_lines_access(scale_lines *lines, scale_core *core, uintptr_t at, scale_access access);

#endif
