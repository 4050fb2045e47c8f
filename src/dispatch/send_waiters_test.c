/* send_waiters_test.c - senders wait for space in order of arrival, each is completed, and none is left waiting. */
#include "dispatch/send_waiters.h"

#include <stdlib.h>

#include "support/bench_runtime.h"
#include "support/until.h"

/* The waiting senders of all tests. The hooks on_room() and on_no_room() use this variable. */
static fli_send_waiters room;

static void on_room(fli_runtime *rt, fli_proc *p)
{
    ((bench *)rt)->room++;
    fli_send_waiters_retry(&room, rt, p);
}

static void on_no_room(fli_runtime *rt, fli_proc *p)
{
    ((bench *)rt)->no_room++;
    fli_waiting detached = fli_send_waiters_detach(&room, p);
    fli_send_waiters_refuse(rt, &detached, UINT32_MAX);
}

static void begin(bench *b)
{
    bench_begin(b);
    b->rt.hooks.room = on_room;
    b->rt.hooks.no_room = on_no_room;
    ok(fli_send_waiters_init(&room));
}

static void end(bench *b)
{
    fli_send_waiters_fini(&room); /* asserts that no waiter is left */
    bench_end(b);
}

/* Ends the process as fli_finish() does: also completes the senders that wait for space in its mailbox. */
static void finish(bench *b, fli_proc *p)
{
    uint64_t serial = fli_proc_serial(p);
    fli_yield_abandon(&b->rt, &b->worker, p);
    (void)fli_mail_discard(&b->rt, &b->worker, p, fli_state_finish(&p->state));
    if ((fli_limit_close(p, fli_serial_gen(serial)) & FLI_LOAD_WAITING) != 0) on_no_room(&b->rt, p);
    assert_true(fli_state_free(&p->state));
    fli_slab_give(&b->rt.procs, &b->worker.procs, p);
}

/* Makes `from` yield a send to `to`. Returns the result of the handler of FILCH_CMD_SEND. */
static filch_err yield_send(bench *b, fli_proc *from, filch_pid to, filch_data data, uint64_t tag)
{
    fli_event_node *node = fli_yield_open(&b->rt, &b->worker, from, FILCH_CMD_SEND, tag);
    assert_non_null(node);
    filch_command command = { .id = FILCH_CMD_SEND, .from = bench_pid(from), .target = to, .data = data };
    return fli_send_waiters_send(&room, &b->rt, &command, fli_yield_receiver(&b->rt, node));
}

/* Reads up to `max` events and copies them to `events` unless it is NULL. Returns their number. */
static uint32_t read_some(bench *b, fli_proc *p, uint32_t max, filch_event *events)
{
    static filch_event lent[BENCH_EVENTS];
    fli_event_node    *nodes[BENCH_EVENTS];
    bench_unstack(b, p);
    uint32_t count = fli_mail_collect(&b->rt, p, false, lent, nodes, max);
    if (events != NULL) memcpy(events, lent, count * sizeof *events);
    fli_mail_release(&b->rt, &b->worker, p, lent, nodes, count);
    return count;
}

static void expect_one(bench *b, fli_proc *p, int64_t value)
{
    filch_event event;
    same(read_some(b, p, 1, &event), 1);
    same(event.type, FILCH_EVENT_MESSAGE);
    same(filch_as_int(&event.data), value);
}

static void expect_completion(bench *b, fli_proc *p, uint64_t tag, filch_err error)
{
    filch_event event;
    same(read_some(b, p, 1, &event), 1);
    same(event.type, FILCH_EVENT_YIELD);
    same(event.tag, tag);
    same(event.error, error);
}

TEST(a_yielded_send_completes_at_once_if_the_mailbox_has_space)
{
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 2, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    fli_proc *free_one = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    ok(yield_send(&b, from, bench_pid(to), filch_int(1), 5));
    expect_completion(&b, from, 5, FILCH_OK);
    expect_one(&b, to, 1);
    ok(yield_send(&b, from, bench_pid(free_one), filch_int(2), 6));
    expect_completion(&b, from, 6, FILCH_OK);
    expect_one(&b, free_one, 2);
    finish(&b, to);
    finish(&b, from);
    finish(&b, free_one);
    end(&b);
}

TEST(waiting_senders_are_admitted_in_order_of_arrival)
{
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    for (int i = 0; i < 5; i++) ok(yield_send(&b, from, bench_pid(to), filch_int(i), (uint64_t)i));
    expect_completion(&b, from, 0, FILCH_OK);
    same(read_some(&b, from, 1, NULL), 0); /* the sends after the first one are not completed */
    /* A filch_send() is refused, because the mailbox is full. */
    same(filch_send((filch_sched *)&b.rt, bench_pid(to), filch_int(99)), FILCH_EFULL);
    for (int i = 0; i < 5; i++) {
        expect_one(&b, to, i);
        if (i < 4) expect_completion(&b, from, (uint64_t)i + 1, FILCH_OK);
    }
    same(fli_load_rlx(&to->load) & FLI_LOAD_WAITING, 0);
    ok(filch_send((filch_sched *)&b.rt, bench_pid(to), filch_int(100)));
    expect_one(&b, to, 100);
    finish(&b, to);
    finish(&b, from);
    end(&b);
}

TEST(several_waiting_senders_are_admitted_if_there_is_space)
{
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 3, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    for (int i = 0; i < 8; i++) ok(yield_send(&b, from, bench_pid(to), filch_int(i), (uint64_t)i));
    same(read_some(&b, from, 10, NULL), 3);
    same(read_some(&b, to, 3, NULL), 3);
    same(read_some(&b, from, 10, NULL), 3);
    same(fli_load_rlx(&to->load) & FLI_LOAD_WAITING, FLI_LOAD_WAITING); /* two senders still wait */
    same(read_some(&b, to, 10, NULL), 3);
    same(read_some(&b, from, 10, NULL), 2);
    same(fli_load_rlx(&to->load) & FLI_LOAD_WAITING, 0);
    finish(&b, to);
    finish(&b, from);
    end(&b);
}

/* A large message at the head of the queue of waiting senders holds back the small messages behind it until it fits. */
TEST(a_small_message_does_not_overtake_a_large_one)
{
    bench b;
    char  bytes[160] = { 0 };
    begin(&b);
    fli_proc *to = bench_spawn(&b, 0, 10, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    ok(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 64), 1));
    ok(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 32), 2));
    ok(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 160), 3)); /* fits only into an empty mailbox */
    ok(yield_send(&b, from, bench_pid(to), filch_int(4), 4));
    same(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 0), 5), FILCH_OK);
    same(read_some(&b, from, 10, NULL), 2);
    same(read_some(&b, to, 1, NULL), 1);
    same(read_some(&b, from, 10, NULL), 0);
    same(read_some(&b, to, 1, NULL), 1);
    same(read_some(&b, from, 10, NULL), 3);
    filch_event events[4];
    same(read_some(&b, to, 4, events), 3);
    same(filch_as_int(&events[1].data), 4);
    finish(&b, to);
    finish(&b, from);
    end(&b);
}

/* When a large message has been read, all small messages behind it fit, but one retry admits only
 * FLI_SEND_WAITERS_SLICE of them. The next step of the receiver admits the next ones. */
TEST(one_retry_admits_at_most_a_slice)
{
    enum { WAITING = 3 * FLI_SEND_WAITERS_SLICE };
    bench b;
    char  bytes[160] = { 0 };
    begin(&b);
    fli_proc *to = bench_spawn(&b, 0, 10, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    ok(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 160), 0));
    ok(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 16), 1));
    for (uint64_t i = 1; i < WAITING; i++) ok(yield_send(&b, from, bench_pid(to), filch_int((int64_t)i), 1 + i));
    for (uint32_t i = 1; i <= 3; i++) {
        same(read_some(&b, to, 1, NULL), 1);
        uint64_t load = fli_load_rlx(&to->load);
        same(fli_load_count(load), i * FLI_SEND_WAITERS_SLICE - (i - 1));
        same(load & FLI_LOAD_WAITING, i < 3 ? FLI_LOAD_WAITING : 0);
    }
    uint64_t next = 0, completed = 0;
    for (filch_event event; read_some(&b, from, 1, &event) == 1; completed++) same(event.tag, completed);
    same(completed, 1 + WAITING);
    for (filch_event event; read_some(&b, to, 1, &event) == 1; next++) same(filch_as_int(&event.data), next + 2);
    same(next, WAITING - 2);
    finish(&b, to);
    finish(&b, from);
    end(&b);
}

TEST(waiting_senders_are_completed_when_the_receiver_ends)
{
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    /* `other` is another receiver of the same stripe: a sender that waits for it keeps waiting when `to` ends. */
    fli_proc *receivers[FLI_SEND_WAITERS_STRIPES], *other = NULL;
    for (int i = 0; i < FLI_SEND_WAITERS_STRIPES; i++) {
        receivers[i] = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT);
        if (receivers[i]->slot % FLI_SEND_WAITERS_STRIPES == to->slot % FLI_SEND_WAITERS_STRIPES) other = receivers[i];
    }
    assert_non_null(other);
    for (uint64_t i = 0; i < 3; i++) {
        ok(yield_send(&b, from, bench_pid(to), filch_str("a text that needs a block of its own"), i));
        ok(yield_send(&b, from, bench_pid(other), filch_int(1), 10 + i));
    }
    same(read_some(&b, from, 10, NULL), 2);
    finish(&b, to);
    same(b.no_room, 1);
    expect_completion(&b, from, 1, FILCH_EDEAD);
    expect_completion(&b, from, 2, FILCH_EDEAD);
    same(read_some(&b, from, 10, NULL), 0);
    same(fli_load_rlx(&b.worker.counters.undelivered), 2);
    same(read_some(&b, other, 1, NULL), 1);
    expect_completion(&b, from, 11, FILCH_OK);
    for (int i = 0; i < FLI_SEND_WAITERS_STRIPES; i++) finish(&b, receivers[i]);
    expect_completion(&b, from, 12, FILCH_EDEAD);
    finish(&b, from);
    end(&b);
}

/* The next process of the slot gets neither the messages nor the waiting senders of the previous process. */
TEST(a_reused_slot_inherits_no_waiting_sender)
{
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_pid old = bench_pid(to);
    ok(yield_send(&b, from, old, filch_int(1), 1));
    ok(yield_send(&b, from, old, filch_int(2), 2));
    finish(&b, to);
    fli_proc *next = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT);
    assert_ptr_equal(next, to);
    same(fli_load_rlx(&next->load) & FLI_LOAD_WAITING, 0);
    same(read_some(&b, next, 1, NULL), 0);
    same(yield_send(&b, from, old, filch_int(3), 3), FILCH_EDEAD);
    ok(yield_send(&b, from, bench_pid(next), filch_int(4), 4));
    expect_one(&b, next, 4);
    finish(&b, next);
    finish(&b, from);
    end(&b);
}

/* Used by alloc_and_pass(): while a sender allocates memory, the receiver's slot is reused 4096 times, so that the 12
 * generation bits in the load word have the old value again. */
static bench    *passing;
static fli_proc *passing_slot;

static void *alloc_and_pass(void *user, void *old, size_t old_size, size_t size)
{
    bench *b = passing;
    passing = NULL;
    for (int i = 0; b != NULL && i < 4096; i++) {
        finish(b, passing_slot);
        assert_ptr_equal(bench_spawn(b, 1, 0, FILCH_OVERFLOW_WAIT), passing_slot);
    }
    if (b != NULL) ok(filch_send((filch_sched *)&b->rt, bench_pid(passing_slot), filch_int(1)));
    return test_alloc_fn(user, old, old_size, size);
}

TEST(no_sender_waits_for_the_next_process_of_a_slot)
{
    bench b;
    begin(&b);
    b.rt.mem.alloc = alloc_and_pass;
    fli_proc *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    passing_slot = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT);
    fli_event_node *node = fli_yield_open(&b.rt, &b.worker, from, FILCH_CMD_SEND, 1);
    /* the payload is too long for the node: memory for its copy is allocated after the receiver was found alive */
    char          bytes[64] = { 0 };
    filch_command command = { .id = FILCH_CMD_SEND,
                              .from = bench_pid(from),
                              .target = bench_pid(passing_slot),
                              .data = filch_bytes(bytes, sizeof bytes) };
    passing = &b;
    same(fli_send_waiters_send(&room, &b.rt, &command, fli_yield_receiver(&b.rt, node)), FILCH_EDEAD);
    assert_null(passing);
    /* The later process in the slot has only its own message, and no sender waits for it. */
    expect_one(&b, passing_slot, 1);
    same(fli_load_rlx(&passing_slot->load) & FLI_LOAD_WAITING, 0);
    ok(filch_send((filch_sched *)&b.rt, bench_pid(passing_slot), filch_int(2)));
    expect_one(&b, passing_slot, 2);
    finish(&b, passing_slot);
    finish(&b, from);
    end(&b);
}

TEST(the_message_of_a_waiting_sender_is_delivered_after_the_sender_ended)
{
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    ok(yield_send(&b, from, bench_pid(to), filch_int(1), 1));
    ok(yield_send(&b, from, bench_pid(to), filch_int(2), 2));
    finish(&b, from);
    expect_one(&b, to, 1);
    expect_one(&b, to, 2);
    same(fli_load_rlx(&b.worker.counters.late_completions), 1);
    finish(&b, to);
    end(&b);
}

TEST(a_process_may_wait_for_space_in_its_own_mailbox)
{
    bench b;
    begin(&b);
    fli_proc *p = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT);
    ok(yield_send(&b, p, bench_pid(p), filch_int(1), 1));
    ok(yield_send(&b, p, bench_pid(p), filch_int(2), 2));
    expect_completion(&b, p, 1, FILCH_OK);
    expect_one(&b, p, 1);
    expect_completion(&b, p, 2, FILCH_OK);
    expect_one(&b, p, 2);
    finish(&b, p);
    end(&b);
}

TEST(other_policies_do_not_wait)
{
    bench b;
    begin(&b);
    fli_proc *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    fli_proc *fails = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_FAIL),
             *drops = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_DROP_NEWEST);
    ok(yield_send(&b, from, bench_pid(fails), filch_int(1), 1));
    same(yield_send(&b, from, bench_pid(fails), filch_int(2), 2), FILCH_EFULL);
    ok(yield_send(&b, from, bench_pid(drops), filch_int(1), 3));
    same(yield_send(&b, from, bench_pid(drops), filch_int(2), 4), FILCH_EDROPPED);
    char bytes[32] = { 0 };
    same(fli_load_rlx(&b.worker.counters.refused), 1);
    same(fli_load_rlx(&b.worker.counters.dropped), 1);
    same(yield_send(&b, from, (filch_pid){ 5, 5 }, filch_int(1), 5), FILCH_EFOREIGN);
    same(yield_send(&b, from, bench_pid(fails), filch_bytes(NULL, 3), 6), FILCH_EINVAL);
    b.rt.payload_max = 31;
    same(yield_send(&b, from, bench_pid(fails), filch_bytes(bytes, 32), 7), FILCH_ETOOBIG);
    finish(&b, fails);
    finish(&b, drops);
    finish(&b, from);
    end(&b);
}

TEST(no_memory_to_wait_is_an_error_and_leaks_nothing)
{
    char  bytes[64] = { 0 };
    bench b;
    begin(&b);
    fli_proc *to = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT), *from = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    /* `other` sends too, because a process with at most two outstanding yields needs no memory for its list of
     * yields */
    fli_proc *other = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    enum { TAKEN_MAX = 100000, MADE = 16 };
    static fli_event_node *taken[TAKEN_MAX];
    for (int i = 0; i < MADE; i++) taken[i] = fli_node_take(&b.rt, &b.worker);
    for (int i = 0; i < MADE; i++) fli_node_give(&b.rt, &b.worker, taken[i]);
    ok(yield_send(&b, from, bench_pid(to), filch_int(1), 1));
    test_alloc_fail(&b.alloc, 1, true);
    /* There is no memory for a copy of the payload. */
    same(yield_send(&b, from, bench_pid(to), filch_bytes(bytes, 64), 2), FILCH_ENOMEM);
    /* Takes the nodes that are left, so that the next node needs memory. */
    uint32_t        count = 0;
    fli_event_node *node = fli_yield_open(&b.rt, &b.worker, other, FILCH_CMD_SEND, 3);
    while (count < TAKEN_MAX && (taken[count] = fli_node_take(&b.rt, &b.worker)) != NULL) count++;
    assert_true(count < TAKEN_MAX);
    filch_command command = {
        .id = FILCH_CMD_SEND, .from = bench_pid(other), .target = bench_pid(to), .data = filch_int(3)
    };
    same(fli_send_waiters_send(&room, &b.rt, &command, fli_yield_receiver(&b.rt, node)), FILCH_ENOMEM);
    for (uint32_t i = 0; i < count; i++) fli_node_give(&b.rt, &b.worker, taken[i]);
    /* A waiting sender needs no memory except the node of its message. */
    ok(yield_send(&b, other, bench_pid(to), filch_int(4), 4));
    test_alloc_fail(&b.alloc, 0, false);
    same(fli_load_rlx(&b.worker.counters.refused), 0);
    expect_one(&b, to, 1);
    expect_one(&b, to, 4);
    finish(&b, to);
    finish(&b, from);
    finish(&b, other);
    end(&b);
}

/* ---- senders on several threads ---- */

enum { SENDERS = 2, LIVES = 40 };

/* Each sender yields one send after the other to the process that uses the slot. That process reads a few messages and
 * ends; then the next process of the slot reads a few messages and ends, and so on. */
typedef struct crowd {
    bench                b;
    FLI_ATOMIC(uint64_t) target; /* serial of the process that uses the slot */
    FLI_ATOMIC(bool)     over;
    FLI_ATOMIC(uint64_t) delivered, dead;
} crowd;

typedef struct sender {
    crowd     *c;
    fli_proc  *p;
    fli_local  worker;
    fli_thread thread;
} sender;

static void send_on(void *arg)
{
    sender *s = arg;
    crowd  *c = s->c;
    s->worker.rt = &c->b.rt;
    fli_current_set(&s->worker);
    for (uint64_t tag = 1; !fli_load_acq(&c->over); tag++) {
        fli_event_node *node = fli_yield_open(&c->b.rt, &s->worker, s->p, FILCH_CMD_SEND, tag);
        filch_receiver  receiver = fli_yield_receiver(&c->b.rt, node);
        filch_command   command = { .id = FILCH_CMD_SEND,
                                    .from = bench_pid(s->p),
                                    .target = { BENCH_NODE, fli_load_acq(&c->target) },
                                    .data = filch_int((int64_t)tag) };
        filch_err       err = fli_send_waiters_send(&room, &c->b.rt, &command, receiver);
        if (err != FILCH_OK) (void)!filch_complete(receiver, tag, filch_none(), err);
        /* The sender waits for the completion, as a blocked process would. */
        filch_event     event;
        fli_event_node *at;
        uint32_t        count = 0;
        while (count == 0) {
            fli_mail_unstack(&c->b.rt, &s->worker, s->p, fli_word_head(fli_state_look(&s->p->state)));
            count = fli_mail_collect(&c->b.rt, s->p, false, &event, &at, 1);
            if (count == 0) yield_slice();
        }
        if (event.error == FILCH_OK) fli_add_rlx(&c->delivered, 1);
        else fli_add_rlx(&c->dead, 1);
        fli_mail_release(&c->b.rt, &s->worker, s->p, &event, &at, 1);
    }
    /* Ends the process `s->p` on this thread, so that its nodes go to this thread's own magazine. */
    fli_yield_abandon(&c->b.rt, &s->worker, s->p);
    (void)fli_mail_discard(&c->b.rt, &s->worker, s->p, fli_state_finish(&s->p->state));
    fli_slab_empty(&c->b.rt.nodes, &s->worker.nodes);
    fli_current_set(NULL);
}

TEST(no_sender_is_left_waiting_while_receivers_start_and_end)
{
    static crowd  c;
    static sender senders[SENDERS];
    uint64_t      lives = scaled(LIVES * 500), read = 0, unread = 0;
    memset(&c, 0, sizeof c);
    begin(&c.b);
    for (int i = 0; i < SENDERS; i++) {
        memset(&senders[i], 0, sizeof senders[i]);
        senders[i].c = &c;
        senders[i].p = bench_spawn(&c.b, 0, 0, FILCH_OVERFLOW_FAIL);
    }
    fli_proc *p = bench_spawn(&c.b, 1, 0, FILCH_OVERFLOW_WAIT);
    fli_store_rel(&c.target, fli_proc_serial(p));
    for (int i = 0; i < SENDERS; i++) ok(fli_thread_start(&senders[i].thread, "sender", send_on, &senders[i]));
    for (uint64_t life = 0; life < lives; life++) {
        for (uint64_t k = 0; k < 3 + life % 5; k++) {
            read += read_some(&c.b, p, 1, NULL);
            if (k % 2 == 0) yield_slice();
        }
        uint64_t serial = fli_proc_serial(p);
        fli_yield_abandon(&c.b.rt, &c.b.worker, p);
        unread += fli_mail_discard(&c.b.rt, &c.b.worker, p, fli_state_finish(&p->state));
        if ((fli_limit_close(p, fli_serial_gen(serial)) & FLI_LOAD_WAITING) != 0) on_no_room(&c.b.rt, p);
        assert_true(fli_state_free(&p->state));
        fli_slab_give(&c.b.rt.procs, &c.b.worker.procs, p);
        p = bench_spawn(&c.b, 1, 0, FILCH_OVERFLOW_WAIT);
        fli_store_rel(&c.target, fli_proc_serial(p));
    }
    fli_store_rel(&c.over, true);
    /* Ends the last process of the slot. This completes the senders that still wait for that process. */
    uint64_t serial = fli_proc_serial(p);
    unread += fli_mail_discard(&c.b.rt, &c.b.worker, p, fli_state_finish(&p->state));
    if ((fli_limit_close(p, fli_serial_gen(serial)) & FLI_LOAD_WAITING) != 0) on_no_room(&c.b.rt, p);
    for (int i = 0; i < SENDERS; i++) fli_thread_join(&senders[i].thread);
    same(fli_load_rlx(&c.delivered), read + unread);
    end(&c.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_yielded_send_completes_at_once_if_the_mailbox_has_space),
        cmocka_unit_test(waiting_senders_are_admitted_in_order_of_arrival),
        cmocka_unit_test(several_waiting_senders_are_admitted_if_there_is_space),
        cmocka_unit_test(a_small_message_does_not_overtake_a_large_one),
        cmocka_unit_test(one_retry_admits_at_most_a_slice),
        cmocka_unit_test(waiting_senders_are_completed_when_the_receiver_ends),
        cmocka_unit_test(a_reused_slot_inherits_no_waiting_sender),
        cmocka_unit_test(no_sender_waits_for_the_next_process_of_a_slot),
        cmocka_unit_test(the_message_of_a_waiting_sender_is_delivered_after_the_sender_ended),
        cmocka_unit_test(a_process_may_wait_for_space_in_its_own_mailbox),
        cmocka_unit_test(other_policies_do_not_wait),
        cmocka_unit_test(no_memory_to_wait_is_an_error_and_leaks_nothing),
        cmocka_unit_test(no_sender_is_left_waiting_while_receivers_start_and_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
