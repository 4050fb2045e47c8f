/* spawn.c - creates a process. Everything that can fail is done before other threads can reach the process by its pid.
 * Design: docs/design/mailbox-fast-paths.md. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/versioned.h"
#include "payload/data.h"
#include "port/inside.h"
#include "proc/ext.h"
#include "proc/limit.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/send.h"
#include "proc/values.h"
#include "sched/out.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/spawn.h"
#include "sched/stats.h"
#include "sched/stop.h"

/* Limit of options.message_count, so that the size in bytes of an array of payloads fits into 32 bits. */
#define MESSAGES_MAX (1u << 26)

/* Returns the number of bytes to allocate for an instance that is not stored in the control block of its process. */
static size_t heap_size(const filch_type *type)
{
    return type->size > 0 ? type->size : 1;
}

static inline filch_err make(filch_sched *sched, const filch_type *type, const filch_ctx *ctx, const char *method,
                             const filch_data *args, void *inline_state, void **out)
{
    bool value = fli_data_is_value(args);
    if (type->init == NULL) {
        if (method != NULL) return FILCH_EMETHOD;
        if (args->kind != FILCH_KIND_NONE) return filch_invalid("args is given, but type.init is NULL");
    }
    if (!value && !fli_data_is_sound(args))
        return filch_invalid("args is not a valid payload: NULL bytes with a size, for example");
    void *self = inline_state;
    if (FLI_LIKELY(inline_state != NULL && type->size <= FLI_STATE_INLINE)) {
        memset(inline_state, 0, FLI_STATE_INLINE);
    } else {
        self = fli_zalloc(&sched->rt.mem, heap_size(type));
        if (self == NULL) return FILCH_ENOMEM;
    }
    filch_err err = FILCH_OK;
    if (type->init == NULL) {
        /* a type without init: the instance is zeroed memory */
    } else if (FLI_LIKELY(value)) {
        err = type->init(self, ctx, method, args);
    } else {
        /* The arguments are lent to init, even if the caller wanted to move them. An init that keeps the bytes must
         * copy them, and the caller still owns its bytes. */
        filch_data lent = fli_data_lend(args);
        err = type->init(self, ctx, method, &lent);
    }
    if (FLI_UNLIKELY(err != FILCH_OK)) fli_instance_free(sched, type, inline_state, self);
    else *out = self;
    return err;
}

filch_err fli_instance_make(filch_sched *sched, const filch_type *type, const filch_ctx *ctx, const char *method,
                            const filch_data *args, void *inline_state, void **out)
{
    return make(sched, type, ctx, method, args, inline_state, out);
}

void fli_instance_free(filch_sched *sched, const filch_type *type, void *inline_state, void *self)
{
    if (self != inline_state) fli_free(&sched->rt.mem, self, heap_size(type));
}

static filch_err check_options(const filch_spawn_options *opt)
{
    if (opt->overflow > FILCH_OVERFLOW_STOP) return filch_invalid("options.overflow is not a filch_overflow");
    if (opt->mailbox_max > FLI_MAILBOX_MAX) return filch_invalid("options.mailbox_max is over 8388607");
    if (opt->mailbox_bytes / 16 >= FLI_MAILBOX_UNITS_MAX)
        return filch_invalid("options.mailbox_bytes is 256 MiB or more");
    bool box = opt->blackbox <= FILCH_BLACKBOX_MAX || opt->blackbox == FILCH_BLACKBOX_OFF;
    if (!box) return filch_invalid("options.blackbox is over FILCH_BLACKBOX_MAX");
    if (opt->spare != 0 || opt->spare_too != 0)
        return filch_invalid("options.spare is not 0: begin with the FILCH_*_INIT macro");
    bool known = (opt->relations & ~(uint32_t)FILCH_SPAWN_ALL) == 0;
    if (!known) return filch_invalid("options.relations has bits besides FILCH_SPAWN_ALL");
    if (opt->messages == NULL && opt->message_count != 0)
        return filch_invalid("options.messages is NULL although message_count is not 0");
    if (opt->message_count > MESSAGES_MAX) return filch_invalid("options.message_count is over 2^26");
    if (opt->name != NULL && opt->name[0] == '\0') return filch_invalid("options.name is empty");
    /* A supervisor stops its children one after the other, and waits for the exit event of each child. For a child
     * without FILCH_SPAWN_MONITOR it would get no exit event, and would never stop the next child. */
    bool deaf = (opt->relations & (FILCH_SPAWN_SUPERVISED | FILCH_SPAWN_MONITOR)) == FILCH_SPAWN_SUPERVISED;
    if (deaf) return filch_invalid("options.relations has FILCH_SPAWN_SUPERVISED without FILCH_SPAWN_MONITOR");
    return FILCH_OK;
}

filch_err fli_spawn_options_read(const filch_spawn_options *given, filch_spawn_options *out)
{
    filch_err err = FLI_VERSIONED_READ(out, given, "options", FILCH_SPAWN_OPTIONS_INIT);
    return err == FILCH_OK ? check_options(out) : err;
}

/* Fills the fields of a new process, which no other thread can reach yet. */
static inline void set_up(fli_proc *p, const fli_local *worker, const filch_type *type, void *self,
                          const filch_spawn_options *opt, uint32_t gen)
{
    p->head_taken = p->completions = p->messages = 0;
    p->self = self;
    fli_store_rlx(&p->type, type);
    p->yield_count = 0;
    p->flags = FLI_PROC_MUST_STEP;
    if ((opt->relations & FILCH_SPAWN_TRAP) != 0) p->flags |= FLI_PROC_TRAPS;
    if (p->ext != NULL && p->ext->recorder != NULL) p->flags |= FLI_PROC_RECORDED;
    p->report_state = FILCH_STATE_READY;
    p->last_worker = worker != NULL ? worker->worker_mark : 0;
    fli_store_rlx(&p->mailbox_max, opt->mailbox_max);
    fli_store_rlx(&p->mailbox_units, fli_limit_units(opt->mailbox_bytes));
    fli_store_rlx(&p->overflow, (uint8_t)opt->overflow);
    fli_store_rlx(&p->drops_reported, 0);
    fli_limit_open(p, gen);
}

static filch_err set_ext(fli_runtime *rt, fli_proc *p, const filch_spawn_options *opt)
{
    p->ext = NULL;
    if (opt->on_exit == NULL) return FILCH_OK;
    fli_ext *ext = fli_ext_get(rt, p);
    if (ext == NULL) return FILCH_ENOMEM;
    ext->on_exit = opt->on_exit;
    ext->on_exit_user = opt->on_exit_user;
    return FILCH_OK;
}

/* Takes a slot for a new process. Returns NULL if no slot is free, with the reason in *err. */
static fli_proc *take_slot(filch_sched *sched, fli_local *worker, filch_err *err)
{
    fli_slab *procs = &sched->rt.procs;
    /* The limit can be reached only if at least max_processes slots have been made. */
    if (fli_load_rlx(&procs->fresh) > sched->opt.max_processes && fli_stats_is_full(sched)) {
        *err = FILCH_ELIMIT;
        return NULL;
    }
    *err = FILCH_ENOMEM;
    return fli_slab_take(procs, worker != NULL ? &worker->procs : NULL);
}

/* Ends a spawn that begin_spawn() has begun. Spawns by foreign threads are counted so that a stop does not overlook
 * a process that is being spawned. A spawn inside a step is not counted, because the spawning process lives until
 * its child is counted. After end_spawn() a foreign thread must not use the scheduler, because the stop may have
 * freed it. */
static void end_spawn(filch_sched *sched, fli_local *worker)
{
    if (worker != NULL) return;
    uint32_t there = fli_load_rlx(&sched->stop.foreign_spawns);
    while ((there & FLI_SPAWN_CLOSED) == 0) {
        /* PAIR spawn.closed, release half: the new process has been counted. A stop that begins after this CAS does not
         * wait for this thread. */
        if (fli_cas_weak_acqrel(&sched->stop.foreign_spawns, &there, there - 1)) return;
    }
    fli_stop_left(sched);
}

/* Returns true if this spawn is allowed although a stop has begun: until the deadline a process may spawn other
 * processes, but not supervised children (FILCH_SPAWN_SUPERVISED). */
static bool may_spawn_late(filch_sched *sched, const fli_local *worker, uint32_t phase, uint32_t relations)
{
    bool inside = worker != NULL && worker->current != NULL;
    return inside && phase == FLI_CLOSING && (relations & FILCH_SPAWN_SUPERVISED) == 0 &&
           !fli_load_rlx(&sched->stop.force);
}

/* Begins a spawn. Returns false if a stop has begun and does not allow this spawn. */
static bool begin_spawn(filch_sched *sched, fli_local *worker, uint32_t relations)
{
    uint32_t phase = fli_load_acq(&sched->rt.phase); /* PAIR runtime.phase, acquire half */
    if (phase != FLI_OPEN) return may_spawn_late(sched, worker, phase, relations);
    if (worker != NULL) return true;
    /* PAIR spawn.closed, both halves: the stop sees this spawn, or this thread sees that the stop has begun. */
    (void)fli_add_acqrel(&sched->stop.foreign_spawns, 1);
    if (fli_load_acq(&sched->rt.phase) == FLI_OPEN) return true; /* PAIR runtime.phase, acquire half */
    end_spawn(sched, worker);
    return false;
}

/* Puts options.messages into the mailbox of the new process `p`. These messages do not count against the mailbox limit.
 * Thread: the spawning one; no other thread can reach the process yet. */
static filch_err put_first(fli_runtime *rt, fli_local *worker, fli_proc *p, filch_pid from,
                           const filch_spawn_options *opt)
{
    for (size_t i = 0; i < opt->message_count; i++) {
        filch_data owned = filch_none(), lent = fli_data_lend(&opt->messages[i]);
        filch_err  err = fli_data_own(&rt->mem, rt->payload_max, &lent, &owned);
        if (err != FILCH_OK) return err;
        fli_event_node *node = fli_message_make(rt, worker, from, &owned);
        if (node == NULL) {
            fli_data_free(&owned);
            return FILCH_ENOMEM;
        }
        fli_mail_append(rt, &p->messages, node);
    }
    return FILCH_OK;
}

/* Spawns between begin_spawn() and end_spawn(). */
static filch_err spawn(filch_sched *sched, fli_local *worker, const filch_type *type, const filch_spawn_options *opt,
                       const fli_birth *birth, filch_pid *pid)
{
    fli_runtime *rt = &sched->rt;
    filch_err    err;
    /* If the name is in use, the spawn is refused before init is called in vain. The name is checked again when it is
     * registered. */
    if (birth != NULL && birth->name != NULL && rt->model_ops->is_named(rt, birth->name)) return FILCH_EEXISTS;

    fli_proc *p = take_slot(sched, worker, &err);
    if (p == NULL) return err;
    uint32_t gen = fli_word_gen(fli_state_peek(&p->state));
    err = set_ext(rt, p, opt);
    if (err != FILCH_OK) goto no_ext;
    p->values = opt->values;
    if (p->values == NULL && worker != NULL && worker->current != NULL) p->values = worker->current->values;
    if (p->values != NULL) (void)fli_values_hold(p->values);
    filch_ctx ctx = { .self = { rt->node_id, fli_serial(gen, p->slot) }, .sched = sched, .values = p->values };
    void     *self = NULL;
    if (FLI_UNLIKELY(sched->opt.on_blackbox != NULL)) err = rt->record_ops->begin(rt, p, type, opt);
    if (err != FILCH_OK) goto no_self;
    err = fli_instance_make(sched, type, &ctx, opt->method, &opt->args, p->inline_state, &self);
    if (err != FILCH_OK) goto no_self;

    set_up(p, worker, type, self, opt, gen);
    filch_pid from = { 0, 0 };
    if (worker != NULL && worker->serial != 0) from = (filch_pid){ rt->node_id, worker->serial };
    err = put_first(rt, worker, p, from, opt);
    if (err != FILCH_OK) goto no_birth;
    fli_stats_count_spawned(rt, worker, 1);
    if (FLI_UNLIKELY(rt->sim != NULL)) rt->sim->spawned(rt, worker, ctx.self.serial, type);
    bool      limited = opt->mailbox_max != 0 || opt->mailbox_bytes != 0;
    fli_birth with_values;
    if (FLI_UNLIKELY(fli_values_is_special(p->values))) {
        with_values = birth != NULL ? *birth : (fli_birth){ .relations = 0 };
        with_values.values = p->values;
        birth = &with_values;
    }
    if (FLI_LIKELY(birth == NULL)) fli_state_open(&p->state, gen, limited);
    else err = rt->model_ops->birth(rt, p, ctx.self.serial, birth, limited);
    if (err != FILCH_OK) goto no_relations;
    if (pid != NULL) *pid = ctx.self;
    if (worker != NULL) (void)fli_ready_local(worker, p);
    else fli_ready(rt, NULL, p);
    return FILCH_OK;

no_relations:
    fli_stats_count_spawned(rt, worker, (uint64_t)0 - 1);
    filch_data nothing = filch_none();
    if (FLI_UNLIKELY(rt->sim != NULL)) rt->sim->ended(rt, ctx.self.serial, err, &nothing);
no_birth:
    (void)fli_mail_discard(rt, worker, p, 0);
    if (type->close != NULL) type->close(self);
    fli_instance_free(sched, type, p->inline_state, self);
no_self:
    filch_values_drop(p->values);
    p->values = NULL;
    fli_ext_free(rt, p);
    /* init knew the pid and may have passed it on, so the slot gets a new generation: no other process gets this
     * pid. */
    if (!fli_state_free(&p->state)) {
        fli_slab_retire(&rt->procs);
        return err;
    }
no_ext:
    fli_slab_give(&rt->procs, worker != NULL ? &worker->procs : NULL, p);
    return err;
}

filch_err fli_spawn(filch_sched *sched, const filch_type *type, const filch_spawn_options *opt, const fli_birth *birth,
                    filch_pid *pid)
{
    fli_local *worker = fli_current_worker(&sched->rt);
    if (!begin_spawn(sched, worker, opt->relations)) return FILCH_ECLOSED;
    /* A stop waits for the spawns of foreign threads, so init and other functions of the program that this spawn calls
     * must not stop the scheduler. */
    __attribute__((cleanup(fli_inside_end))) fli_inside call = { .object = NULL };
    if (worker == NULL) fli_inside_begin(&call, sched);
    filch_err err = spawn(sched, worker, type, opt, birth, pid);
    end_spawn(sched, worker);
    return err;
}

/* Returns two 32-bit options, *first and the one that follows it in memory, as one 64-bit word. */
static inline uint64_t pair_at(const uint32_t *first)
{
    uint64_t both;
    memcpy(&both, first, sizeof both);
    return both;
}

/* Returns true if the options have the size of this version, and all fields are zero except these: `method`, `args`,
 * `tag` (not used without a monitor) and `on_exit_user` (not used without on_exit). */
static inline bool is_simple(const filch_spawn_options *opt)
{
    static_assert(offsetof(filch_spawn_options, overflow) == offsetof(filch_spawn_options, mailbox_max) + 4 &&
                      offsetof(filch_spawn_options, spare) == offsetof(filch_spawn_options, blackbox) + 4 &&
                      offsetof(filch_spawn_options, spare_too) == offsetof(filch_spawn_options, relations) + 4,
                  "pairs");
    if (FLI_UNLIKELY(opt->size != sizeof *opt)) return false;
    uint64_t any = (uintptr_t)opt->values | (uintptr_t)opt->on_exit | (uintptr_t)opt->name | (uintptr_t)opt->messages |
                   opt->message_count | opt->mailbox_bytes | pair_at(&opt->mailbox_max) | pair_at(&opt->blackbox) |
                   pair_at(&opt->relations);
    return any == 0;
}

/* Returns true if spawn_simply() may be used: the caller is a step of this scheduler, with no values to inherit; the
 * magazine of its worker has a slot; no process is recorded; fewer than max_processes slots have been made; the
 * scheduler is open. */
static inline bool is_at_hand(filch_sched *sched, fli_local *worker)
{
    if (worker == NULL || worker->fast_rt != &sched->rt || worker->procs.count == 0) return false;
    /* fast_rt is set only while a step runs, and `current` is then the process of the step. */
    FLI_ASSUME(worker->current != NULL);
    if (worker->current->values != NULL || sched->opt.on_blackbox != NULL) return false;
    if (fli_load_rlx(&sched->rt.procs.fresh) > sched->opt.max_processes) return false;
    return fli_load_acq(&sched->rt.phase) == FLI_OPEN; /* PAIR runtime.phase, acquire half */
}

/* Makes an instance that does not fit into the control block of its process, or an instance with arguments that are not
 * a value. */
static __attribute__((noinline)) filch_err make_apart(filch_sched *sched, fli_proc *p, const filch_type *type,
                                                      const filch_ctx *ctx, const filch_spawn_options *opt)
{
    return make(sched, type, ctx, opt->method, &opt->args, p->inline_state, &p->self);
}

static inline filch_err make_inline(filch_sched *sched, fli_proc *p, const filch_type *type,
                                    const filch_spawn_options *opt)
{
    filch_ctx ctx = { .self = { sched->rt.node_id, fli_proc_serial(p) }, .sched = sched, .values = NULL };
    bool      fits =
        type->init != NULL ? fli_data_is_value(&opt->args) : opt->args.kind == FILCH_KIND_NONE && opt->method == NULL;
    if (FLI_UNLIKELY(type->size > FLI_STATE_INLINE || !fits)) return make_apart(sched, p, type, &ctx, opt);
    p->self = p->inline_state;
    memset(p->inline_state, 0, FLI_STATE_INLINE);
    return type->init != NULL ? type->init(p->inline_state, &ctx, opt->method, &opt->args) : FILCH_OK;
}

/* Ends a spawn after its init has failed. init knew the pid and may have passed it on, so the slot gets a new
 * generation: no other process gets this pid. */
static __attribute__((noinline)) filch_err give_up(fli_local *worker, fli_proc *p, filch_err err)
{
    if (fli_state_free(&p->state)) fli_slab_give(&worker->rt->procs, &worker->procs, p);
    else fli_slab_retire(&worker->rt->procs);
    return err;
}

/* Fast path of fli_spawn(). The slot is blank (finish.c).
 *   Precondition: is_simple() and is_at_hand().
 *   Skips:        all options except `method` and `args`: limits, relations, name, values, first messages. Also the
 *                 stores of values that a blank slot already has.
 *   Repeats:      the order of fli_spawn(): everything that can fail is done before other threads can reach the
 *                 process.
 *   General path: fli_spawn(). */
static inline filch_err spawn_simply(filch_sched *sched, fli_local *worker, const filch_type *type,
                                     const filch_spawn_options *opt, filch_pid *pid)
{
    fli_proc *p = worker->procs.objects[--worker->procs.count];
    filch_err err = make_inline(sched, p, type, opt);
    if (FLI_UNLIKELY(err != FILCH_OK)) return give_up(worker, p, err);
    fli_store_rlx(&p->type, type);
    p->flags = FLI_PROC_MUST_STEP;
    p->report_state = FILCH_STATE_READY;
    p->last_worker = worker->worker_mark;
    fli_stats_count_spawned(worker->rt, worker, 1);
    /* Reads the generation again after init: this is cheaper than keeping it in a register during the call of init. */
    uint32_t gen = fli_word_gen(fli_state_peek(&p->state));
    fli_state_open(&p->state, gen, false);
    if (pid != NULL) *pid = (filch_pid){ worker->rt->node_id, fli_serial(gen, p->slot) };
    return fli_ready_local(worker, p);
}

/* The general path of filch_spawn. */
static __attribute__((noinline)) filch_err spawn_any(filch_sched *sched, const filch_type *type,
                                                     const filch_spawn_options *opt, filch_pid *pid)
{
    filch_spawn_options copy;
    /* Options that have the size of this version are used without a copy. */
    filch_err err = opt->size == sizeof *opt ? check_options(opt) : fli_spawn_options_read(opt, &copy);
    if (err != FILCH_OK) return err;
    if (opt->size != sizeof *opt) opt = &copy;
    fli_runtime *rt = &sched->rt;
    fli_local   *worker = fli_current_worker(rt);
    if (FLI_UNLIKELY(worker != NULL && worker->rec_hooks != NULL))
        return worker->rec_hooks->spawn(worker, type, opt, pid);
    if (FLI_UNLIKELY(rt->sim != NULL) && !rt->sim->point(rt, worker, "filch_spawn")) return FILCH_ESTATE;
    uint32_t relations = opt->relations & (FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK | FILCH_SPAWN_SUPERVISED);
    if (FLI_LIKELY(relations == 0 && opt->name == NULL)) return fli_spawn(sched, type, opt, NULL, pid);
    /* Only a process can be the parent of a process with relations. A handler that spawns does not act for the process
     * that yielded the command. */
    bool inside = worker != NULL && worker->serial != 0 && !worker->dispatching;
    if (relations != 0 && !inside) return FILCH_ESTATE;
    fli_birth birth = { .relations = relations, .tag = opt->tag, .name = opt->name };
    if (inside) birth.parent = (filch_pid){ rt->node_id, worker->serial };
    return fli_spawn(sched, type, opt, &birth, pid);
}

filch_err filch_spawn(filch_sched *sched, const filch_type *type, const filch_spawn_options *options, filch_pid *pid)
{
    static const filch_spawn_options defaults = FILCH_SPAWN_OPTIONS_INIT;
    const filch_spawn_options       *opt = options != NULL ? options : &defaults;
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (!fli_type_is_sound(type)) return FILCH_EINVAL;
    fli_local *worker = fli_current_get();
    if (FLI_LIKELY(is_simple(opt) && is_at_hand(sched, worker))) return spawn_simply(sched, worker, type, opt, pid);
    return spawn_any(sched, type, opt, pid);
}
