/* restock_test.c - all messages that a step sends are plain messages, however many they are and whether they are
 * numbers or bytes, because the general path, which fills the magazine, makes plain messages too. If the node of one
 * message were marked FLI_NODE_GENERAL, step_several() could not take the batch, and the slow path would run. */
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/sched.h"

#include "support/alloc.h"
#include "support/check.h"

#define MANY (3 * FLI_MAGAZINE + 1)

static test_alloc   alloc;
static filch_sched *sched;

static struct {
    filch_pid reader;
    uint32_t  sent, empty, plain_messages; /* messages sent; sends that found the magazine empty; plain messages in the
                                           mailbox of the reader */
    bool      bytes;                       /* true: the messages are bytes; false: numbers */
    filch_err err;
    int64_t   read;
    bool      in_order;
} seen;

/* Returns the number of plain messages (`what` is 0) in the mailbox of `pid`. Precondition: no step has read from the
 * mailbox. */
static uint32_t count_plain_messages(filch_pid pid)
{
    fli_runtime *rt = &sched->rt;
    fli_proc    *p = fli_proc_find(rt, pid.serial);
    uint32_t     plain_messages = 0;
    for (uint32_t at = fli_word_head(fli_load_rlx(&p->state)); at != 0; at = fli_node_at(rt, at)->next) {
        plain_messages += fli_node_at(rt, at)->what == 0;
    }
    return plain_messages;
}

static filch_err writer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const fli_local *worker = fli_current_get();
    (void)self, (void)events;
    if (count > 0) return filch_done(out, filch_none());
    while (seen.sent < MANY) {
        seen.empty += worker->nodes.count == 0;
        int64_t number = seen.sent;
        seen.err = filch_send(sched, seen.reader, seen.bytes ? filch_bytes(&number, sizeof number) : filch_int(number));
        if (seen.err != FILCH_OK) break;
        seen.sent++;
    }
    seen.plain_messages = count_plain_messages(seen.reader);
    return seen.sent < MANY ? filch_continue(out) : filch_idle(out);
}

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        int64_t number = filch_as_int(&events[i].data);
        if (seen.bytes) memcpy(&number, filch_raw(&events[i].data), sizeof number);
        seen.in_order &= number == seen.read++;
    }
    return filch_idle(out);
}

static const filch_type writer = { .name = "writer", .step = writer_step };
static const filch_type reader = { .name = "reader", .step = reader_step };

/* Creates a scheduler with an idle reader and a writer that has not run. */
static void begin(bool bytes)
{
    filch_options options = FILCH_OPTIONS_INIT;
    uint32_t      ran;
    alloc = (test_alloc){ 0 };
    memset(&seen, 0, sizeof seen);
    seen.in_order = true;
    seen.bytes = bytes;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = test_alloc_fn;
    options.alloc_user = &alloc;
    ok(filch_sched_create(&sched, &options));
    ok(filch_spawn(sched, &reader, NULL, &seen.reader));
    ok(filch_tick(sched, 0, &ran));
    ok(filch_spawn(sched, &writer, NULL, NULL));
}

static void tick(uint32_t steps)
{
    uint32_t ran;
    do ok(filch_tick(sched, steps, &ran));
    while (steps == 0 && ran > 0);
}

static void end(void)
{
    same(seen.read, MANY);
    assert_true(seen.in_order);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    test_alloc_balanced(&alloc);
}

TEST(messages_sent_with_an_empty_magazine_are_plain_too)
{
    for (int bytes = 0; bytes <= 1; bytes++) {
        begin(bytes);
        tick(0);
        ok(seen.err);
        assert_in_range(seen.empty, 3, MANY);
        same(seen.plain_messages, MANY);
        end();
    }
}

TEST(a_send_without_memory_for_a_node_fails_and_succeeds_later)
{
    for (int bytes = 0; bytes <= 1; bytes++) {
        begin(bytes);
        test_alloc_fail(&alloc, 1, true);
        tick(1);
        same(seen.err, FILCH_ENOMEM);
        same(seen.plain_messages, seen.sent);
        assert_in_range(alloc.refused, 1, 10);
        test_alloc_fail(&alloc, 0, false);
        tick(0);
        ok(seen.err);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_sent_with_an_empty_magazine_are_plain_too),
        cmocka_unit_test(a_send_without_memory_for_a_node_fails_and_succeeds_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
