/* mailbox_test.c - events arrive in order, completions before messages; a node goes back to the slab exactly once,
 * and never while the mailbox head names it. */
#include "proc/mailbox.h"

#include <stdlib.h>

#include "payload/data.h"
#include "proc/send.h"
#include "support/bench_runtime.h"
#include "support/until.h"

static const filch_pid no_sender = { 0, 0 };

static void send_int(bench *b, fli_proc *p, int64_t value)
{
    filch_data data = filch_int(value);
    ok(fli_send(&b->rt, &b->worker, bench_pid(p), no_sender, &data));
}

/* Opens a yield and completes it at once. */
static void complete_one_yield(bench *b, fli_proc *p, uint64_t tag)
{
    fli_event_node *node = fli_yield_open(&b->rt, &b->worker, p, 300, tag);
    assert_non_null(node);
    filch_receiver receiver = fli_yield_receiver(&b->rt, node);
    ok(filch_complete(receiver, tag, filch_int((int64_t)tag * 10), FILCH_OK));
}

typedef struct batch {
    filch_event     events[BENCH_EVENTS];
    fli_event_node *nodes[BENCH_EVENTS];
    uint32_t        count;
} batch;

static void collect(bench *b, fli_proc *p, bool cancel, uint32_t max, batch *got)
{
    got->count = fli_mail_collect(&b->rt, p, cancel, got->events, got->nodes, max);
}

static void release(bench *b, fli_proc *p, batch *got)
{
    fli_mail_release(&b->rt, &b->worker, p, got->events, got->nodes, got->count);
}

/* Unstacks the mailbox, collects all events, checks that they are the messages `from` to `to`, and releases them. */
static void expect_messages(bench *b, fli_proc *p, int64_t from, int64_t to)
{
    batch got;
    bench_unstack(b, p);
    collect(b, p, false, BENCH_EVENTS, &got);
    same(got.count, to - from + 1);
    for (uint32_t i = 0; i < got.count; i++) {
        same(got.events[i].type, FILCH_EVENT_MESSAGE);
        same(filch_as_int(&got.events[i].data), from + i);
    }
    release(b, p, &got);
}

TEST(messages_come_in_the_order_sent)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    for (int i = 1; i <= 5; i++) send_int(&b, p, i);
    expect_messages(&b, p, 1, 5);
    for (int i = 6; i <= 7; i++) send_int(&b, p, i);
    bench_unstack(&b, p);
    for (int i = 8; i <= 10; i++) send_int(&b, p, i);
    expect_messages(&b, p, 6, 10);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(a_batch_takes_at_most_max_events_and_the_rest_stays_in_order)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    for (int i = 1; i <= 7; i++) send_int(&b, p, i);
    bench_unstack(&b, p);
    for (int i = 1; i <= 6; i += 3) {
        collect(&b, p, false, 3, &got);
        same(got.count, 3);
        for (int k = 0; k < 3; k++) same(filch_as_int(&got.events[k].data), i + k);
        release(&b, p, &got);
    }
    collect(&b, p, false, 3, &got);
    same(got.count, 1);
    release(&b, p, &got);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(cancel_comes_before_completions_and_completions_before_messages)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    send_int(&b, p, 1);
    complete_one_yield(&b, p, 21);
    send_int(&b, p, 2);
    complete_one_yield(&b, p, 22);
    bench_unstack(&b, p);
    collect(&b, p, true, BENCH_EVENTS, &got);
    same(got.count, 5);
    same(got.events[0].type, FILCH_EVENT_CANCEL);
    same(got.events[0].error, FILCH_ECANCELLED);
    for (int i = 0; i < 2; i++) {
        same(got.events[1 + i].type, FILCH_EVENT_YIELD);
        same(got.events[1 + i].tag, 21 + i);
        same(filch_as_int(&got.events[1 + i].data), (21 + i) * 10);
        same(got.events[3 + i].type, FILCH_EVENT_MESSAGE);
        same(filch_as_int(&got.events[3 + i].data), 1 + i);
    }
    release(&b, p, &got);
    same(p->yield_count, 0);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(a_waiting_process_gets_completions_only_and_its_messages_later)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    p->flags |= FLI_PROC_WAITING;
    send_int(&b, p, 1);
    complete_one_yield(&b, p, 5);
    bench_unstack(&b, p);
    collect(&b, p, false, BENCH_EVENTS, &got);
    same(got.count, 1);
    same(got.events[0].type, FILCH_EVENT_YIELD);
    release(&b, p, &got);
    p->flags &= (uint8_t)~FLI_PROC_WAITING;
    send_int(&b, p, 2);
    expect_messages(&b, p, 1, 2);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* If each step finds messages and a full batch of completions, every second step gets a message. */
TEST(completions_in_every_batch_do_not_starve_messages)
{
    const uint32_t sizes[] = { 1, 2, 3, BENCH_EVENTS };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        bench    b;
        batch    got;
        uint32_t max = sizes[s];
        int64_t  next = 1;
        bench_begin(&b);
        fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
        for (int i = 1; i <= 5; i++) send_int(&b, p, i);
        for (uint32_t step = 1; step <= 10; step++) {
            for (uint32_t i = 0; i < max; i++) complete_one_yield(&b, p, 7);
            bench_unstack(&b, p);
            collect(&b, p, false, max, &got);
            same(got.count, max);
            /* If a batch has a message, the message is its last event. */
            for (uint32_t i = 0; i + 1 < max; i++) same(got.events[i].type, FILCH_EVENT_YIELD);
            if (got.events[max - 1].type == FILCH_EVENT_MESSAGE) {
                same(filch_as_int(&got.events[max - 1].data), next++);
                same(got.events[max - 1].tag, 0);
            }
            release(&b, p, &got);
            same(next - 1, step / 2);
        }
        same(bench_finish(&b, p), 0);
        bench_end(&b);
    }
}

TEST(a_message_that_was_passed_over_does_not_delay_a_cancel)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    send_int(&b, p, 1);
    complete_one_yield(&b, p, 7);
    complete_one_yield(&b, p, 8);
    bench_unstack(&b, p);
    const int32_t want[] = { FILCH_EVENT_YIELD, FILCH_EVENT_CANCEL, FILCH_EVENT_MESSAGE, FILCH_EVENT_YIELD };
    for (int i = 0; i < 4; i++) {
        collect(&b, p, i == 1, 1, &got);
        same(got.count, 1);
        same(got.events[0].type, want[i]);
        release(&b, p, &got);
    }
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* If the message that a step passed over is dropped before the next step, the next step must get another message. */
TEST(completions_do_not_starve_messages_of_a_mailbox_that_drops_the_oldest)
{
    bench b;
    batch got;
    int   messages = 0;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_DROP_OLDEST);
    send_int(&b, p, 0);
    for (int step = 1; step <= 10; step++) {
        for (int i = 0; i < 2; i++) complete_one_yield(&b, p, 7);
        send_int(&b, p, step);
        bench_unstack(&b, p);
        collect(&b, p, false, 2, &got);
        same(got.count, 2);
        if (got.events[1].type == FILCH_EVENT_MESSAGE) messages++;
        release(&b, p, &got);
    }
    assert_true(messages >= 5);
    (void)bench_finish(&b, p);
    bench_end(&b);
}

TEST(an_event_names_its_sender_also_one_of_another_node)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_data data = filch_none();
    filch_pid  near = { BENCH_NODE, 11 }, far = { 123, 12 };
    ok(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &data));
    ok(fli_send(&b.rt, &b.worker, bench_pid(p), near, &data));
    ok(fli_send(&b.rt, &b.worker, bench_pid(p), far, &data));
    bench_unstack(&b, p);
    collect(&b, p, false, BENCH_EVENTS, &got);
    same(got.count, 3);
    assert_memory_equal(&got.events[0].from, &no_sender, sizeof no_sender);
    assert_memory_equal(&got.events[1].from, &near, sizeof near);
    assert_memory_equal(&got.events[2].from, &far, sizeof far);
    for (int i = 0; i < 3; i++) same(got.events[i].tag, 0);
    release(&b, p, &got);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(only_messages_of_other_workers_are_remote_events)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    uint32_t  home = b.worker.number, senders[] = { 3, 3, 5, 0, 5, 5, 3, 3 }; /* 0: sent by a foreign thread */
    for (size_t i = 0; i < sizeof senders / sizeof senders[0]; i++) {
        b.worker.number = senders[i];
        send_int(&b, p, (int64_t)i);
    }
    b.worker.number = 3;
    complete_one_yield(&b, p, 1);
    b.worker.remote_events = 0;
    bench_unstack(&b, p);
    same(b.worker.remote_events, 3);
    b.worker.number = home;
    batch got;
    collect(&b, p, false, BENCH_EVENTS, &got);
    release(&b, p, &got);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* If the node were freed while the head names it, it could be reused for the next message. The head would then not
 * change, and the worker would miss that message. */
TEST(the_head_node_is_not_freed_while_the_head_names_it)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    send_int(&b, p, 1);
    uint32_t head = fli_word_head(fli_state_peek(&p->state));
    expect_messages(&b, p, 1, 1);
    same(bench_nodes_out(&b), 1);
    same(fli_mail_held_head(p), head);
    /* A second fli_mail_unstack() does not free the head node either. */
    bench_unstack(&b, p);
    same(bench_nodes_out(&b), 1);
    send_int(&b, p, 2);
    assert_int_not_equal(fli_word_head(fli_state_peek(&p->state)), head);
    expect_messages(&b, p, 2, 2);
    /* The mailbox head has moved on: the node of message 1 is free, the node of message 2 is held. */
    same(bench_nodes_out(&b), 1);
    assert_int_not_equal(fli_mail_held_head(p), head);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    same(bench_nodes_out(&b), 0);
    same(fli_mail_held_head(p), 0);
    send_int(&b, p, 3);
    same(fli_load_rlx(&b.woken), 1);
    expect_messages(&b, p, 3, 3);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* The head may also name a message that waits in the private list, or a completion that has been read. */
TEST(a_head_node_with_an_unread_event_is_freed_once)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    p->flags |= FLI_PROC_WAITING;
    fli_event_node *yield = fli_yield_open(&b.rt, &b.worker, p, 300, 9);
    filch_receiver  receiver = fli_yield_receiver(&b.rt, yield);
    send_int(&b, p, 1);
    bench_unstack(&b, p);
    same(fli_mail_held_head(p), 0);
    assert_true(bench_settle(&b, p, FLI_BLOCKED));
    same(bench_nodes_out(&b), 2);
    send_int(&b, p, 2); /* a message does not wake a BLOCKED process */
    same(fli_load_rlx(&b.woken), 0);
    ok(filch_complete(receiver, 9, filch_none(), FILCH_OK));
    same(fli_load_rlx(&b.woken), 1);
    bench_unstack(&b, p);
    collect(&b, p, false, BENCH_EVENTS, &got);
    same(got.count, 1);
    release(&b, p, &got);
    same(fli_mail_held_head(p), yield->self);
    p->flags &= (uint8_t)~FLI_PROC_WAITING;
    expect_messages(&b, p, 1, 2);
    same(bench_nodes_out(&b), 1);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    same(bench_nodes_out(&b), 0);
    send_int(&b, p, 3);
    same(bench_finish(&b, p), 1);
    bench_end(&b);
}

TEST(a_message_that_arrives_before_the_settle_is_unstacked_and_kept)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    send_int(&b, p, 1);
    expect_messages(&b, p, 1, 1);
    send_int(&b, p, 2); /* message 2 arrives between the last fli_mail_unstack() and the settle */
    assert_false(bench_settle(&b, p, FLI_IDLE));
    same(fli_load_rlx(&b.woken), 0); /* 0: the process was ACTIVE, so the sender did not wake it */
    expect_messages(&b, p, 2, 2);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* ---- mailboxes with a limit ---- */

TEST(reading_messages_frees_mailbox_space)
{
    bench b;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 2, 0, FILCH_OVERFLOW_FAIL);
    filch_data data = filch_int(0);
    send_int(&b, p, 1);
    send_int(&b, p, 2);
    same(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &data), FILCH_EFULL);
    same(fli_load_rlx(&b.worker.counters.refused), 1);
    expect_messages(&b, p, 1, 2);
    same(fli_load_count(fli_load_rlx(&p->load)), 0);
    send_int(&b, p, 3);
    expect_messages(&b, p, 3, 3);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(payload_bytes_count_against_the_limit_until_released)
{
    bench b;
    batch got;
    char  text[100];
    memset(text, 'x', sizeof text);
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 0, 7, FILCH_OVERFLOW_FAIL); /* 7 units: 112 bytes */
    filch_data large = filch_bytes(text, 100), huge = filch_bytes(text, 113);
    char       more[113] = { 0 };
    huge = filch_bytes(more, sizeof more);
    same(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &huge), FILCH_ETOOBIG);
    ok(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &large));
    same(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &large), FILCH_EFULL);
    same(fli_load_units(fli_load_rlx(&p->load)), 7);
    bench_unstack(&b, p);
    collect(&b, p, false, BENCH_EVENTS, &got);
    same(got.count, 1);
    same(filch_size(&got.events[0].data), 100);
    release(&b, p, &got);
    same(fli_load_units(fli_load_rlx(&p->load)), 0);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* Sends a message that does not count against the limit, as a timer does. */
static void send_uncounted(bench *b, fli_proc *p, int64_t value)
{
    filch_data      data = filch_int(value);
    fli_event_node *node = fli_message_make(&b->rt, &b->worker, no_sender, &data);
    assert_non_null(node);
    ok(fli_mail_post(&b->rt, &b->worker, p, bench_gen(p), node));
}

TEST(drop_oldest_keeps_the_newest_and_all_uncounted_messages)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 3, 0, FILCH_OVERFLOW_DROP_OLDEST);
    send_int(&b, p, 1);
    send_uncounted(&b, p, 100);
    send_int(&b, p, 2);
    send_int(&b, p, 3);
    send_uncounted(&b, p, 101);
    send_int(&b, p, 4);
    send_int(&b, p, 5);
    bench_unstack(&b, p);
    same(fli_load_count(fli_load_rlx(&p->load)), 3);
    same(fli_load_rlx(&b.worker.counters.dropped), 2);
    collect(&b, p, false, BENCH_EVENTS, &got);
    const int64_t want[] = { 100, 3, 101, 4, 5 };
    same(got.count, 1 + 5);
    same(got.events[0].type, FILCH_EVENT_DROPPED);
    same(filch_as_int(&got.events[0].data), 2);
    for (int i = 0; i < 5; i++) same(filch_as_int(&got.events[1 + i].data), want[i]);
    release(&b, p, &got);
    same(fli_load_count(fli_load_rlx(&p->load)), 0);
    same(fli_load_rlx(&p->drops_reported), 2);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* A mailbox that holds twice its limit refuses messages, so that the mailbox of a process that does not run cannot grow
 * without bound. The refused message counts as dropped. */
TEST(drop_oldest_refuses_at_twice_the_limit_without_a_trim)
{
    bench b;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 4, 0, FILCH_OVERFLOW_DROP_OLDEST);
    filch_data data = filch_int(0);
    for (int i = 0; i < 8; i++) send_int(&b, p, i);
    same(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &data), FILCH_EDROPPED);
    bench_unstack(&b, p);
    same(fli_limit_take_dropped(p), 5);
    expect_messages(&b, p, 4, 7);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(a_blocked_drop_oldest_process_is_woken_to_trim)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_DROP_OLDEST);
    assert_true(bench_settle(&b, p, FLI_BLOCKED));
    send_int(&b, p, 1);
    same(fli_load_rlx(&b.woken), 0);
    send_int(&b, p, 2);
    same(fli_load_rlx(&b.woken), 1);
    bench_unstack(&b, p);
    same(fli_limit_take_dropped(p), 1);
    expect_messages(&b, p, 2, 2);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(a_head_node_that_was_trimmed_is_held_too)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_DROP_OLDEST);
    send_int(&b, p, 1);
    bench_unstack(&b, p);
    /* Another sender has reserved space but has not pushed its message yet, so the mailbox is over its limit. The next
     * fli_mail_unstack() drops message 1; the head is then message 2, which does not count against the limit. */
    same(fli_limit_reserve(p, bench_gen(p), 0, false), FLI_ADMIT_OVER);
    send_uncounted(&b, p, 2);
    uint32_t head = fli_word_head(fli_state_peek(&p->state));
    bench_unstack(&b, p);
    same(p->head_taken, head);
    same(bench_nodes_out(&b), 1);
    assert_false(fli_limit_release(p, bench_gen(p), 1, 0));
    (void)fli_limit_take_dropped(p);
    expect_messages(&b, p, 2, 2);
    same(bench_nodes_out(&b), 1);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    same(bench_nodes_out(&b), 0);
    send_int(&b, p, 3);
    same(bench_finish(&b, p), 1);
    bench_end(&b);
}

/* If only one event fits into a batch, a message goes before the report of drops. Otherwise a process that takes one
 * event per step would receive only such reports under overload. */
TEST(a_message_goes_before_a_dropped_notice_if_only_one_event_fits)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 2, 0, FILCH_OVERFLOW_DROP_NEWEST);
    filch_data data = filch_int(0);
    send_int(&b, p, 1);
    send_int(&b, p, 2);
    for (int i = 1; i <= 2; i++) {
        same(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &data), FILCH_EDROPPED);
        bench_unstack(&b, p);
        collect(&b, p, false, 1, &got);
        same(got.count, 1);
        same(got.events[0].type, FILCH_EVENT_MESSAGE);
        release(&b, p, &got);
        if (i == 1) send_int(&b, p, 3);
    }
    same(fli_limit_take_dropped(p), 2);
    expect_messages(&b, p, 3, 3);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(drops_are_reported_if_no_other_event_is_pending)
{
    bench b;
    batch got;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_DROP_NEWEST);
    filch_data data = filch_int(0);
    send_int(&b, p, 1);
    same(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &data), FILCH_EDROPPED);
    bench_unstack(&b, p);
    collect(&b, p, false, 1, &got);
    same(got.events[0].type, FILCH_EVENT_MESSAGE);
    release(&b, p, &got);
    collect(&b, p, false, 1, &got);
    same(got.count, 1);
    same(got.events[0].type, FILCH_EVENT_DROPPED);
    same(filch_as_int(&got.events[0].data), 1);
    release(&b, p, &got);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(waiting_senders_are_retried_when_there_is_room)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 1, 0, FILCH_OVERFLOW_WAIT);
    send_int(&b, p, 1);
    same(fli_limit_wait(p, bench_gen(p), 0), FLI_ADMIT_FULL);
    expect_messages(&b, p, 1, 1);
    same(b.room, 1);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* ---- what the end of a process does with its unread events, and later messages to its pid ---- */

static void count_free(void *user, void *bytes, size_t size)
{
    (void)size;
    ++*(int *)user;
    free(bytes);
}

TEST(the_end_of_a_process_frees_unread_events)
{
    bench b;
    int   freed = 0;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_data shared;
    ok(filch_share(malloc(8), 8, count_free, &freed, &shared));
    for (int i = 0; i < 3; i++) ok(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &shared));
    bench_unstack(&b, p);
    for (int i = 0; i < 2; i++) ok(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &shared));
    fli_event_node *yield = fli_yield_open(&b.rt, &b.worker, p, 300, 1);
    ok(filch_complete(fli_yield_receiver(&b.rt, yield), 1, shared, FILCH_OK));
    filch_drop(&shared);
    same(freed, 0);
    same(bench_finish(&b, p), 5);
    same(freed, 1);
    bench_end(&b);
}

TEST(the_payload_of_a_message_to_an_ended_process_stays_with_the_sender)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_pid pid = bench_pid(p);
    same(bench_finish(&b, p), 0);
    char      *bytes = malloc(40);
    filch_data data = filch_move(bytes, 40, NULL);
    same(fli_send(&b.rt, &b.worker, pid, no_sender, &data), FILCH_EDEAD);
    free(bytes);
    same(fli_load_rlx(&b.worker.counters.undelivered), 1);
    /* A message to the old pid does not reach the next process of the slot. */
    fli_proc *next = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    assert_ptr_equal(next, p);
    same(fli_send(&b.rt, &b.worker, pid, no_sender, &data), FILCH_EDEAD);
    same(bench_finish(&b, next), 0);
    bench_end(&b);
}

/* ---- threads ---- */

enum { SENDERS = 3 };

typedef struct sender {
    bench                *b;
    fli_proc             *p;
    uint32_t              index;
    uint64_t              rounds;
    fli_local             worker;
    fli_thread            thread;
    FLI_ATOMIC(bool)     *queued;
    FLI_ATOMIC(uint32_t) *sending;
    uint64_t              refused, dropped;
} sender;

static FLI_ATOMIC(bool)     stress_queued;
static FLI_ATOMIC(uint64_t) stress_doubles;

static void queue_it(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    (void)rt;
    (void)worker;
    (void)p;
    if (fli_swap_acqrel(&stress_queued, true)) fli_add_rlx(&stress_doubles, 1);
}

static void send_many(void *arg)
{
    sender *s = arg;
    s->worker.rt = &s->b->rt;
    fli_current_set(&s->worker);
    for (uint64_t i = 0; i < s->rounds;) {
        /* Bits of the value: high 24 = index of the sender, low 40 = number of the message. Every seventh payload needs
         * an allocated block. */
        char       bytes[40];
        int64_t    value = (int64_t)((uint64_t)s->index << 40 | i);
        filch_data data = filch_int(value);
        if (i % 7 == 0) {
            memset(bytes, 0, sizeof bytes);
            memcpy(bytes, &value, sizeof value);
            data = filch_bytes(bytes, sizeof bytes);
        }
        filch_err err = fli_send(&s->b->rt, &s->worker, bench_pid(s->p), no_sender, &data);
        if (err == FILCH_EFULL || err == FILCH_EDROPPED) {
            s->refused += err == FILCH_EFULL;
            s->dropped += err == FILCH_EDROPPED;
            yield_slice();
            if (err == FILCH_EFULL) continue;
        } else if (err != FILCH_OK) {
            fli_add_rlx(&stress_doubles, 1000);
        }
        i++;
    }
    fli_slab_empty(&s->b->rt.nodes, &s->worker.nodes);
    fli_current_set(NULL);
    (void)fli_sub_acqrel(s->sending, 1);
}

static int64_t value_of(const filch_data *data)
{
    int64_t value = filch_as_int(data);
    if (filch_kind_of(data) == FILCH_KIND_BYTES) memcpy(&value, filch_raw(data), sizeof value);
    return value;
}

/* Several threads send to the mailbox of one process, which has the overflow policy `overflow`; this thread reads the
 * messages. Checks that the messages of each sender arrive in order, and, with `whole`, that all of them arrive. */
static void stress(uint32_t max, filch_overflow overflow, uint64_t rounds, bool whole)
{
    bench                b;
    static sender        senders[SENDERS];
    FLI_ATOMIC(uint32_t) sending = SENDERS;
    int64_t              last[SENDERS] = { -1, -1, -1 };
    uint64_t             read = 0, reported = 0, accepted = 0;
    bench_begin(&b);
    b.rt.hooks.ready = queue_it;
    fli_proc *p = bench_spawn(&b, max, 0, overflow);
    fli_store_rlx(&stress_queued, true);
    fli_store_rlx(&stress_doubles, 0);
    for (uint32_t i = 0; i < SENDERS; i++) {
        memset(&senders[i], 0, sizeof senders[i]);
        senders[i].b = &b;
        senders[i].p = p;
        senders[i].index = i;
        senders[i].rounds = rounds;
        senders[i].sending = &sending;
        ok(fli_thread_start(&senders[i].thread, "sender", send_many, &senders[i]));
    }
    while (fli_load_acq(&sending) > 0 || fli_load_acq(&stress_queued)) {
        if (!fli_load_acq(&stress_queued)) {
            yield_slice();
            continue;
        }
        fli_store_rel(&stress_queued, false);
        do {
            batch got;
            bench_unstack(&b, p);
            collect(&b, p, false, 16, &got);
            for (uint32_t i = 0; i < got.count; i++) {
                if (got.events[i].type == FILCH_EVENT_DROPPED) {
                    reported += (uint64_t)filch_as_int(&got.events[i].data);
                    continue;
                }
                int64_t value = value_of(&got.events[i].data), number = value & ((INT64_C(1) << 40) - 1);
                int     sender_index = (int)(value >> 40);
                assert_in_range(sender_index, 0, SENDERS - 1);
                if (whole) same(number, last[sender_index] + 1);
                assert_true(number > last[sender_index]);
                last[sender_index] = number;
                read++;
            }
            release(&b, p, &got);
        } while (p->messages != 0 || !bench_settle(&b, p, FLI_IDLE));
    }
    for (int i = 0; i < SENDERS; i++) {
        fli_thread_join(&senders[i].thread);
        accepted += rounds - senders[i].dropped;
        /* The DROPPED events also report the messages that the sender itself has counted as refused. These messages are
         * not in `accepted`, so they are subtracted from `reported`. */
        reported -= senders[i].dropped;
    }
    same(fli_load_rlx(&stress_doubles), 0);
    reported += fli_limit_take_dropped(p);
    same(read + reported, accepted);
    if (whole) same(read, SENDERS * rounds);
    same(fli_load_rlx(&p->load) << 12, 0);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(no_message_is_lost_between_senders_and_a_settling_owner)
{
    stress(0, FILCH_OVERFLOW_FAIL, scaled(200000), true);
}

TEST(a_full_mailbox_refuses_and_loses_nothing)
{
    stress(8, FILCH_OVERFLOW_FAIL, scaled(50000), true);
}

TEST(every_drop_is_counted_once)
{
    stress(8, FILCH_OVERFLOW_DROP_OLDEST, scaled(100000), false);
    stress(8, FILCH_OVERFLOW_DROP_NEWEST, scaled(100000), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_in_the_order_sent),
        cmocka_unit_test(a_batch_takes_at_most_max_events_and_the_rest_stays_in_order),
        cmocka_unit_test(cancel_comes_before_completions_and_completions_before_messages),
        cmocka_unit_test(a_waiting_process_gets_completions_only_and_its_messages_later),
        cmocka_unit_test(completions_in_every_batch_do_not_starve_messages),
        cmocka_unit_test(a_message_that_was_passed_over_does_not_delay_a_cancel),
        cmocka_unit_test(completions_do_not_starve_messages_of_a_mailbox_that_drops_the_oldest),
        cmocka_unit_test(an_event_names_its_sender_also_one_of_another_node),
        cmocka_unit_test(only_messages_of_other_workers_are_remote_events),
        cmocka_unit_test(the_head_node_is_not_freed_while_the_head_names_it),
        cmocka_unit_test(a_head_node_with_an_unread_event_is_freed_once),
        cmocka_unit_test(a_message_that_arrives_before_the_settle_is_unstacked_and_kept),
        cmocka_unit_test(reading_messages_frees_mailbox_space),
        cmocka_unit_test(payload_bytes_count_against_the_limit_until_released),
        cmocka_unit_test(drop_oldest_keeps_the_newest_and_all_uncounted_messages),
        cmocka_unit_test(drop_oldest_refuses_at_twice_the_limit_without_a_trim),
        cmocka_unit_test(a_blocked_drop_oldest_process_is_woken_to_trim),
        cmocka_unit_test(a_head_node_that_was_trimmed_is_held_too),
        cmocka_unit_test(a_message_goes_before_a_dropped_notice_if_only_one_event_fits),
        cmocka_unit_test(drops_are_reported_if_no_other_event_is_pending),
        cmocka_unit_test(waiting_senders_are_retried_when_there_is_room),
        cmocka_unit_test(the_end_of_a_process_frees_unread_events),
        cmocka_unit_test(the_payload_of_a_message_to_an_ended_process_stays_with_the_sender),
        cmocka_unit_test(no_message_is_lost_between_senders_and_a_settling_owner),
        cmocka_unit_test(a_full_mailbox_refuses_and_loses_nothing),
        cmocka_unit_test(every_drop_is_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
