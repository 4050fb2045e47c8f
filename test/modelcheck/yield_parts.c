/* yield_parts.c - the stamp of a yield's node: two threads complete one yield, concurrently with each other and with
 * the end of the process. One of them wins; only the winner fills the node, and the node is freed once. */
#include "harness.h"

static struct {
    fli_proc *p;
    /* receiver of the yield; the model program passes it to the threads that complete the yield */
    filch_receiver receiver;
    /* the yield that the owner closes, in a program in which the process has two; otherwise NULL */
    fli_event_node *first;
} * s;

static struct pass {
    /* Key of a yield that a thread has opened. Stored and loaded with relaxed order, because the model program passes
     * receivers to other threads without ordering. */
    FLI_ATOMIC(uint64_t) key;
    uint32_t             ok[FLI_WEAK_THREADS + 1], late[FLI_WEAK_THREADS + 1];
    uint32_t             named;
} * pass;

static void setup(void)
{
    harness_setup();
    pass = fli_weak_new(sizeof *pass);
    s = fli_weak_new(sizeof *s);
    s->p = harness_spawn(0, FILCH_OVERFLOW_FAIL);
}

static void setup_open(void)
{
    setup();
    fli_event_node *node = fli_yield_open(&b->rt, &b->worker[1], s->p, 5, 9);
    s->receiver = fli_yield_receiver(&b->rt, node);
    s->p->flags |= FLI_PROC_WAITING;
}

/* Setup with two outstanding yields: `first`, and the yield of `receiver`, which is the last in the list. */
static void setup_two(void)
{
    setup();
    s->first = fli_yield_open(&b->rt, &b->worker[1], s->p, 4, 9);
    s->receiver = fli_yield_receiver(&b->rt, fli_yield_open(&b->rt, &b->worker[1], s->p, 5, 9));
}

/* Setup in which the process is BLOCKED: it waits for the yield. */
static void setup_blocked(void)
{
    setup_open();
    harness_drive(s->p);
}

static void drive(void)
{
    harness_drive(s->p);
}

static void complete(filch_receiver receiver)
{
    (void)harness_worker();
    filch_err err = filch_complete(receiver, receiver.tag, filch_int((int64_t)fli_weak_self), FILCH_OK);
    must(err == FILCH_OK || err == FILCH_ESTALE || err == FILCH_EDEAD, "a completion is accepted, or it is late");
    if (err == FILCH_OK) pass->ok[fli_weak_self]++;
    else pass->late[fli_weak_self]++;
}

static void complete_it(void)
{
    complete(s->receiver);
}

static void cancel(void)
{
    if (fli_state_set_flag(&s->p->state, fli_word_gen(fli_state_peek(&s->p->state)), FLI_CANCEL) == FLI_DELIVERY_WOKE) {
        b->rt.hooks.ready(&b->rt, harness_worker(), s->p);
    }
}

static void check_completed(void)
{
    const harness_life *life = harness_life_of(s->p);
    must(harness_sum(pass->ok) == 1, "exactly one completion wins");
    must(life->yields_completed == 1 && life->completion_error == FILCH_OK, "the process gets one completion");
    must(pass->ok[life->completion] == 1, "the completion is that of the winner");
    must(fli_word_state(fli_state_peek(&s->p->state)) == FLI_IDLE && s->p->yield_count == 0,
         "then no yield is outstanding");
    must(harness_sum(b->woke) + 1 == harness_sum(b->slept), "each settle but the last is followed by one wake-up");
    harness_check_nodes();
    fli_weak_outcome((uint64_t)life->completion * 16 + harness_sum(b->woke));
}

/* Ends the process while the yield is outstanding. Then takes two nodes and writes to them without ordering, as a later
 * yield that reuses the node would. */
static void end_and_reuse(void)
{
    fli_local *worker = harness_worker();
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
    uint32_t taken[2];
    for (int i = 0; i < 2; i++) {
        fli_event_node *node = fli_node_take(&b->rt, worker);
        node->error = 1;
        node->tag = 1;
        node->data[0] = 1;
        taken[i] = node->self;
    }
    for (int i = 0; i < 2; i++) fli_node_give(&b->rt, worker, fli_node_at(&b->rt, taken[i]));
}

/* Closes the first of two yields, which writes to the node of the other yield, then ends the process. */
static void close_and_end(void)
{
    harness_life_of(s->p)->inside++;
    fli_yield_close(&b->rt, s->p, s->first);
    fli_full_node_give(&b->rt, harness_worker(), s->first);
    harness_finish(s->p);
}

/* Completes the yield. Then takes a node and writes to it without ordering, as a message would that reuses the node of
 * a completion that was too late. */
static void complete_and_reuse(void)
{
    complete_it();
    fli_local      *worker = harness_worker();
    fli_event_node *node = fli_node_take(&b->rt, worker);
    node->sender_worker = worker->number;
    fli_node_give(&b->rt, worker, node);
}

/* Ends the process, then opens a yield of another process, which uses the node of the first yield. The old receiver
 * must not complete the new yield. */
static void end_and_open(void)
{
    fli_local *worker = harness_worker();
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
    fli_proc *next = harness_spawn(0, FILCH_OVERFLOW_FAIL);
    (void)!fli_yield_open(&b->rt, worker, next, 6, 9);
    (void)!fli_yield_open(&b->rt, worker, next, 7, 9);
    harness_life_of(next)->inside++;
    next->flags |= FLI_PROC_WAITING;
    must(next->completions == 0, "a new yield has no completion");
    fli_mail_unstack(&b->rt, worker, next, fli_word_head(fli_state_look(&next->state)));
    must(next->completions == 0, "an old receiver does not complete another yield");
    harness_finish(next);
}

/* Reads the command of the yield for which the process waits, as a stop does, then ends the process. */
static void name_and_end(void)
{
    uint32_t command = 0;
    uint64_t tag = 0;
    if (fli_yield_first(&b->rt, s->p, &command, &tag)) {
        must(command == 5 && tag == 9, "the outstanding yield is named with its command and tag");
        pass->named++;
    }
    end_and_reuse();
}

/* Reads the command of the yield for which the process waits. A completion of this yield by another thread at the same
 * time may be accepted, or be stale. */
static void name_only(void)
{
    uint32_t command = 0;
    uint64_t tag = 0;
    if (fli_yield_first(&b->rt, s->p, &command, &tag))
        must(command == 5 && tag == 9, "the yield is named with its command and tag");
}

static void check_named(void)
{
    must(harness_sum(pass->ok) <= 1, "at most one completion wins");
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
    harness_check_nodes();
    fli_weak_outcome(harness_sum(pass->ok));
}

static void check_ended(void)
{
    must(harness_sum(pass->ok) <= 1, "at most one completion wins");
    harness_check_nodes();
    fli_weak_outcome(harness_sum(pass->ok) * 16 + pass->named);
}

/* Opens the yield, and passes the receiver's key to another thread through a relaxed atomic. */
static void open_and_drive(void)
{
    fli_local      *worker = harness_worker();
    fli_event_node *node = fli_yield_open(&b->rt, worker, s->p, 5, 9);
    s->p->flags |= FLI_PROC_WAITING;
    fli_store_rlx(&pass->key, fli_yield_receiver(&b->rt, node).key);
    harness_drive(s->p);
}

static void complete_key(void)
{
    uint64_t key = fli_load_rlx(&pass->key);
    if (key != 0) complete((filch_receiver){ .sched = (filch_sched *)&b->rt, .key = key, .tag = 9 });
}

static void check_open(void)
{
    /* The other thread may read an old key, so its receiver may be stale. Then no completion is accepted; otherwise
     * exactly one is. */
    must(harness_sum(pass->ok) <= 1, "at most one completion wins");
    if (harness_sum(pass->ok) == 1) check_completed();
}

/* Completes the yield twice. The second completion must be refused as late, whether the first was accepted or not. */
static void complete_then_again(void)
{
    complete_it();
    complete_it();
}

const fli_weak_program parts_yield[] = {
    { .name = "yield_two_completers",
      .promise = "two completions of a process that settles",
      .setup = setup_open,
      .threads = { drive, complete_it, complete_it },
      .check = check_completed },
    { .name = "yield_blocked",
      .promise = "three completions of a blocked process",
      .setup = setup_blocked,
      .threads = { complete_it, complete_it, complete_it },
      .check = check_completed },
    { .name = "yield_cancel",
      .promise = "completions and a cancel",
      .setup = setup_blocked,
      .threads = { complete_it, cancel, complete_it },
      .check = check_completed },
    { .name = "yield_abandon",
      .promise = "two completions against the end; the node is reused",
      .setup = setup_open,
      .threads = { end_and_reuse, complete_it, complete_it },
      .check = check_ended },
    { .name = "yield_close_end",
      .promise = "a late completion frees a node to which the owner wrote before the end",
      .setup = setup_two,
      .threads = { close_and_end, complete_and_reuse, complete_and_reuse },
      .check = check_ended },
    { .name = "yield_reopened",
      .promise = "an old receiver does not complete another yield",
      .setup = setup_open,
      .threads = { end_and_open, complete_it, complete_it },
      .check = check_ended },
    { .name = "yield_named",
      .promise = "the yield is named and the process ended, against two completions",
      .setup = setup_open,
      .threads = { name_and_end, complete_it, complete_it },
      .check = check_ended },
    { .name = "yield_named_only",
      .promise = "the yield is named, against two completions",
      .setup = setup_open,
      .threads = { name_only, complete_it, complete_it },
      .check = check_named },
    { .name = "yield_relaxed",
      .promise = "the receiver is passed on by a relaxed store",
      .setup = setup,
      .threads = { open_and_drive, complete_key, complete_key },
      .check = check_open },
    { .name = "yield_complete_twice",
      .promise = "the same thread completes twice",
      .setup = setup_open,
      .threads = { drive, complete_then_again, complete_it },
      .check = check_completed },
    { 0 },
};
