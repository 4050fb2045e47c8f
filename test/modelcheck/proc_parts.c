/* proc_parts.c - mailbox and state word: senders, cancel and kill, concurrently with the owner that unstacks, settles
 * and ends. */
#include "harness.h"
#include "proc/values.h"
#include "sync/lifo_slot.h"

static struct {
    fli_proc   *p;
    filch_pid   pid;
    filch_type *type;
} * s; /* fields written by setup(), and not changed afterwards */

/* Data that the threads of a model program share. */
static struct pass {
    FLI_ATOMIC(uint64_t) serial;
    FLI_ATOMIC(uint32_t) note;
    filch_values        *scope;
    fli_tenant           tenant;
    uint32_t             flags_set[FLI_WEAK_THREADS + 1];
} * pass;

static void setup(void)
{
    harness_setup();
    pass = fli_weak_new(sizeof *pass);
    s = fli_weak_new(sizeof *s);
    s->p = harness_spawn(0, FILCH_OVERFLOW_FAIL);
    s->pid = harness_pid(s->p);
}

static void setup_noted(void)
{
    setup();
    b->noted = true;
}

static uint32_t read_note(void)
{
    return fli_load_rlx(&pass->note);
}

static void setup_note_reader(void)
{
    setup();
    b->on_cancel = read_note;
}

static void setup_note_reader_idle(void)
{
    setup_note_reader();
    harness_drive(s->p);
}

static uint32_t read_scope(void)
{
    return (uint32_t)fli_scope_cancelled(pass->scope, false);
}

static void setup_scoped(void)
{
    setup();
    b->on_cancel = read_scope;
    (void)!filch_values_scope(NULL, &pass->scope);
    pass->tenant = (fli_tenant){ .rt = &b->rt, .serial = s->pid.serial };
    fli_scope_enter(pass->scope, &pass->tenant);
}

static void setup_fast(void)
{
    setup();
    b->fast = true;
}

static void setup_fast_idle(void)
{
    setup_fast();
    harness_drive(s->p);
}

static void setup_fast_exit(void)
{
    setup_fast_idle();
    b->ends = true;
}

static void setup_idle(void)
{
    setup();
    harness_drive(s->p);
}

static void drive(void)
{
    harness_drive(s->p);
}

static void send_one(void)
{
    harness_send(s->pid, 1);
}

static void send_two(void)
{
    harness_send(s->pid, 1);
    harness_send(s->pid, 2);
}

static void send_three(void)
{
    send_two();
    harness_send(s->pid, 3);
}

static void set_flag(uint64_t flag)
{
    switch (fli_state_set_flag(&s->p->state, fli_serial_gen(s->pid.serial), flag)) {
    case FLI_DELIVERY_WOKE: b->rt.hooks.ready(&b->rt, harness_worker(), s->p); break;
    case FLI_DELIVERY_NOTED: break;
    case FLI_DELIVERY_DEAD: return;
    }
    pass->flags_set[fli_weak_self]++;
}

static void cancel(void)
{
    set_flag(FLI_CANCEL);
}

/* Writes `note`, then cancels the process. The step that receives the cancel must see the note. */
static void note_and_cancel(void)
{
    b->note = 7;
    set_flag(FLI_CANCEL);
}

/* Writes the note, then cancels the process. For a program in which several threads cancel: a step may read the note
 * while another thread writes it, so the note is atomic. */
static void leave_note_and_cancel(void)
{
    fli_store_rlx(&pass->note, 7);
    set_flag(FLI_CANCEL);
}

/* Cancels the process that is a tenant (member) of the scope, as src/model/context.c does. */
static void cancel_tenant(const fli_tenant *tenant)
{
    must(tenant == &pass->tenant, "the scope lists its tenant");
    set_flag(FLI_CANCEL);
}

static void cancel_scope(void)
{
    (void)fli_scope_cancel(pass->scope, 7, cancel_tenant);
}

static void note_and_kill(void)
{
    b->note = 7;
    set_flag(FLI_KILL);
}

static void kill(void)
{
    set_flag(FLI_KILL);
}

static void wake(void)
{
    if (fli_state_wake(&s->p->state, fli_serial_gen(s->pid.serial)) == FLI_DELIVERY_WOKE) {
        b->rt.hooks.ready(&b->rt, harness_worker(), s->p);
    }
}

static void report_outcome(const harness_life *life)
{
    fli_weak_outcome(life->received + 16 * life->cancels + 64 * harness_sum(b->woke));
}

/* Checks that all messages were received and that the process is idle. */
static void check_idle(void)
{
    const harness_life *life = harness_life_of(s->p);
    uint64_t            word = fli_state_peek(&s->p->state);
    must(fli_word_state(word) == FLI_IDLE && fli_word_head(word) == 0,
         "in the end the process is idle, and its mailbox is empty");
    must(life->received == harness_sum(b->accepted), "every message arrives");
    must(harness_sum(b->refused) == 0, "a living process accepts messages");
    must((word & (FLI_CANCEL | FLI_KILL)) == 0, "a flag that was set is seen");
    harness_check_nodes();
    report_outcome(life);
}

/* Checks that each settle except the last was followed by exactly one wake-up. */
static void check_wakes(void)
{
    check_idle();
    must(harness_sum(b->woke) + 1 == harness_sum(b->slept), "each settle but the last is followed by one wake-up");
}

static void check_cancel(void)
{
    check_wakes();
    uint32_t flags_set = harness_sum(pass->flags_set), got = harness_life_of(s->p)->cancels;
    must(got >= 1 && got <= flags_set, "a cancel is delivered; two may be one event");
}

/* Several cancels may arrive as one event. But the step that receives the last cancel must have seen every note that
 * was written before a cancel. */
static void check_note_seen(void)
{
    check_cancel();
    must(b->note_seen == 7, "a write before a cancel is seen, also if another thread cancels");
}

static void check_killed(void)
{
    const harness_life *life = harness_life_of(s->p);
    uint64_t            word = fli_state_peek(&s->p->state);
    must(life->ended && life->inside == 0, "a killed process ends");
    must(fli_word_state(word) == FLI_FREE && fli_word_gen(word) == fli_serial_gen(s->pid.serial) + 1,
         "its slot is free");
    must(fli_word_head(word) == 0, "no message is delivered to a free slot");
    must(life->received + harness_sum(b->unread) == harness_sum(b->accepted),
         "every message is read, or counted as unread");
    harness_check_nodes();
    report_outcome(life);
}

/* Checks that the process has ended because a single message woke it, or is idle because several messages had
 * arrived. */
static void check_last(void)
{
    if (harness_life_of(s->p)->ended) check_killed();
    else check_wakes();
}

/* ---- a sender queues the process that it has woken, and another thread takes it from the queue ---- */

/* For each thread: the LIFO slot in which it queues the process. */
static struct queues {
    fli_lifo_slot slots[FLI_WEAK_THREADS + 1];
} * queues;

static filch_err queue_local(fli_local *worker, fli_proc *p)
{
    (void)worker;
    b->woke[fli_weak_self]++;
    must(fli_lifo_slot_put(&queues->slots[fli_weak_self], p), "a sender queues the process once");
    return FILCH_OK;
}

static void queue(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    (void)rt;
    (void)!queue_local(worker, p);
}

static void setup_queued(void)
{
    setup_fast_idle();
    queues = fli_weak_new(sizeof *queues);
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) {
        fli_lifo_slot_init(&queues->slots[i]);
        b->worker[i].ready = queue_local;
    }
    b->rt.hooks.ready = queue;
}

static void drive_queued_by(uint32_t thread)
{
    fli_proc *p = fli_lifo_slot_take(&queues->slots[thread]);
    if (p != NULL) harness_drive(p);
}

static void drive_queued(void)
{
    drive_queued_by(1);
    drive_queued_by(2);
}

static void check_queued(void)
{
    drive_queued();
    check_wakes();
}

/* ---- stale pids: another process reuses the slot ---- */

/* Called when the first process has ended: starts another process in its slot and publishes the new pid. */
static void spawn_successor(uint32_t slot)
{
    fli_proc *next = harness_spawn(0, FILCH_OVERFLOW_FAIL);
    must(next->slot == slot, "the slot is reused");
    /* Thread 2 sends only to the first process, with numbers up to 15. With 15 as the last number received, every
     * message of thread 2 that reaches the new process is reported as a violation of the order. */
    harness_life_of(next)->last[2] = 15;
    fli_store_rel(&pass->serial, fli_proc_serial(next));
    harness_drive(next);
}

static void replace(void)
{
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
    spawn_successor(s->p->slot);
}

/* The first process ends in its first step: on the fast path if its mailbox is still empty, otherwise on the slow
 * path. */
static void replace_fast(void)
{
    uint64_t word = fli_state_look(&s->p->state);
    harness_life_of(s->p)->inside++;
    if (fli_word_head(word) != 0 || !harness_exit(s->p, word)) harness_finish(s->p);
    spawn_successor(s->p->slot);
}

static void send_new(void)
{
    uint64_t serial = fli_load_acq(&pass->serial);
    if (serial != 0) harness_send((filch_pid){ HARNESS_NODE, serial }, 1);
}

static void cancel_old(void)
{
    cancel();
    fli_proc *p = fli_proc_find(&b->rt, s->pid.serial);
    must(p == s->p, "a stale pid still finds its slot");
}

static void check_replaced(void)
{
    const harness_life *life = harness_life_of(s->p);
    uint64_t            word = fli_state_peek(&s->p->state);
    must(fli_word_state(word) == FLI_IDLE && fli_word_head(word) == 0, "the next process of the slot is idle");
    must(life->received == b->accepted[3], "the next process gets only messages for its own pid");
    must(life->cancels == 0 && (word & FLI_CANCEL) == 0, "a stale cancel does not reach the next process");
    must(harness_sum(b->unread) == b->accepted[2], "messages to the first process are counted as unread");
    harness_check_nodes();
    report_outcome(life);
}

/* Ends the process and returns its slot to the depot, so that another thread starts the next process in the slot. */
static void end_to_depot(void)
{
    fli_local *worker = harness_worker();
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
    fli_slab_empty(&b->rt.procs, &worker->procs);
}

static void spawn_from_depot(void)
{
    fli_proc *other = fli_slab_take(&b->rt.procs, NULL);
    fli_slab_give(&b->rt.procs, &harness_worker()->procs, other);
    if (other != s->p) return;
    fli_proc *next = harness_spawn(0, FILCH_OVERFLOW_FAIL);
    harness_life_of(next)->last[2] = 15;
    harness_drive(next);
}

/* Setup for a spawn during a stop. The stop walks over all slots. If it finds a process in a slot, it must be able to
 * read the type name of the process. */
static void setup_free(void)
{
    setup();
    s->type = fli_weak_new(sizeof *s->type);
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
    b->worker[1].procs = b->worker[0].procs; /* moves the free slot to the magazine of thread 1, which will spawn */
    b->worker[0].procs.count = 0;
}

static void open(void)
{
    s->type->name = "named";
    fli_store_rlx(&s->p->type, s->type);
    harness_drive(harness_spawn(0, FILCH_OVERFLOW_FAIL));
}

static void find_and_name(void)
{
    uint32_t gen = fli_word_gen(fli_state_peek(&s->p->state));
    switch (fli_state_set_flag(&s->p->state, gen, FLI_CANCEL)) {
    case FLI_DELIVERY_DEAD: return;
    case FLI_DELIVERY_WOKE: b->rt.hooks.ready(&b->rt, harness_worker(), s->p); break;
    case FLI_DELIVERY_NOTED: break;
    }
    must(fli_type_name(fli_proc_type(s->p))[0] == 'n', "a thread that finds the process alive can read its name");
}

static void check_moved(void)
{
    uint64_t word = fli_state_peek(&s->p->state);
    must(fli_word_head(word) == 0, "the mailbox is empty");
    must(harness_life_of(s->p)->received == 0, "the next process gets no message for another pid");
    must(harness_sum(b->unread) == b->accepted[2], "messages to the first process are counted as unread");
    harness_check_nodes();
    fli_weak_outcome(fli_word_state(word) * 16 + b->accepted[2]);
}

/* ---- HAS_RELATIONS: a process ends while other threads monitor it, as in src/model ---- */

static struct monitors {
    fli_mutex lock;                    /* stands for the lock of the slot's relations */
    uint32_t  listed, notified_by_end; /* protected by `lock` */
    /* Stands for rt->model, which the first relation creates: the end of a process reads it without the lock. */
    FLI_ATOMIC(uint32_t) model;
    uint32_t             notified_at_once[FLI_WEAK_THREADS + 1];
} * monitors;

static void setup_monitored(void)
{
    setup();
    monitors = fli_weak_new(sizeof *monitors);
    (void)fli_mutex_init(&monitors->lock);
}

static void monitor_it(void)
{
    fli_mutex_lock(&monitors->lock);
    if (fli_load_rlx(&monitors->model) == 0) fli_store_rel(&monitors->model, 1);
    if (fli_state_set_related(&s->p->state, fli_serial_gen(s->pid.serial))) {
        monitors->listed++;
    } else {
        must(b->note == 7, "what a process wrote before its end is seen by a thread that finds it dead");
        monitors->notified_at_once[fli_weak_self]++;
    }
    fli_mutex_unlock(&monitors->lock);
}

static void end_monitored(void)
{
    b->note = 7;
    uint64_t last = fli_state_finish(&s->p->state);
    if ((last & FLI_HAS_RELATIONS) != 0) {
        must(fli_load_acq(&monitors->model) == 1, "a process that ends with relations finds the model that lists them");
        fli_mutex_lock(&monitors->lock);
        monitors->notified_by_end += monitors->listed;
        monitors->listed = 0;
        fli_mutex_unlock(&monitors->lock);
    }
    (void)!fli_state_free(&s->p->state);
}

static void end_monitored_fast(void)
{
    b->note = 7;
    if (!fli_state_exit(&s->p->state, fli_state_look(&s->p->state))) end_monitored();
}

static void check_monitored(void)
{
    uint32_t at_once = harness_sum(monitors->notified_at_once);
    must(monitors->listed == 0, "no monitor is left on an ended process");
    must(monitors->notified_by_end + at_once == 2, "each monitor is notified once");
    fli_weak_outcome(monitors->notified_by_end);
}

static void check_monitored_idle(void)
{
    check_wakes();
    must(monitors->listed == 1 && (fli_state_peek(&s->p->state) & FLI_HAS_RELATIONS) != 0, "the process is monitored");
}

const fli_weak_program parts_proc[] = {
    { .name = "mailbox_1",
      .promise = "the owner settles; three messages of one sender",
      .setup = setup,
      .threads = { drive, send_three },
      .check = check_wakes },
    { .name = "mailbox_2",
      .promise = "the owner settles; two senders",
      .setup = setup,
      .threads = { drive, send_two, send_one },
      .check = check_wakes },
    { .name = "mailbox_3",
      .promise = "the owner settles; three senders",
      .setup = setup,
      .threads = { drive, send_one, send_one, send_one },
      .check = check_wakes,
      .rare = true },
    { .name = "mailbox_idle",
      .promise = "three senders to an idle process: one of them wakes it",
      .setup = setup_idle,
      .threads = { send_one, send_one, send_one },
      .check = check_wakes },
    { .name = "mailbox_wake",
      .promise = "a wake without an event, and a sender",
      .setup = setup,
      .threads = { drive, wake, send_one },
      .check = check_wakes },
    { .name = "fast_1",
      .promise = "fast paths: the owner settles; three messages of one sender",
      .setup = setup_fast,
      .threads = { drive, send_three },
      .check = check_wakes },
    { .name = "fast_2",
      .promise = "fast paths: the owner settles; two senders",
      .setup = setup_fast,
      .threads = { drive, send_two, send_one },
      .check = check_wakes },
    { .name = "fast_idle",
      .promise = "fast paths: three senders to an idle process: one of them wakes it",
      .setup = setup_fast_idle,
      .threads = { send_one, send_one, send_one },
      .check = check_wakes },
    { .name = "fast_queued",
      .promise = "fast paths: two senders queue the process, and the thread that takes it sees the messages",
      .setup = setup_queued,
      .threads = { send_one, send_one, drive_queued },
      .check = check_queued },
    { .name = "fast_cancel",
      .promise = "fast paths: cancel against settling and a sender",
      .setup = setup_fast,
      .threads = { drive, cancel, send_two },
      .check = check_cancel },
    { .name = "fast_kill",
      .promise = "fast paths: kill against settling and a sender",
      .setup = setup_fast,
      .threads = { drive, kill, send_two },
      .check = check_killed },
    { .name = "fast_exit",
      .promise = "fast paths: the process ends with the message that wakes it; three senders",
      .setup = setup_fast_exit,
      .threads = { send_one, send_one, send_one },
      .check = check_last },
    { .name = "fast_exit_kill",
      .promise = "fast paths: the process ends with the message that wakes it; a sender and a kill",
      .setup = setup_fast_exit,
      .threads = { send_two, kill },
      .check = check_killed },
    { .name = "cancel_1",
      .promise = "cancel against settling and a sender",
      .setup = setup,
      .threads = { drive, cancel, send_one },
      .check = check_cancel },
    { .name = "cancel_2",
      .promise = "two cancels",
      .setup = setup_idle,
      .threads = { cancel, cancel, send_one },
      .check = check_cancel },
    { .name = "cancel_note",
      .promise = "a write before a cancel is seen by the step that gets the cancel",
      .setup = setup_noted,
      .threads = { drive, note_and_cancel, send_one },
      .check = check_cancel },
    { .name = "cancel_two_note",
      .promise = "a write before a cancel is seen, although another thread cancels at the same time",
      .setup = setup_note_reader,
      .threads = { drive, cancel, leave_note_and_cancel },
      .check = check_note_seen },
    { .name = "cancel_two_note_idle",
      .promise = "two cancels of an idle process: the write before one of them is seen",
      .setup = setup_note_reader_idle,
      .threads = { cancel, leave_note_and_cancel },
      .check = check_note_seen },
    { .name = "cancel_scope",
      .promise = "the reason of a scope's cancel is seen by the step, although another thread cancels",
      .setup = setup_scoped,
      .threads = { drive, cancel, cancel_scope },
      .check = check_note_seen },
    { .name = "kill_note",
      .promise = "a write before a kill is seen by the end of the process",
      .setup = setup_noted,
      .threads = { drive, note_and_kill, send_one },
      .check = check_killed },
    { .name = "kill_1",
      .promise = "kill against settling and a sender",
      .setup = setup,
      .threads = { drive, kill, send_two },
      .check = check_killed },
    { .name = "kill_2",
      .promise = "kill and cancel of an idle process",
      .setup = setup_idle,
      .threads = { kill, cancel, send_one },
      .check = check_killed },
    { .name = "monitor_end",
      .promise = "a monitor is notified once: by the end, or at once if the process has ended",
      .setup = setup_monitored,
      .threads = { end_monitored, monitor_it, monitor_it },
      .check = check_monitored },
    { .name = "monitor_end_fast",
      .promise = "a monitor is notified once if the process ends on the fast path",
      .setup = setup_monitored,
      .threads = { end_monitored_fast, monitor_it, monitor_it },
      .check = check_monitored },
    { .name = "monitor_settle",
      .promise = "a monitor does not disturb settling, and no message is lost",
      .setup = setup_monitored,
      .threads = { drive, monitor_it, send_one },
      .check = check_monitored_idle },
    { .name = "slot_reused",
      .promise = "a stale pid never reaches the next process of the slot",
      .setup = setup,
      .threads = { replace, send_two, send_new },
      .check = check_replaced },
    { .name = "slot_reused_fast",
      .promise = "a stale pid never reaches the next process of the slot, on the fast paths",
      .setup = setup_fast,
      .threads = { replace_fast, send_two, send_new },
      .check = check_replaced },
    { .name = "slot_stale_cancel",
      .promise = "a stale cancel never reaches the next process of the slot",
      .setup = setup,
      .threads = { replace, cancel_old, send_new },
      .check = check_replaced },
    { .name = "slot_opened",
      .promise = "a thread that finds a new process alive sees all its fields",
      .setup = setup_free,
      .threads = { open, find_and_name } },
    { .name = "slot_moved",
      .promise = "another thread spawns the next process of the slot",
      .setup = setup,
      .threads = { end_to_depot, send_one, spawn_from_depot },
      .check = check_moved },
    { 0 },
};
