/* limit_parts.c - a mailbox with space for one message, and senders that wait for space. Tests the WAITING bit and the
 * list of waiting senders while the owner reads, and while the process ends. No sender may wait for ever, and none may
 * be admitted twice. */
#include "harness.h"

static struct {
    fli_proc      *p; /* the process with the limited mailbox */
    filch_pid      pid;
    fli_proc      *senders[2]; /* processes that have yielded a send to `p` and wait until its mailbox has space */
    filch_receiver receivers[2];
} * s;

static struct pass {
    filch_err results[FLI_WEAK_THREADS + 1];
} * pass;

static void setup_with(filch_overflow overflow)
{
    harness_setup();
    pass = fli_weak_new(sizeof *pass);
    s = fli_weak_new(sizeof *s);
    s->p = harness_spawn(1, overflow);
    s->pid = harness_pid(s->p);
    for (int i = 0; i < 2; i++) {
        s->senders[i] = harness_spawn(0, FILCH_OVERFLOW_FAIL);
        s->receivers[i] = fli_yield_receiver(&b->rt, fli_yield_open(&b->rt, &b->worker[i + 2], s->senders[i], 5, 9));
        s->senders[i]->flags |= FLI_PROC_WAITING;
    }
    /* The sender of this message is a process, so that the owner of `p` can read the message on the fast path. */
    filch_data data = filch_int(1);
    must(fli_send(&b->rt, harness_worker(), s->pid, (filch_pid){ HARNESS_NODE, 1 }, &data) == FILCH_OK,
         "there is space");
    b->accepted[0] = 1;
}

static void setup(void)
{
    setup_with(FILCH_OVERFLOW_WAIT);
}

static void setup_fail(void)
{
    setup_with(FILCH_OVERFLOW_FAIL);
}

/* setup_fast() and setup_fast_fail() do what setup() and setup_fail() do; in addition, messages are sent and read on
 * the fast paths. */
static void setup_fast(void)
{
    setup();
    b->fast = true;
}

static void setup_fast_fail(void)
{
    setup_fail();
    b->fast = true;
}

/* Does what setup_fast() does, but the mailbox has space for two messages. */
static void setup_fast_roomy(void)
{
    setup_fast();
    fli_store_rlx(&s->p->mailbox_max, 2);
}

static void drive(void)
{
    harness_drive(s->p);
}

static void end(void)
{
    harness_life_of(s->p)->inside++;
    harness_finish(s->p);
}

/* Does what a FILCH_CMD_SEND yield of sender `which` does. Then the sender waits for the completion. */
static void send_and_wait(int which, uint32_t n)
{
    fli_local    *worker = harness_worker();
    filch_command command = { .id = 5,
                              .from = harness_pid(s->senders[which]),
                              .target = s->pid,
                              .data = filch_int((int64_t)(fli_weak_self * 16 + n)) };
    worker->current = s->senders[which];
    worker->serial = fli_proc_serial(s->senders[which]);
    worker->dispatching = true;
    filch_err err = fli_send_waiters_send(&b->room, &b->rt, &command, s->receivers[which]);
    if (err != FILCH_OK) (void)!filch_complete(s->receivers[which], 9, filch_none(), err);
    worker->dispatching = false;
    worker->current = NULL;
    worker->serial = 0;
    harness_drive(s->senders[which]);
}

static void sender_1(void)
{
    send_and_wait(0, 1);
}

static void sender_2(void)
{
    send_and_wait(1, 1);
}

static void try_send(void)
{
    harness_send(s->pid, 1);
}

/* Checks that every sender got one completion and that all accepted messages were read. */
static void check_senders(int count, bool ended)
{
    uint32_t ok = 0;
    for (int i = 0; i < count; i++) {
        const harness_life *life = harness_life_of(s->senders[i]);
        must(life->yields_completed == 1, "a sender that waits for space gets one completion");
        must(life->completion_error == FILCH_OK || (ended && life->completion_error == (uint32_t)FILCH_EDEAD),
             "the completion has the result of the send");
        ok += life->completion_error == FILCH_OK;
        harness_life_of(s->senders[i])->inside++;
        harness_finish(s->senders[i]);
    }
    const harness_life *life = harness_life_of(s->p);
    must(life->received + harness_sum(b->unread) == ok + harness_sum(b->accepted),
         "each accepted message is read, or counted as unread");
    for (int i = 0; i < FLI_SEND_WAITERS_STRIPES; i++)
        must(b->room.stripes[i].count == 0, "no sender is left in the list of waiters");
    uint64_t load = fli_load_rlx(&s->p->load);
    must(fli_load_count(load) == 0 && (load & FLI_LOAD_WAITING) == 0, "the reserved space is released");
    fli_weak_outcome(ok * 16 + life->received);
}

static void check_1(void)
{
    check_senders(1, false);
}

static void check_2(void)
{
    check_senders(2, false);
}

static void check_1_ended(void)
{
    check_senders(1, true);
}

static void check_2_ended(void)
{
    check_senders(2, true);
}

static void check_fail(void)
{
    must(harness_life_of(s->p)->received == harness_sum(b->accepted), "each accepted message is read");
    must(fli_load_count(fli_load_rlx(&s->p->load)) == 0, "the reserved space is released");
    fli_weak_outcome(harness_sum(b->accepted));
}

const fli_weak_program parts_limit[] = {
    { .name = "limit_full",
      .promise = "two senders that do not wait, and the owner reads",
      .setup = setup_fail,
      .threads = { drive, try_send, try_send },
      .check = check_fail },
    { .name = "limit_fast_full",
      .promise = "two senders on the fast path that do not wait, and the owner reads",
      .setup = setup_fast_fail,
      .threads = { drive, try_send, try_send },
      .check = check_fail },
    { .name = "limit_fast_wait",
      .promise = "one sender waits for space, the owner reads on the fast path",
      .setup = setup_fast,
      .threads = { drive, sender_1 },
      .check = check_1 },
    { .name = "limit_fast_both",
      .promise = "one sender waits for space, one is on the fast path, the owner reads",
      .setup = setup_fast,
      .threads = { drive, sender_1, try_send },
      .check = check_1,
      .bound = 1,
      .rare = true },
    { .name = "limit_fast_two",
      .promise = "two senders find space or wait, the owner reads on the fast path",
      .setup = setup_fast_roomy,
      .threads = { drive, sender_1, sender_2 },
      .check = check_2,
      .bound = 1 },
    { .name = "limit_fast_end",
      .promise = "a sender on the fast path and one that waits, the process ends",
      .setup = setup_fast,
      .threads = { end, sender_1, try_send },
      .check = check_1_ended,
      .bound = 2 },
    { .name = "limit_wait_1",
      .promise = "one sender waits for space, the owner reads",
      .setup = setup,
      .threads = { drive, sender_1 },
      .check = check_1 },
    { .name = "limit_wait_end",
      .promise = "one sender waits for space, the process ends",
      .setup = setup,
      .threads = { end, sender_1 },
      .check = check_1_ended },
    { .name = "limit_wait_2",
      .promise = "two senders wait for space, the owner reads",
      .setup = setup,
      .threads = { drive, sender_1, sender_2 },
      .check = check_2,
      .bound = 1,
      .rare = true },
    { .name = "limit_wait_2_end",
      .promise = "two senders wait for space, the process ends",
      .setup = setup,
      .threads = { end, sender_1, sender_2 },
      .check = check_2_ended,
      .bound = 1 },
    { 0 },
};
