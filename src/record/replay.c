/* replay.c - filch_blackbox_replay: runs one process again from its recording.
 *
 *   1. checks the recording from the first to the last byte
 *   2. creates a scheduler without threads, because the instance needs a context; this scheduler runs no process
 *   3. creates an instance with the recorded method, args and values
 *   4. calls the step function with the recorded events of each step, on the caller's thread. Calls that act on other
 *      processes go to the hooks of this file (fli_rec_hooks): a hook compares the call with the next recorded call and
 *      returns the recorded result, without making the call
 *   5. closes the instance, once
 *
 * After a difference the replay continues until the instance ends, to learn whether it fails again. A call of the kind
 * of the next recorded call returns the result of that recorded call; any other call returns FILCH_OK.
 * Page: docs/BLACKBOX.md.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "payload/data.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "proc/values.h"
#include "record/record.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/spawn.h"
#include "sched/worker.h"

typedef struct replay {
    fli_rec_hooks          hooks; /* first member: local.rec_hooks points here */
    fli_mem                mem;
    fli_box_reader         reader;
    fli_box_item           next; /* inside a step: the next recorded item, a call or the result of the step */
    filch_blackbox_report *report;
    const fli_upper_ops   *upper;
    filch_sched           *sched;
    fli_worker            *worker;
    filch_values          *values;
    /* the replayed process, fli_local.current during the replay; not in a slab, so no pid names it */
    fli_proc          proc;
    const filch_type *type;
    void             *self;
    filch_event      *events;
    uint32_t          event_count, event_room;
    bool              aside;  /* init or close is running; a recording does not contain calls made there */
    uint64_t          calls;  /* number of calls that the current step has made */
    uint32_t          yields; /* number of yields that the current step has made and that were accepted */
    /* number of serials that were made up for spawned children that the recording does not have */
    uint64_t invented;
} replay;

/* ---- texts of the report ---- */

static const char *const call_names[] = {
    [FLI_REC_SEND] = "send",       [FLI_REC_DELIVER] = "deliver", [FLI_REC_YIELD] = "yield",
    [FLI_REC_SPAWN] = "spawn",     [FLI_REC_CANCEL] = "cancel",   [FLI_REC_TERMINATE] = "terminate",
    [FLI_REC_RELATE] = "relation", [FLI_REC_WHEREIS] = "whereis",
};

static const char *const kind_names[] = {
    [FILCH_KIND_NONE] = "nothing", [FILCH_KIND_INT] = "an int",    [FILCH_KIND_NUM] = "a num",
    [FILCH_KIND_PID] = "a pid",    [FILCH_KIND_PTR] = "a pointer", [FILCH_KIND_TEXT] = "a text",
    [FILCH_KIND_BYTES] = "bytes",
};

#define WORDS 100

static const char *say_call(const fli_rec_call *call, char words[WORDS])
{
    const char *what = call_names[call->kind];
    const char *kind = kind_names[call->data.kind];
    unsigned    hash = (unsigned)(call->data.hash & 0xffffu);
    if (call->kind == FLI_REC_SPAWN) {
        snprintf(words, WORDS, "%s %.30s with %s (#%04x)", what, call->name, kind, hash);
    } else if (call->kind == FLI_REC_WHEREIS) {
        snprintf(words, WORDS, "%s %.60s", what, call->name);
    } else if (call->kind == FLI_REC_RELATE) {
        snprintf(words, WORDS, "%s %" PRIu32 " with %" PRIx64 ".%" PRIx64 " %.30s", what, call->command, call->pid.node,
                 call->pid.serial, call->name);
    } else if (call->kind == FLI_REC_YIELD) {
        snprintf(words, WORDS, "%s %" PRIu32 " tag %" PRIu64 " with %s (%" PRIu64 " bytes, #%04x)", what, call->command,
                 call->tag, kind, call->data.size, hash);
    } else {
        snprintf(words, WORDS, "%s to %" PRIx64 ".%" PRIx64 " of %s (%" PRIu64 " bytes, #%04x)", what, call->pid.node,
                 call->pid.serial, kind, call->data.size, hash);
    }
    return words;
}

static const char *say_result(const fli_rec_result *result, char words[WORDS])
{
    static const char *const names[] = { "none", "continue", "wait", "idle", "done", "upgrade", "fail" };
    if (result->error != FILCH_OK) {
        snprintf(words, WORDS, "error %d (%.60s)", result->error, filch_err_text(result->error));
    } else if (result->status == FLI_STATUS_DONE) {
        snprintf(words, WORDS, "done with %s (%" PRIu64 " bytes, #%04x)", kind_names[result->value.kind],
                 result->value.size, (unsigned)(result->value.hash & 0xffffu));
    } else {
        const char *name = result->status < sizeof names / sizeof names[0] ? names[result->status] : "?";
        snprintf(words, WORDS, "%s%s%.40s", name, result->name != NULL && result->name[0] != '\0' ? " to " : "",
                 result->name != NULL ? result->name : "");
    }
    return words;
}

/* Reports a difference in the current step. Only the first difference is kept. */
static void differs(replay *rp, const char *then, const char *now)
{
    filch_blackbox_report *report = rp->report;
    if (report->differs != 0) return;
    report->differs = report->fed;
    snprintf(report->text, sizeof report->text, "step %" PRIu64 ": recorded %s, now %s", report->fed, then, now);
}

static bool same_digest(const fli_box_digest *a, const fli_box_digest *b)
{
    return a->kind == b->kind && a->size == b->size && (a->kind == FILCH_KIND_PTR || a->hash == b->hash);
}

static bool same_name(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

static bool same_call(const fli_rec_call *a, const fli_rec_call *b)
{
    /* the pid of a spawn or whereis is the result of the call, so it is not compared */
    bool answer = a->kind == FLI_REC_SPAWN || a->kind == FLI_REC_WHEREIS;
    bool pids = answer || (a->pid.node == b->pid.node && a->pid.serial == b->pid.serial);
    return a->kind == b->kind && pids && a->command == b->command && a->tag == b->tag &&
           same_digest(&a->data, &b->data) && same_name(a->name, b->name);
}

/* ---- the hooks: compare the call, return the recorded result ---- */

/* Compares `call` with the next recorded call, and returns the result of the recorded call. For a spawn or whereis also
 * sets *pid, for a relation *given. Sets neither and returns FILCH_OK if the next recorded call is of another kind, if
 * none is left in this step, and during init and close. */
static filch_err replay_call(replay *rp, const fli_rec_call *call, filch_pid *pid, uint64_t *given)
{
    char then[WORDS], now[WORDS];
    if (rp->aside) return FILCH_OK;
    rp->calls++;
    if (rp->next.kind == FLI_BOX_RESULT) {
        /* The recording of this step has no further written call. A recording counts all calls of a step, but writes
         * only the first CALLS_MAX. So this call is a difference only if the replayed step has now made more calls than
         * the recorded number. */
        if (rp->calls > rp->next.result.calls) differs(rp, "nothing more", say_call(call, now));
        return FILCH_OK;
    }
    fli_rec_call was = rp->next.call;
    if (!same_call(&was, call)) differs(rp, say_call(&was, then), say_call(call, now));
    if (was.kind != call->kind) return FILCH_OK;
    (void)fli_box_next(&rp->reader, &rp->next);
    if (was.kind == FLI_REC_SPAWN || was.kind == FLI_REC_WHEREIS) *pid = was.pid;
    if (was.kind == FLI_REC_RELATE) *given = was.given;
    return was.answer;
}

/* If the call returned FILCH_OK, frees `data` if it was moved, because a successful call takes ownership of moved
 * data. */
static filch_err take_data(replay *rp, const filch_data *data, filch_err err)
{
    if (err != FILCH_OK) return err;
    filch_data owned = filch_none();
    err = fli_data_own(&rp->mem, rp->sched->rt.payload_max, data, &owned);
    if (err == FILCH_OK) fli_data_free(&owned);
    return err;
}

static filch_err on_send(fli_local *worker, filch_pid to, filch_pid from, const filch_data *data, bool deliver)
{
    replay      *rp = (replay *)worker->rec_hooks;
    fli_rec_call call = fli_rec_call_send(to, data, deliver);
    (void)from;
    return take_data(rp, data, replay_call(rp, &call, NULL, NULL));
}

static filch_err on_set_flag(fli_local *worker, filch_pid pid, uint64_t flag)
{
    fli_rec_call call = fli_rec_call_set_flag(pid, flag);
    return replay_call((replay *)worker->rec_hooks, &call, NULL, NULL);
}

static filch_err on_yield(fli_local *worker, filch_out *out, uint32_t command, uint64_t tag, filch_pid target,
                          const filch_data *data)
{
    replay      *rp = (replay *)worker->rec_hooks;
    fli_rec_call call = fli_rec_call_yield(command, tag, target, data);
    (void)out;
    filch_err err = take_data(rp, data, replay_call(rp, &call, NULL, NULL));
    if (err == FILCH_OK) rp->yields++;
    return err;
}

static filch_err on_spawn(fli_local *worker, const filch_type *type, const filch_spawn_options *options, filch_pid *pid)
{
    replay      *rp = (replay *)worker->rec_hooks;
    fli_rec_call call = fli_rec_call_spawn(type, options);
    filch_pid    child = { rp->report->pid.node, UINT64_MAX - rp->invented };
    filch_err    err = replay_call(rp, &call, &child, NULL);
    if (child.serial == UINT64_MAX - rp->invented) rp->invented++;
    if (err == FILCH_OK && pid != NULL) *pid = child;
    return err;
}

static filch_err on_relate(fli_local *worker, fli_request *request)
{
    replay      *rp = (replay *)worker->rec_hooks;
    fli_rec_call call = fli_rec_call_relate(request);
    if (call.name == NULL) call.name = "";
    filch_err err = replay_call(rp, &call, NULL, &request->given);
    return request->data != NULL ? take_data(rp, request->data, err) : err;
}

/* Where calls are not recorded (init and close), returns FILCH_EDEAD for every name. */
static filch_err on_whereis(fli_local *worker, const char *name, filch_pid *pid)
{
    fli_rec_call call = fli_rec_call_whereis(name);
    filch_pid    found = { 0, 0 };
    filch_err    err = replay_call((replay *)worker->rec_hooks, &call, &found, NULL);
    if (err == FILCH_OK && found.serial == 0) return FILCH_EDEAD;
    if (err == FILCH_OK) *pid = found;
    return err;
}

static const fli_rec_hooks replaying = { .send = on_send,
                                         .set_flag = on_set_flag,
                                         .yield = on_yield,
                                         .spawn = on_spawn,
                                         .relate = on_relate,
                                         .whereis = on_whereis };

/* ---- recorded payloads, values and events ---- */

/* Copies a recorded payload to *out, which owns its bytes. If the payload is a pointer, the function report.pointer
 * replaces it; if report.pointer is NULL, sets *stop. */
static filch_err bring_back(replay *rp, const filch_data *recorded, uint64_t cut, filch_data *out, bool *stop)
{
    filch_blackbox_report *report = rp->report;
    if (cut > 0) report->cut++;
    if (filch_kind_of(recorded) != FILCH_KIND_PTR) return fli_data_own(&rp->mem, 0, recorded, out);
    report->pointers++;
    *stop = report->pointer == NULL;
    void *was = filch_as_ptr(recorded);
    *out = filch_ptr(*stop ? NULL : report->pointer(report->pointer_user, report->fed, was));
    return FILCH_OK;
}

typedef struct inherited_value {
    const char *key;
    filch_data  data; /* owned */
} inherited_value;

/* Reads the recorded values of the process into *all, up to the item BORN of the recording. */
static filch_err read_values(replay *rp, inherited_value **all, uint32_t *count, uint32_t *room)
{
    fli_box_item item;
    while (fli_box_next(&rp->reader, &item) == FLI_BOX_VALUE) {
        if (*count == *room) {
            uint32_t         more = *room == 0 ? 8 : *room * 2;
            inherited_value *grown = fli_resize(&rp->mem, *all, *room * sizeof *grown, more * sizeof *grown);
            if (grown == NULL) return FILCH_ENOMEM;
            *all = grown;
            *room = more;
        }
        inherited_value *one = &(*all)[*count];
        /* set by bring_back(), but not used: a pointer that cannot be replaced becomes NULL */
        bool none = false;
        one->key = item.name;
        filch_err err = bring_back(rp, &item.event.data, item.cut, &one->data, &none);
        if (err != FILCH_OK) return err;
        (*count)++;
    }
    return FILCH_OK;
}

/* Creates the values that the process inherited, the oldest first. The recording has them in reverse order, the newest
 * first. */
static filch_err make_values(replay *rp)
{
    inherited_value *all = NULL;
    uint32_t         count = 0, room = 0;
    filch_err        err = read_values(rp, &all, &count, &room);
    while (count-- > 0) {
        filch_values *longer = NULL;
        if (err == FILCH_OK) err = filch_values_create(rp->values, all[count].key, all[count].data, &longer);
        fli_data_free(&all[count].data);
        if (longer == NULL) continue;
        filch_values_drop(rp->values);
        rp->values = longer;
    }
    fli_free(&rp->mem, all, room * sizeof *all);
    return err;
}

static bool event_room(replay *rp)
{
    if (rp->event_count < rp->event_room) return true;
    uint32_t     room = rp->event_room == 0 ? 64 : rp->event_room * 2;
    filch_event *all = fli_resize(&rp->mem, rp->events, rp->event_room * sizeof *all, room * sizeof *all);
    if (all == NULL) return false;
    rp->events = all;
    rp->event_room = room;
    return true;
}

/* Reads the events of a step into rp->events, and the recorded item after the events into rp->next. */
static filch_err read_events(replay *rp, bool *stop)
{
    fli_box_item *item = &rp->next;
    while (fli_box_next(&rp->reader, item) == FLI_BOX_EVENT) {
        if (!event_room(rp)) return FILCH_ENOMEM;
        filch_event *event = &rp->events[rp->event_count];
        bool         pointer = false;
        *event = item->event;
        filch_err err = bring_back(rp, &item->event.data, item->cut, &event->data, &pointer);
        if (err != FILCH_OK) return err;
        rp->event_count++;
        *stop = *stop || pointer;
    }
    return FILCH_OK;
}

static void free_events(replay *rp)
{
    while (rp->event_count > 0) fli_data_free(&rp->events[--rp->event_count].data);
}

/* ---- the replayed instance ---- */

static void close_instance(replay *rp)
{
    if (rp->self == NULL) return;
    rp->aside = true;
    if (rp->type->close != NULL) rp->type->close(rp->self);
    rp->aside = false;
    fli_instance_free(rp->sched, rp->type, NULL, rp->self);
    rp->self = NULL;
}

/* Creates the state of the replayed process by calling init. Sets *stop if that is not possible; the report has the
 * reason. */
static filch_err make_instance(replay *rp, bool *stop)
{
    filch_blackbox_report *report = rp->report;
    filch_data             args = filch_none();
    filch_err              err = make_values(rp);
    if (err == FILCH_OK) err = bring_back(rp, &rp->reader.args, rp->reader.args_cut, &args, stop);
    if (err != FILCH_OK) return err;
    if (*stop) {
        snprintf(report->text, sizeof report->text, "not begun: its args are a pointer, and report.pointer is NULL");
        return FILCH_OK;
    }
    rp->proc.values = rp->values;
    filch_ctx ctx = { .self = report->pid, .sched = rp->sched, .values = rp->values };
    rp->aside = true;
    report->error = fli_instance_make(rp->sched, rp->type, &ctx, rp->reader.method, &args, NULL, &rp->self);
    rp->aside = false;
    fli_data_free(&args);
    if (report->error == FILCH_OK) return FILCH_OK;
    *stop = true;
    snprintf(report->text, sizeof report->text, "init failed with error %d (%s)", report->error,
             filch_err_text(report->error));
    return FILCH_OK;
}

/* Compares the result of the replayed step, `now`, with the recorded result. */
static void compare_result(replay *rp, const fli_rec_result *now)
{
    char words[WORDS], more[WORDS];
    if (rp->next.kind == FLI_BOX_CALL) {
        differs(rp, say_call(&rp->next.call, words), say_result(now, more));
        while (rp->next.kind == FLI_BOX_CALL) (void)fli_box_next(&rp->reader, &rp->next);
    }
    const fli_rec_result *then = &rp->next.result;
    bool equal = then->error == now->error && then->status == now->status && same_digest(&then->value, &now->value) &&
                 same_name(then->name, now->name);
    if (!equal) differs(rp, say_result(then, words), say_result(now, more));
    else if (then->calls != now->calls) differs(rp, "more sends, yields or the like", "fewer");
}

static void change_type(replay *rp, filch_out *out)
{
    close_instance(rp);
    rp->type = out->type;
    rp->self = out->self;
    out->status = FLI_STATUS_NONE;
}

/* Replays the next recorded step. `waiting`: yields outstanding before the step. Sets *stop if the process ends with
 * the step, or if an event contains a pointer that cannot be replaced. */
static filch_err feed(replay *rp, uint32_t waiting, bool *stop)
{
    filch_blackbox_report *report = rp->report;
    fli_worker            *w = rp->worker;
    report->fed++;
    filch_err err = read_events(rp, stop);
    if (err != FILCH_OK) return err;
    if (*stop) {
        snprintf(report->text, sizeof report->text,
                 "ended before step %" PRIu64 ": it was given a pointer, and "
                 "report.pointer is NULL",
                 report->fed);
        report->fed--;
        return FILCH_OK;
    }
    fli_out_begin(&w->out);
    w->local.sends = 0;
    rp->calls = rp->yields = 0;
    err = rp->type->step(rp->self, rp->events, rp->event_count, &w->out);
    err = fli_out_verdict(&w->out, waiting + rp->yields, err);
    free_events(rp);

    fli_rec_result now = fli_rec_result_of(&w->out, err, rp->calls);
    compare_result(rp, &now);
    report->error = err;
    *stop = err != FILCH_OK || w->out.status == FLI_STATUS_DONE;
    if (err == FILCH_OK && w->out.status == FLI_STATUS_UPGRADE) change_type(rp, &w->out);
    fli_out_forget(&w->out, err);
    return FILCH_OK;
}

static filch_err play(replay *rp)
{
    bool         stop = false;
    fli_box_item item;
    filch_err    err = make_instance(rp, &stop);
    while (err == FILCH_OK && !stop && fli_box_next(&rp->reader, &item) == FLI_BOX_STEP) {
        err = feed(rp, item.waiting, &stop);
    }
    free_events(rp);
    close_instance(rp);
    return err;
}

/* Replays the recording inside a new scheduler. */
static filch_err play_alone(replay *rp)
{
    const fli_box_head *head = &rp->reader.head;
    filch_options       opt = FILCH_OPTIONS_INIT;
    opt.workers = FILCH_NO_WORKERS;
    opt.node = head->pid.node;
    opt.payload_max = (size_t)head->payload_max;
    opt.send_budget = head->send_budget;
    filch_err err = fli_sched_make(&rp->sched, &opt, NULL, rp->upper);
    if (err != FILCH_OK) return err;
    rp->worker = rp->sched->caller_worker;
    fli_local *worker = &rp->worker->local;
    worker->current = &rp->proc;
    worker->serial = head->pid.serial;
    worker->rec_hooks = &rp->hooks;
    worker->fast_rt = FLI_NO_FAST_RT;
    fli_current_enter(worker);
    err = play(rp);
    worker->rec_hooks = NULL;
    worker->current = NULL;
    worker->serial = 0;
    fli_current_leave(worker);
    filch_err stopped = filch_sched_stop(rp->sched, 0, NULL);
    FLI_ASSERT(stopped == FILCH_OK); /* cannot fail: the scheduler of the replay has no processes */
    return err;
}

/* ---- public functions ---- */

static filch_err open_recording(replay *rp, const void *bytes, size_t size)
{
    filch_blackbox_report *report = rp->report;
    const fli_box_head    *head = &rp->reader.head;
    filch_err              err = fli_box_open(&rp->reader, bytes, size, report->text, sizeof report->text);
    if (err != FILCH_OK) return err;
    if (strcmp(head->type_name, fli_type_name(rp->type)) != 0) {
        snprintf(report->text, sizeof report->text, "a recording of type %.80s, not %.80s", head->type_name,
                 fli_type_name(rp->type));
        return filch_invalid("type is not that of the recording: see report.text");
    }
    if (head->state_size != rp->type->size) {
        snprintf(report->text, sizeof report->text, "recorded with %" PRIu64 " bytes of state; now %.80s has %zu",
                 head->state_size, fli_type_name(rp->type), rp->type->size);
        return filch_invalid("type is not that of the recording: see report.text");
    }
    report->pid = head->pid;
    report->recorded = head->error;
    report->steps = head->steps;
    report->missing = head->missing;
    report->partial = head->missing > 0;
    report->lost = head->lost;
    return FILCH_OK;
}

filch_err fli_blackbox_replay(const fli_upper_ops *upper, const void *bytes, size_t size, const filch_type *type,
                              filch_blackbox_report *report)
{
    if (report == NULL) return filch_invalid("report is NULL");
    if (report->size < sizeof *report)
        return filch_invalid("report.size is not set: begin with FILCH_BLACKBOX_REPORT_INIT");
    *report = (filch_blackbox_report){ .size = report->size,
                                       .pointer = report->pointer,
                                       .pointer_user = report->pointer_user };
    if (bytes == NULL) return filch_invalid("bytes is NULL");
    if (!fli_type_is_sound(type)) return FILCH_EINVAL;
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    replay *rp = fli_zalloc_aligned(&mem, sizeof *rp, FLI_LINE);
    if (rp == NULL) return FILCH_ENOMEM;
    rp->hooks = replaying;
    rp->mem = mem;
    rp->upper = upper;
    rp->report = report;
    rp->type = type;
    filch_err err = open_recording(rp, bytes, size);
    if (err == FILCH_OK) err = play_alone(rp);
    bool failed = err == FILCH_OK && report->fed > 0 && report->error != FILCH_OK;
    report->again = failed && report->error == report->recorded;
    filch_values_drop(rp->values);
    fli_free(&mem, rp->events, rp->event_room * sizeof *rp->events);
    fli_free_aligned(&mem, rp, sizeof *rp, FLI_LINE);
    return err;
}
