/* record.c - the black box: records the events and the calls of the last steps of a process.
 *
 * A recorder is a list of recorded steps, the oldest first; each step is stored as a piece of a recording
 * (observe/blackbox.h). The oldest steps are dropped when there are more than requested, or more than BYTES_MAX bytes.
 * The events of a step are written before the step is called. Calls of the step that act on other processes go through
 * fli_rec_hooks: the hook makes the call, and writes the call and its result.
 *
 * INVARIANT  the recorded steps are the last steps of the process, without a gap.
 * INVARIANT  recording never makes a step fail. If there is no memory, all recorded steps are dropped and `lost` is
 *            set.
 *
 * A recorder is used by the worker that owns the process. The host writes recordings to files, not this module.
 *
 * Cost in a ping-pong on one thread (commit 9bf9146): without a recorder 45.4 ns per message and step, 45.3 ns
 * with the hooks compiled out (7 of 735 instructions). With a recorder 205 ns; malloc and free are a third of the
 * difference.
 * Page: docs/BLACKBOX.md.
 */
#include "record/record.h"

#include <stddef.h>
#include <string.h>

#include "payload/data.h"
#include "proc/ext.h"
#include "proc/runtime.h"
#include "proc/send.h"
#include "proc/values.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/step.h"
#include "sched/worker.h"

#define BYTES_MAX ((size_t)1 << 20)
#define PAYLOAD_MAX 4096
#define ARGS_MAX 65536
/* Limits that keep one recorded step of up to 1024 events below BYTES_MAX. As soon as a step has written MUCH bytes,
 * its further payloads are cut to PAYLOAD_LEAST bytes. Calls beyond CALLS_MAX are counted but not written. */
#define MUCH ((size_t)256 << 10)
#define PAYLOAD_LEAST 64
#define CALLS_MAX 4096

/* The header of a recorded step; the written bytes of the step follow it. */
typedef struct rec_step {
    struct rec_step  *next;    /* the next newer recorded step; NULL: none */
    const filch_type *upgrade; /* type of the process from the next step on; NULL: this step does not change the type */
    size_t            size, room; /* bytes used and bytes allocated, this header included */
} rec_step;

typedef struct fli_recorder {
    fli_rec_hooks     hooks; /* first member: local.rec_hooks points here */
    const filch_type *type;  /* type of the process in the oldest recorded step */
    /* a step with an upgrade was dropped from the recording, so `birth` does not describe the oldest step */
    bool           reborn;
    bool           lost;
    uint32_t       step_max, step_count;
    size_t         bytes; /* bytes allocated for all recorded steps */
    uint64_t       missing;
    rec_step      *oldest, *newest;
    fli_box_writer birth, values, step;
    uint64_t       calls; /* number of calls that the current step has made */
} fli_recorder;

/* ---- descriptions of calls ---- */

static fli_box_digest digest_of(const filch_data *data)
{
    return fli_data_is_sound(data) ? fli_box_digest_of(data) : (fli_box_digest){ .kind = FILCH_KIND_NONE };
}

fli_rec_call fli_rec_call_send(filch_pid to, const filch_data *data, bool deliver)
{
    return (fli_rec_call){ .kind = deliver ? FLI_REC_DELIVER : FLI_REC_SEND, .pid = to, .data = digest_of(data) };
}

fli_rec_call fli_rec_call_set_flag(filch_pid pid, uint64_t flag)
{
    return (fli_rec_call){ .kind = flag == FLI_KILL ? FLI_REC_TERMINATE : FLI_REC_CANCEL, .pid = pid };
}

/* Returns true for commands with pointers in their data: a work function and its argument, the type of a spawn, the
 * address at the start of a named_message (model/named_message.c). Pointers differ from run to run, so a replay does
 * not compare them. */
static bool has_pointers(uint32_t command)
{
    switch (command) {
    case FILCH_CMD_WORK:
    case FILCH_CMD_SPAWN:
    case FILCH_CMD_EXEC:
    case FILCH_CMD_BROADCAST:
    case FILCH_CMD_SEND_NAME: return true;
    default: return false;
    }
}

fli_rec_call fli_rec_call_yield(uint32_t command, uint64_t tag, filch_pid target, const filch_data *data)
{
    fli_box_digest digest = has_pointers(command) ? (fli_box_digest){ .kind = FILCH_KIND_PTR } : digest_of(data);
    return (fli_rec_call){ .kind = FLI_REC_YIELD, .command = command, .tag = tag, .pid = target, .data = digest };
}

fli_rec_call fli_rec_call_relate(const fli_request *request)
{
    fli_rec_call call = { .kind = FLI_REC_RELATE,
                          .command = request->op,
                          .tag = request->tag,
                          .pid = request->target,
                          .name = request->name };
    if (request->data != NULL) call.data = digest_of(request->data);
    return call;
}

fli_rec_call fli_rec_call_whereis(const char *name)
{
    return (fli_rec_call){ .kind = FLI_REC_WHEREIS, .name = name };
}

fli_rec_call fli_rec_call_spawn(const filch_type *type, const filch_spawn_options *options)
{
    return (fli_rec_call){ .kind = FLI_REC_SPAWN, .data = digest_of(&options->args), .name = fli_type_name(type) };
}

fli_rec_result fli_rec_result_of(const filch_out *out, filch_err error, uint64_t calls)
{
    fli_rec_result result = { .error = error, .calls = calls };
    if (error != FILCH_OK) return result;
    result.status = (uint8_t)out->status;
    if (out->status == FLI_STATUS_DONE) result.value = digest_of(&out->result);
    if (out->status == FLI_STATUS_UPGRADE) result.name = fli_type_name(out->type);
    return result;
}

/* ---- the hooks: make the call and record it ---- */

static fli_recorder *pause(fli_local *worker)
{
    fli_recorder *rec = (fli_recorder *)worker->rec_hooks;
    worker->rec_hooks = NULL;
    return rec;
}

static filch_err resume(fli_local *worker, fli_recorder *rec, fli_rec_call *call, filch_err answer)
{
    worker->rec_hooks = &rec->hooks;
    call->answer = answer;
    if (rec->calls++ < CALLS_MAX) fli_box_put_call(&rec->step, call);
    return answer;
}

static filch_err on_send(fli_local *worker, filch_pid to, filch_pid from, const filch_data *data, bool deliver)
{
    fli_recorder *rec = pause(worker);
    fli_rec_call  call = fli_rec_call_send(to, data, deliver);
    if (deliver) {
        filch_package package = { .to = to, .from = from, .data = *data };
        return resume(worker, rec, &call, filch_deliver(worker->rt, &package));
    }
    worker->sends--; /* filch_send() counts this send a second time, so the first count is taken back */
    return resume(worker, rec, &call, filch_send((filch_sched *)worker->rt, to, *data));
}

static filch_err on_set_flag(fli_local *worker, filch_pid pid, uint64_t flag)
{
    fli_recorder *rec = pause(worker);
    fli_rec_call  call = fli_rec_call_set_flag(pid, flag);
    filch_sched  *sched = (filch_sched *)worker->rt;
    return resume(worker, rec, &call, flag == FLI_KILL ? filch_terminate(sched, pid) : filch_cancel(sched, pid));
}

static filch_err on_yield(fli_local *worker, filch_out *out, uint32_t command, uint64_t tag, filch_pid target,
                          const filch_data *data)
{
    fli_recorder *rec = pause(worker);
    fli_rec_call  call = fli_rec_call_yield(command, tag, target, data);
    return resume(worker, rec, &call, fli_out_yield(out, command, tag, target, data));
}

static filch_err on_spawn(fli_local *worker, const filch_type *type, const filch_spawn_options *options, filch_pid *pid)
{
    fli_recorder *rec = pause(worker);
    fli_rec_call  call = fli_rec_call_spawn(type, options);
    filch_err     err = filch_spawn((filch_sched *)worker->rt, type, options, &call.pid);
    if (err == FILCH_OK && pid != NULL) *pid = call.pid;
    return resume(worker, rec, &call, err);
}

static filch_err on_relate(fli_local *worker, fli_request *request)
{
    fli_recorder *rec = pause(worker);
    fli_rec_call  call = fli_rec_call_relate(request);
    filch_err     err = worker->rt->model_ops->relate(worker->rt, request);
    call.given = request->given;
    return resume(worker, rec, &call, err);
}

static filch_err on_whereis(fli_local *worker, const char *name, filch_pid *pid)
{
    fli_recorder *rec = pause(worker);
    fli_rec_call  call = fli_rec_call_whereis(name);
    filch_err     err = worker->rt->model_ops->whereis(worker->rt, name, &call.pid);
    if (err == FILCH_OK) *pid = call.pid;
    return resume(worker, rec, &call, err);
}

static const fli_rec_hooks recording = { .send = on_send,
                                         .set_flag = on_set_flag,
                                         .yield = on_yield,
                                         .spawn = on_spawn,
                                         .relate = on_relate,
                                         .whereis = on_whereis };

/* ---- recording the steps ---- */

static void drop_oldest(const fli_mem *mem, fli_recorder *rec)
{
    rec_step *old = rec->oldest;
    rec->oldest = old->next;
    if (old->next == NULL) rec->newest = NULL;
    if (old->upgrade != NULL) {
        rec->type = old->upgrade;
        rec->reborn = true;
    }
    rec->bytes -= old->room;
    rec->step_count--;
    rec->missing++;
    fli_free(mem, old, old->room);
}

static void step_begin(fli_recorder *rec, const fli_worker *w, const fli_proc *p, uint32_t count)
{
    fli_box_writer *step = &rec->step;
    rec->calls = 0;
    fli_box_put(step, NULL, sizeof(rec_step));
    fli_box_put_step(step, p->yield_count);
    for (uint32_t i = 0; i < count; i++) {
        fli_box_put_event(step, &w->events[i], step->size < MUCH ? PAYLOAD_MAX : PAYLOAD_LEAST);
    }
}

/* Makes the bytes written for this step the newest recorded step. Drops the oldest steps if the recording is over its
 * limits. */
static void step_end(fli_recorder *rec, const filch_out *out, filch_err err)
{
    fli_box_writer *step = &rec->step;
    const fli_mem  *mem = step->mem;
    fli_rec_result  result = fli_rec_result_of(out, err, rec->calls);
    fli_box_put_result(step, &result);
    if (step->failed) {
        while (rec->oldest != NULL) drop_oldest(mem, rec);
        fli_box_writer_fini(step);
        rec->missing++;
        rec->lost = true;
        /* If the step that could not be written was an upgrade, the next recorded step begins with the new type. */
        if (err == FILCH_OK && out->status == FLI_STATUS_UPGRADE) rec->type = out->type;
        if (err == FILCH_OK && out->status == FLI_STATUS_UPGRADE) rec->reborn = true;
        return;
    }
    size_t    room = step->room;
    rec_step *made = (rec_step *)(void *)step->bytes, *less = NULL;
    if (room / 4 > step->size / 3) less = fli_resize(mem, made, room, step->size); /* over 1/4 is unused */
    if (less != NULL) made = less;
    if (less != NULL) room = step->size;
    *made = (rec_step){ .size = step->size, .room = room };
    if (err == FILCH_OK && out->status == FLI_STATUS_UPGRADE) made->upgrade = out->type;
    fli_box_writer_init(step, mem);

    if (rec->newest != NULL) rec->newest->next = made;
    else rec->oldest = made;
    rec->newest = made;
    rec->step_count++;
    rec->bytes += room;
    while (rec->oldest != made && (rec->step_count > rec->step_max || rec->bytes > BYTES_MAX)) drop_oldest(mem, rec);
}

static filch_err record_step(fli_local *worker, fli_proc *p, uint32_t count)
{
    fli_worker   *w = fli_worker_of(worker);
    fli_recorder *rec = p->ext->recorder;
    step_begin(rec, w, p, count);
    w->local.rec_hooks = &rec->hooks;
    w->local.fast_rt = FLI_NO_FAST_RT;
    filch_err err = fli_step_call(w, p, count);
    w->local.rec_hooks = NULL;
    w->local.fast_rt = fli_fast_rt(&w->local);
    step_end(rec, &w->out, fli_out_verdict(&w->out, p->yield_count, err));
    return err;
}

/* ---- start and end of a recorder ---- */

static uint32_t steps_wanted(const filch_sched *sched, const filch_spawn_options *opt)
{
    if (opt->blackbox == FILCH_BLACKBOX_OFF) return 0;
    return opt->blackbox != 0 ? opt->blackbox : sched->opt.blackbox;
}

static filch_err record_begin(fli_runtime *rt, fli_proc *p, const filch_type *type, const filch_spawn_options *opt)
{
    uint32_t step_max = steps_wanted((filch_sched *)rt, opt);
    /* with malformed args the spawn fails anyway, so no recorder is made */
    if (step_max == 0 || !fli_data_is_sound(&opt->args)) return FILCH_OK;
    fli_ext *ext = fli_ext_get(rt, p);
    if (ext == NULL) return FILCH_ENOMEM;
    fli_recorder *rec = fli_zalloc(&rt->mem, sizeof *rec);
    if (rec == NULL) return FILCH_ENOMEM;
    ext->recorder = rec;
    rec->hooks = recording;
    rec->type = type;
    rec->step_max = step_max;
    fli_box_writer_init(&rec->birth, &rt->mem);
    fli_box_writer_init(&rec->values, &rt->mem);
    fli_box_writer_init(&rec->step, &rt->mem);
    fli_box_put_birth(&rec->birth, opt->method, &opt->args, ARGS_MAX);
    for (const filch_values *at = p->values; at != NULL;) {
        const char       *key;
        const filch_data *data;
        at = fli_values_link(at, &key, &data);
        fli_box_put_value(&rec->values, key, data, PAYLOAD_MAX);
    }
    fli_box_put_born(&rec->values);
    return rec->birth.failed || rec->values.failed ? FILCH_ENOMEM : FILCH_OK;
}

static void record_drop(fli_runtime *rt, fli_proc *p)
{
    fli_recorder *rec = p->ext->recorder;
    while (rec->oldest != NULL) drop_oldest(&rt->mem, rec);
    fli_box_writer_fini(&rec->birth);
    fli_box_writer_fini(&rec->values);
    fli_box_writer_fini(&rec->step);
    fli_free(&rt->mem, rec, sizeof *rec);
    p->ext->recorder = NULL;
}

static void pass_recording(filch_sched *sched, const fli_recorder *rec, filch_pid pid, filch_err error)
{
    fli_box_head   head = { .type_name = fli_type_name(rec->type),
                            .state_size = rec->type->size,
                            .pid = pid,
                            .error = error,
                            .lost = rec->lost,
                            .missing = rec->missing,
                            .steps = rec->step_count,
                            .payload_max = sched->opt.payload_max,
                            .send_budget = sched->opt.send_budget };
    fli_box_writer whole;
    filch_data     nothing = filch_none();
    fli_box_writer_init(&whole, &sched->rt.mem);
    fli_box_put_head(&whole, &head);
    if (rec->reborn) fli_box_put_birth(&whole, NULL, &nothing, 0);
    else fli_box_put(&whole, rec->birth.bytes, rec->birth.size);
    fli_box_put(&whole, rec->values.bytes, rec->values.size);
    for (const rec_step *at = rec->oldest; at != NULL; at = at->next) {
        fli_box_put(&whole, at + 1, at->size - sizeof *at);
    }
    fli_box_put_end(&whole);
    sched->opt.on_blackbox(sched->opt.on_blackbox_user, pid, error, whole.failed ? NULL : whole.bytes,
                           whole.failed ? 0 : whole.size);
    fli_box_writer_fini(&whole);
}

static void record_ended(fli_runtime *rt, fli_proc *p, uint64_t serial, filch_err error)
{
    bool failed = error != FILCH_OK && error != FILCH_ECANCELLED && error != FILCH_EKILLED;
    if (failed) pass_recording((filch_sched *)rt, p->ext->recorder, (filch_pid){ rt->node_id, serial }, error);
    record_drop(rt, p);
}

const fli_record_ops fli_record_table = {
    .begin = record_begin, .step = record_step, .ended = record_ended, .drop = record_drop
};
