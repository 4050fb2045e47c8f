/* trim.c - returns the memory of nodes and processes to the system after a peak.
 *
 * A worker that is about to park looks whether the slabs have many free pages (sync/slab.h). If so, one parked worker
 * wakes after INTERVAL_NS and returns the pages that were not used since, in portions of PORTION pages with a pause
 * between them, until as few are left as a scheduler keeps. It does so while it is counted as parked: a thread that
 * queues a process unparks another worker first, and this one at the latest after its portion. A scheduler without
 * workers does the same at the end of a tick, when the host calls filch_tick.
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
/* Free pages that are kept: 256 KiB of nodes and 512 KiB of processes, and the 4,096 objects at hand in each depot. */
#define KEPT_PAGES 64
/* Pages that are returned without a pause. 64 pages of nodes take about as long as a wake-up (80 us on a 2-core virtual
 * machine), most of it in the system. */
#define PORTION 64
#define INTERVAL_NS UINT64_C(100000000)
#endif
#define PAUSE_NS UINT64_C(250000)

void fli_trim_init(fli_trim *trim)
{
    fli_atomic_init(&trim->due_ns, FLI_NEVER);
}

/* Returns how many free pages the slab has more than it keeps. */
static uint32_t surplus(fli_slab *slab)
{
    uint32_t pages = slab->return_ops != NULL ? fli_load_rlx(&slab->free_pages) : 0;
    return pages > KEPT_PAGES ? pages - KEPT_PAGES : 0;
}

static bool has_surplus(filch_sched *sched)
{
    return surplus(&sched->rt.nodes) > 0 || surplus(&sched->rt.short_nodes) > 0 || surplus(&sched->rt.procs) > 0;
}

/* Returns a portion. Returns true if more can be returned in this interval. */
static bool trim(fli_slab *slab)
{
    uint32_t most = surplus(slab);
    if (most == 0) return false;
    return fli_slab_trim(slab, most < PORTION ? most : PORTION) > 0 && surplus(slab) > 0;
}

void fli_trim_plan(filch_sched *sched)
{
    if (fli_load_rlx(&sched->trim.due_ns) != FLI_NEVER || !has_surplus(sched)) return;
    /* Begins an interval: nothing was unused since the end of the last one, or it has been returned. */
    (void)fli_slab_trim(&sched->rt.nodes, 0);
    (void)fli_slab_trim(&sched->rt.short_nodes, 0);
    (void)fli_slab_trim(&sched->rt.procs, 0);
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
    /* The winner of the CAS returns the next portion; the others find a later time. */
    if (!fli_cas_weak_rlx(&sched->trim.due_ns, &due, fli_clock_after(now_ns, INTERVAL_NS))) return;
    bool more_nodes = trim(&sched->rt.nodes), more_short = trim(&sched->rt.short_nodes),
         more_procs = trim(&sched->rt.procs);
    if (more_nodes || more_short || more_procs)
        fli_store_rlx(&sched->trim.due_ns, fli_clock_after(fli_clock_ns(), PAUSE_NS));
    else if (!has_surplus(sched)) fli_store_rlx(&sched->trim.due_ns, FLI_NEVER);
}
