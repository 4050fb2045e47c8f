/* report.c - what a stop reports to its caller: processes ended by force, messages not read, writes that ended early,
 * steps and jobs that have not returned. Workers note these when they happen, under the lock of the stop. Each report
 * contains only what no earlier report contained. */
#include <string.h>

#include "proc/log.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/report.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "sched/worker.h"
#include "work/pool.h"

#define LEAST offsetof(filch_report, terminated) /* size in bytes of the first version of filch_report */
/* loss_locked() searches only the SEARCH newest entries of the list of losses, because losses of one process are noted
 * close together. */
#define SEARCH 64

static bool is_stopping(filch_sched *sched)
{
    return fli_load_rlx(&sched->rt.phase) != FLI_OPEN;
}

/* Returns the type name of the process `serial`, if the process lives, or if it has ended and no other process has used
 * its slot since. */
static const char *name_of(fli_runtime *rt, uint64_t serial)
{
    fli_proc *p = fli_proc_find(rt, serial);
    uint64_t  word = p != NULL ? fli_state_peek(&p->state) : 0;
    uint32_t  gen = fli_serial_gen(serial);
    bool      last = fli_word_gen(word) == gen || (fli_word_gen(word) == gen + 1 && fli_word_state(word) == FLI_FREE);
    return fli_type_name(p != NULL && last ? fli_proc_type(p) : NULL);
}

/* Makes room for one more item of `size` bytes. If there is no memory, counts the item as omitted and returns false. */
static bool grow_locked(filch_sched *sched, void **list, size_t count, size_t *room, size_t size)
{
    if (count < *room) return true;
    size_t more = *room == 0 ? 16 : *room * 2;
    void  *grown = fli_resize(&sched->rt.mem, *list, *room * size, more * size);
    if (grown == NULL) {
        sched->stop.losses.omitted++;
        return false;
    }
    *list = grown;
    *room = more;
    return true;
}

static void note_locked(filch_sched *sched, const filch_straggler *straggler)
{
    fli_losses *l = &sched->stop.losses;
    void       *list = l->stragglers;
    if (grow_locked(sched, &list, l->count, &l->room, sizeof *straggler)) {
        l->stragglers = list;
        l->stragglers[l->count++] = *straggler;
    }
}

/* Returns the entry of a process in the list of losses, and creates it if needed. Returns NULL if there is no
 * memory. */
static filch_loss *loss_locked(filch_sched *sched, uint64_t serial)
{
    fli_losses *l = &sched->stop.losses;
    void       *list = l->losses;
    for (size_t i = l->loss_count, tries = SEARCH; i > 0 && tries > 0; i--, tries--) {
        if (l->losses[i - 1].pid.serial == serial) return &l->losses[i - 1];
    }
    if (!grow_locked(sched, &list, l->loss_count, &l->loss_room, sizeof(filch_loss))) return NULL;
    l->losses = list;
    filch_loss *loss = &l->losses[l->loss_count++];
    *loss = (filch_loss){ .pid = { sched->rt.node_id, serial }, .name = name_of(&sched->rt, serial) };
    return loss;
}

void fli_stop_unread(filch_sched *sched, uint64_t serial, uint64_t unread)
{
    if (!is_stopping(sched)) return;
    fli_mutex_lock(&sched->stop.lock);
    filch_loss *loss = loss_locked(sched, serial);
    if (loss != NULL) loss->unread += unread;
    sched->stop.losses.unread += unread;
    fli_mutex_unlock(&sched->stop.lock);
}

void fli_stop_cut(filch_sched *sched, uint64_t serial, uint64_t bytes)
{
    if (!is_stopping(sched)) return;
    fli_mutex_lock(&sched->stop.lock);
    filch_loss *loss = loss_locked(sched, serial);
    if (loss != NULL) loss->writes++;
    if (loss != NULL) loss->bytes += bytes;
    sched->stop.losses.writes++;
    sched->stop.losses.bytes += bytes;
    fli_mutex_unlock(&sched->stop.lock);
}

void fli_stop_killed(filch_sched *sched)
{
    if (!is_stopping(sched)) return;
    fli_mutex_lock(&sched->stop.lock);
    sched->stop.losses.terminated++;
    fli_mutex_unlock(&sched->stop.lock);
}

void fli_stop_note(filch_sched *sched, fli_proc *p)
{
    fli_runtime    *rt = &sched->rt;
    filch_straggler straggler = {
        .pid = { rt->node_id, fli_proc_serial(p) },
        .name = fli_type_name(fli_proc_type(p)),
        .state = p->report_state,
        .waiting = p->yield_count,
    };
    (void)fli_yield_first(rt, p, &straggler.command, &straggler.tag);
    fli_mutex_lock(&sched->stop.lock);
    sched->stop.forced++;
    note_locked(sched, &straggler);
    fli_mutex_unlock(&sched->stop.lock);
    fli_log(rt, FILCH_LOG_WARNING, straggler.pid, straggler.name, FILCH_ECANCELLED,
            "stop ends it by force: %u yields are outstanding, one of command %u", straggler.waiting,
            straggler.command);
}

uint64_t fli_report_stuck(filch_sched *sched)
{
    uint64_t stuck = 0;
    fli_mutex_lock(&sched->stop.lock);
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        uint64_t serial = fli_load_rlx(&sched->workers[i]->status.serial);
        if (serial == 0) continue;
        filch_straggler straggler = { .pid = { sched->rt.node_id, serial },
                                      .name = fli_type_name(fli_type_of(&sched->rt, serial)),
                                      .state = FILCH_STATE_RUNNING };
        note_locked(sched, &straggler);
        stuck++;
    }
    fli_mutex_unlock(&sched->stop.lock);
    return stuck;
}

uint64_t fli_report_ended(filch_sched *sched)
{
    uint64_t ended = 0;
    for (uint32_t i = 0; i < sched->worker_total; i++) ended += fli_load_acq(&sched->workers[i]->local.counters.ended);
    return ended;
}

/* ---- filling the report ---- */

bool fli_report_is_sound(const filch_report *report)
{
    return report == NULL || report->size >= LEAST;
}

/* Adds the running jobs of the pool to the report. */
static void list_jobs(filch_sched *sched, filch_report *full)
{
    fli_runtime   *rt = &sched->rt;
    uint32_t       most = (uint32_t)full->jobs;
    fli_job_owner *owners = most > 0 ? fli_alloc(&rt->mem, most * sizeof *owners) : NULL;
    if (owners != NULL) {
        uint32_t there = fli_workpool_running(&sched->workpool, owners, most), count = there < most ? there : most;
        full->running = count > 0 ? fli_zalloc(&rt->mem, count * sizeof *full->running) : NULL;
        if (full->running != NULL) full->running_count = count;
        for (uint32_t i = 0; i < full->running_count; i++) {
            full->running[i] =
                (filch_running_job){ .pid = { owners[i].serial != 0 ? rt->node_id : 0, owners[i].serial },
                                     .name = name_of(rt, owners[i].serial),
                                     .tag = owners[i].tag,
                                     .command = owners[i].command };
        }
        fli_free(&rt->mem, owners, most * sizeof *owners);
    }
    full->omitted += most - full->running_count;
}

/* Returns how many processes have ended without force since the first stop began. A process ended by force is counted
 * first in stop->forced and then as ended. Between these two moments the result is one too small. */
static uint64_t polite_locked(filch_sched *sched)
{
    fli_stop *stop = &sched->stop;
    uint64_t  ended = fli_report_ended(sched) - stop->ended_before,
             polite = ended > stop->forced ? ended - stop->forced : 0;
    return polite < stop->polite_reported ? stop->polite_reported : polite;
}

void fli_report_give(filch_sched *sched, const filch_report *found, filch_report *out)
{
    fli_stop *stop = &sched->stop;
    fli_mem   mem = sched->rt.mem; /* a copy, with which the report frees its lists after the scheduler is freed */
    size_t    size = out == NULL ? 0 : out->size < sizeof *out ? out->size : sizeof *out;
    fli_mutex_lock(&stop->lock);
    fli_losses   l = stop->losses;
    uint64_t     polite = polite_locked(sched);
    filch_report full = { .size = size,
                          .ended = polite - stop->polite_reported,
                          .forced = stop->forced - stop->forced_reported,
                          .stuck = found->stuck,
                          .stragglers = l.stragglers,
                          .count = l.count,
                          .omitted = l.omitted,
                          .terminated = l.terminated,
                          .unread = l.unread,
                          .writes = l.writes,
                          .bytes = l.bytes,
                          .losses = l.losses,
                          .loss_count = l.loss_count,
                          .jobs = found->jobs,
                          .starved = found->starved };
    stop->losses = (fli_losses){ .count = 0 };
    stop->polite_reported = polite;
    stop->forced_reported = stop->forced;
    fli_mutex_unlock(&stop->lock);
    size_t straggler_bytes = l.room * sizeof *l.stragglers, loss_bytes = l.loss_room * sizeof *l.losses;
    if (size >= sizeof full) {
        list_jobs(sched, &full);
    } else { /* the caller's struct is of an older version, without fields for the lists of losses and jobs */
        fli_free(&mem, l.losses, loss_bytes);
        full.losses = NULL;
    }
    if (out == NULL) {
        fli_free(&mem, l.stragglers, straggler_bytes);
        return;
    }
    memcpy(&full.reserved[0], &mem, sizeof mem);
    memcpy(&full.reserved[2], &straggler_bytes, sizeof straggler_bytes);
    memcpy(&full.reserved[3], &loss_bytes, sizeof loss_bytes);
    memcpy(out, &full, size);
}

void filch_report_free(filch_report *report)
{
    if (report == NULL || report->size < LEAST) return;
    filch_report full = { .size = 0 };
    size_t       size = report->size, straggler_bytes, loss_bytes;
    fli_mem      mem;
    memcpy(&full, report, size < sizeof full ? size : sizeof full);
    memcpy(&mem, &full.reserved[0], sizeof mem);
    memcpy(&straggler_bytes, &full.reserved[2], sizeof straggler_bytes);
    memcpy(&loss_bytes, &full.reserved[3], sizeof loss_bytes);
    if (full.stragglers != NULL) fli_free(&mem, full.stragglers, straggler_bytes);
    if (full.losses != NULL) fli_free(&mem, full.losses, loss_bytes);
    if (full.running != NULL) fli_free(&mem, full.running, full.running_count * sizeof *full.running);
    memset(report, 0, size);
    report->size = size;
}
