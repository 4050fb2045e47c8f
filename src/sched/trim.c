/* trim.c - returns the memory of nodes, short nodes and processes to the system after a peak.
 *
 * A worker that is about to park looks whether the slabs have many free pages (sync/slab.h). If so, one parked worker
 * wakes after INTERVAL_NS and returns the pages that were not used since, in portions of PORTION pages with a pause
 * between them, until as few are left as a scheduler keeps. It does so while it is counted as parked: a thread that
 * queues a process unparks another worker first, and this one at the latest after its portion. A scheduler without
 * workers does the same at the end of a tick, when the program calls filch_tick.
 *
 * Memory that is needed again within INTERVAL_NS is not returned: a program with bursts of messages keeps the memory of
 * a burst. After the last portion no worker has a timeout: an idle scheduler makes no system call.
 *
 * A program that keeps all workers busy for ever returns nothing.
 * Design: docs/design/memory.md.
 */
#include "sched/trim.h"

#include "port/clock.h"
#include "proc/runtime.h"
#include "sched/sched.h"
#include "sync/slab.h"

#ifdef FLI_SMALL
#define KEPT_PAGES 0
#define PORTION 2
#define INTERVAL_NS UINT64_C(20000)
#else
/* Number of free pages that each slab keeps: 256 KiB of nodes, 128 KiB of short nodes and 512 KiB of processes. In
 * addition each depot keeps 4,096 objects at hand. */
#define KEPT_PAGES 64
/* Number of pages that are returned to the system without a pause. For 64 pages of nodes this takes about as long as a
 * wake-up (80 us on a 2-core virtual machine), most of it in the system. */
#define PORTION 64
#define INTERVAL_NS UINT64_C(100000000)
#endif
#define PAUSE_NS UINT64_C(250000)

void fli_trim_init(fli_trim *trim)
{
    fli_atomic_init(&trim->due_ns, FLI_NEVER);
}

/* Returns how many free pages the slab has in addition to the KEPT_PAGES that it keeps. */
static uint32_t surplus(fli_slab *slab)
{
    uint32_t pages = slab->return_ops != NULL ? fli_load_rlx(&slab->free_pages) : 0;
    return pages > KEPT_PAGES ? pages - KEPT_PAGES : 0;
}

enum { SLABS = 3 };

/* Returns slab `i` of the SLABS slabs that return pages to the system: create.c calls fli_slab_allow_return() for
 * them. */
static fli_slab *slab_at(filch_sched *sched, int i)
{
    fli_slab *const slabs[SLABS] = { &sched->rt.nodes, &sched->rt.short_nodes, &sched->rt.procs };
    return slabs[i];
}

static bool has_surplus(filch_sched *sched)
{
    for (int i = 0; i < SLABS; i++) {
        if (surplus(slab_at(sched, i)) > 0) return true;
    }
    return false;
}

/* Returns up to PORTION free pages of the slab to the system. Returns only pages that stayed unused since the interval
 * began (fli_trim_plan(), fli_slab_trim()). The result is true if the slab has more such pages. */
static bool trim(fli_slab *slab)
{
    uint32_t most = surplus(slab);
    if (most == 0) return false;
    return fli_slab_trim(slab, most < PORTION ? most : PORTION) > 0 && surplus(slab) > 0;
}

void fli_trim_plan(filch_sched *sched)
{
    if (fli_load_rlx(&sched->trim.due_ns) != FLI_NEVER || !has_surplus(sched)) return;
    /* Begins an interval, in which each slab notes how many of its pages stay unused. All pages that stayed unused in
     * the last interval have been returned to the system. */
    for (int i = 0; i < SLABS; i++) (void)fli_slab_trim(slab_at(sched, i), 0);
    fli_store_rlx(&sched->trim.due_ns, fli_clock_after(fli_clock_ns(), INTERVAL_NS));
}

uint64_t fli_trim_due_ns(filch_sched *sched)
{
    return fli_load_rlx(&sched->trim.due_ns);
}

void fli_trim_run(filch_sched *sched, uint64_t now_ns)
{
    uint64_t due = fli_load_rlx(&sched->trim.due_ns);
    if (now_ns < due) return;
    /* The thread with the successful CAS returns the next portion to the system; for other threads due_ns is then a
     * later time. */
    if (!fli_cas_weak_rlx(&sched->trim.due_ns, &due, fli_clock_after(now_ns, INTERVAL_NS))) return;
    bool more = false;
    for (int i = 0; i < SLABS; i++) more |= trim(slab_at(sched, i));
    if (more) fli_store_rlx(&sched->trim.due_ns, fli_clock_after(fli_clock_ns(), PAUSE_NS));
    else if (!has_surplus(sched)) fli_store_rlx(&sched->trim.due_ns, FLI_NEVER);
}

uint64_t fli_trim_returned_bytes(filch_sched *sched)
{
    uint64_t bytes = 0;
    for (int i = 0; i < SLABS; i++) bytes += fli_load_rlx(&slab_at(sched, i)->returned_bytes);
    return bytes;
}
