/* inline_parts.c - the inline completion loop (real sched/inline_yield.c, dispatch/complete.c): a process yields twice,
 * and its handler completes each yield before it returns. Meanwhile other threads use receivers that they got from the
 * handler, also the receiver of the first yield, or cancel the process. Each yield must have one completion, which
 * belongs to that yield. */
#include "dispatch/registry.h"
#include "harness.h"
#include "port/thread.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/step.h"
#include "sched/worker.h"

enum { COMMAND = 300, TAG = 9, ROUNDS = 2 };

static struct scene {
    fli_worker          w;
    fli_handler         handler;
    fli_pending_command pending[1];
    filch_event         events[1];
    fli_proc           *p;
    fli_event_node     *node;
    bool                is_async; /* option of a model program: the handler does not complete the yield itself */
    /* Key of the last yield. Stored and loaded with relaxed order, because the model program passes receivers to other
     * threads without ordering. */
    FLI_ATOMIC(uint64_t) key;
    /* Not atomic: used only by the thread that runs the process. */
    uint32_t yielded, completed, handled;
    uint64_t last_key;
    /* For each thread: number of its completions that were accepted. */
    uint32_t ok[FLI_WEAK_THREADS + 1];
} * s;

/* ---- replacements for functions of step.c: when the inline completion loop ends, harness_drive() runs the process
 * ---- */

static void leave_loop(fli_worker *w, fli_proc *p)
{
    must(w->out.spare == NULL && w->local.inline_key == 0 && w->local.inline_node == NULL,
         "the loop has reset its state");
    fli_slab_empty(&b->rt.nodes, &w->local.nodes);
    w->local.current = NULL;
    harness_drive(p);
}

void fli_step_conclude(fli_worker *w, fli_proc *p, filch_err err)
{
    must(err == FILCH_OK && w->out.status == FLI_STATUS_IDLE, "the step that does not yield goes idle");
    leave_loop(w, p);
}

void fli_step_wait(fli_worker *w, fli_proc *p)
{
    p->flags |= FLI_PROC_WAITING;
    leave_loop(w, p);
}

/* ---- the process ---- */

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    must(count == 1 && events[0].error == FILCH_OK && events[0].tag == TAG, "the completion arrives unchanged");
    if (s->yielded > 0) {
        must(filch_as_int(&events[0].data) == (int64_t)s->last_key, "the completion belongs to the outstanding yield");
        s->completed++;
    }
    if (s->yielded == ROUNDS) {
        out->status = FLI_STATUS_IDLE;
        return FILCH_OK;
    }
    s->yielded++;
    /* does what filch_yield() does if the worker has a spare node */
    out->pending[0].node = out->spare;
    out->pending[0].command.id = COMMAND;
    out->spare->tag = TAG;
    out->pending_count = 1;
    out->status = FLI_STATUS_WAIT;
    return FILCH_OK;
}

static void complete(uint64_t key)
{
    filch_receiver receiver = { .sched = (filch_sched *)&b->rt, .key = key, .tag = TAG };
    filch_err      err = filch_complete(receiver, TAG, filch_int((int64_t)key), FILCH_OK);
    must(err == FILCH_OK || err == FILCH_ESTALE || err == FILCH_EDEAD, "a completion is accepted, or it is late");
    s->ok[fli_weak_self] += err == FILCH_OK;
}

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    must(tag == TAG && receiver.key != s->last_key, "each yield has its own receiver");
    s->last_key = receiver.key;
    fli_store_rlx(&s->key, receiver.key);
    if (!s->is_async) complete(receiver.key);
    s->handled++;
    return FILCH_OK;
}

static const filch_type type = { .name = "part", .step = step };

static void setup(void)
{
    harness_setup();
    s = fli_weak_new(sizeof *s);
    s->p = harness_spawn(0, FILCH_OVERFLOW_FAIL);
    fli_store_rlx(&s->p->type, &type);
    s->node = fli_yield_open(&b->rt, &b->worker[1], s->p, COMMAND, TAG);
    fli_yield_retire(s->node); /* completes the first yield of the process, which the setup has made */
    fli_worker *w = &s->w;
    /* `rt` is the first member of filch_sched, and the inline completion loop uses no other member */
    w->sched = (filch_sched *)&b->rt;
    w->local.rt = &b->rt;
    w->local.fast_rt = &b->rt;
    w->local.current = s->p;
    w->local.serial = fli_proc_serial(s->p);
    w->local.inline_result = w->events = s->events;
    w->out.pending = s->pending;
    w->out.pending_room = 1;
    w->out.ctx.sched = w->sched;
    w->fair_countdown = w->clock_countdown = w->steps_left = 10;
    w->may_rerun = true;
    s->handler = (fli_handler){ .handle = handle };
    w->handler_cache = &s->handler;
    w->handler_cache_id = COMMAND;
    s->events[0] = (filch_event){ .type = FILCH_EVENT_YIELD, .tag = TAG };
}

static void setup_async(void)
{
    setup();
    s->is_async = true;
}

static void loop(void)
{
    fli_current_set(&s->w.local);
    fli_inline_yield_loop(&s->w, s->p, fli_state_look(&s->p->state), s->node);
}

/* ---- other threads ---- */

static void complete_last(void)
{
    uint64_t key = fli_load_rlx(&s->key);
    (void)harness_worker();
    if (key != 0) complete(key);
}

static void complete_last_twice(void)
{
    complete_last();
    complete_last();
}

static void cancel(void)
{
    if (fli_state_set_flag(&s->p->state, fli_word_gen(fli_state_peek(&s->p->state)), FLI_CANCEL) == FLI_DELIVERY_WOKE) {
        b->rt.hooks.ready(&b->rt, harness_worker(), s->p);
    }
}

static void send(void)
{
    harness_send(harness_pid(s->p), 1);
}

static void check(void)
{
    const harness_life *life = harness_life_of(s->p);
    uint32_t            taken = harness_sum(s->ok), received = s->completed + life->yields_completed;
    must(received == taken, "each accepted completion is received once");
    must(s->handled == s->yielded && taken <= s->yielded, "each yield is handled and completed once");
    if (!s->is_async) must(taken == s->yielded, "every yield is completed");
    if (life->yields_completed > 0)
        must(life->completion == (int64_t)s->last_key, "an asynchronous completion belongs to the outstanding yield");
    bool waits = taken < s->yielded;
    must(s->p->yield_count == (waits ? 1u : 0u), "only a yield without a completion is outstanding");
    must(fli_word_state(fli_state_peek(&s->p->state)) == (waits ? FLI_BLOCKED : FLI_IDLE),
         "then the process is settled");
    if (waits) {
        life = NULL;
        harness_life_of(s->p)->inside++;
        harness_finish(s->p);
    }
    harness_check_nodes();
    fli_weak_outcome((uint64_t)s->yielded * 256 + s->completed * 64 + s->ok[1] * 16 + s->ok[2] * 4 + s->ok[3]);
}

const fli_weak_program parts_inline[] = {
    { .name = "inline_alone",
      .promise = "two yields that the handler completes",
      .setup = setup,
      .threads = { loop },
      .check = check },
    { .name = "inline_against_one",
      .promise = "the handler against a thread that has its receiver",
      .setup = setup,
      .threads = { loop, complete_last },
      .check = check },
    { .name = "inline_against_two",
      .promise = "the handler against two threads that have its receivers",
      .setup = setup,
      .threads = { loop, complete_last, complete_last },
      .check = check },
    { .name = "inline_cancel",
      .promise = "the handler against a thread with its receiver and a cancel",
      .setup = setup,
      .threads = { loop, complete_last, cancel },
      .check = check },
    { .name = "inline_message",
      .promise = "the handler against a thread with its receiver and a message",
      .setup = setup,
      .threads = { loop, complete_last, send },
      .check = check },
    { .name = "inline_async",
      .promise = "the handler leaves the completion to two threads",
      .setup = setup_async,
      .threads = { loop, complete_last_twice, complete_last },
      .check = check },
    { 0 },
};
