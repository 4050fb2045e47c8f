/* stuck.c - decides whether a step that does not return is stuck, or whether the system just does not run its thread.
 * After the deadline of a stop, the stopping thread checks each worker that is inside a step every few milliseconds. It
 * judges by the CPU time and sleep of the thread, not by wall time: on a loaded machine a thread may get no CPU in the
 * middle of a short step.
 *
 * INVARIANT  every step that does not return is judged within STARVED_NS, whatever the system reports about its thread.
 * Design: docs/design/shutdown.md.
 */
#include "sched/stuck.h"
#include "port/clock.h"
#include "sched/sched.h"
#include "sched/worker.h"

#define GRACE_NS FILCH_MILLISECONDS(100) /* a step is stuck after this CPU time or this unbroken sleep */
#define UNKNOWN_NS FILCH_SECONDS(2)      /* a step is stuck after this wall time if its thread state is not known */
#define STARVED_NS FILCH_SECONDS(10)     /* a stop waits for no step longer than this wall time */

fli_verdict fli_stuck_judge(fli_stuck *seen, uint64_t now_ns, fli_thread_mood mood, uint64_t cpu_ns)
{
    uint64_t passed_ns = now_ns - seen->since_ns;
    if (mood != FLI_THREAD_SLEEPS) seen->asleep_ns = now_ns;
    if (mood == FLI_THREAD_UNKNOWN) return passed_ns >= UNKNOWN_NS ? FLI_VERDICT_STUCK : FLI_VERDICT_WAIT;
    if (cpu_ns - seen->cpu_ns >= GRACE_NS || now_ns - seen->asleep_ns >= GRACE_NS) return FLI_VERDICT_STUCK;
    return passed_ns >= STARVED_NS ? FLI_VERDICT_STARVED : FLI_VERDICT_WAIT;
}

/* Returns true if the step that the worker runs now (process `serial`, step number `steps`) is not the step that `seen`
 * describes. */
static bool is_new(const fli_stuck *seen, uint64_t serial, uint64_t steps)
{
    return seen->serial != serial || seen->steps != steps;
}

static fli_verdict look(fli_worker *w, uint64_t now_ns)
{
    fli_stuck      *seen = &w->stuck;
    uint64_t        serial = fli_load_rlx(&w->status.serial), steps = fli_counters_steps(&w->local.counters), cpu_ns;
    fli_thread_mood mood = fli_thread_look(&w->thread, &cpu_ns);
    if (is_new(seen, serial, steps)) {
        *seen =
            (fli_stuck){ .serial = serial, .steps = steps, .cpu_ns = cpu_ns, .since_ns = now_ns, .asleep_ns = now_ns };
    }
    return fli_stuck_judge(seen, now_ns, mood, cpu_ns);
}

fli_verdict fli_stuck_look(filch_sched *sched, uint64_t began_ns, uint64_t *starved)
{
    uint64_t now_ns = fli_clock_ns();
    bool     waits = false, any = false;
    *starved = 0;
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_worker *w = sched->workers[i];
        if (fli_load_rlx(&w->status.serial) == 0) {
            w->stuck.serial = 0;
            continue;
        }
        fli_verdict verdict = look(w, now_ns);
        any = true;
        waits |= verdict == FLI_VERDICT_WAIT;
        *starved += verdict == FLI_VERDICT_STARVED;
    }
    /* No worker is inside a step. A process may be left for one of these reasons: a worker is between two steps or in a
     * close; a foreign thread is inside the init of a spawn; the process is a direct handoff to a worker that the
     * system does not run (run_pending() in stop.c does not find a handoff). */
    if (!any) return now_ns - began_ns < UNKNOWN_NS ? FLI_VERDICT_WAIT : FLI_VERDICT_STUCK;
    return waits && now_ns - began_ns < STARVED_NS ? FLI_VERDICT_WAIT : FLI_VERDICT_STUCK;
}
