/* bytes_test.c - byte messages that a step sends: filch_send_lent() for bytes that fit into the node, the general path
 * for others, and the steps that read them where they are. Every size arrives unchanged and in order, alone or among
 * other messages, and every block is freed once. There are no workers, so that each path can be forced. */
#include "api/fixture.h"

static fixture w;

/* Sizes of messages in bytes: just below and just above the size of a word, of the bytes inside an event, of a block
 * and of a page. */
static const size_t sizes[] = { 0,   1,   2,   3,   4,   5,    6,    7,    8,    9,    11,   12,    13,    14,   15,
                                16,  17,  19,  20,  22,  23,   24,   25,   31,   32,   33,   63,    64,    65,   127,
                                128, 129, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537 };

static uint8_t byte_of(size_t size, size_t i)
{
    return (uint8_t)(1 + (size * 7 + i * 13) % 255); /* no byte is 0, so that a text can consist of these bytes */
}

/* Returns `size` bytes that end where their memory ends, so that a sanitizer finds a read past their end. */
static char *make_bytes(size_t size, bool text)
{
    char *bytes = malloc(size + text + (size + text == 0));
    for (size_t i = 0; i < size; i++) bytes[i] = (char)byte_of(size, i);
    if (text) bytes[size] = '\0';
    return bytes;
}

static bool is_right(const filch_data *data, size_t size, bool text)
{
    const uint8_t *bytes = filch_raw(data);
    if (filch_kind_of(data) != (text ? FILCH_KIND_TEXT : FILCH_KIND_BYTES) || filch_size(data) != size) return false;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != byte_of(size, i)) return false;
    }
    return !text || filch_text(data)[size] == '\0';
}

/* State of a test. The process `writer` sends `each` messages of every size to `reader`; if `mixed`, it also sends a
 * message with a number after each of them. */
static struct {
    bool     text, mixed;
    uint32_t each;
    actor    writer, reader, second;
    size_t   read; /* number of messages that arrived with the expected bytes */
    int64_t  numbers;
} s;

static filch_err send_size(filch_pid to, size_t size)
{
    char     *bytes = make_bytes(size, s.text);
    filch_err err = filch_send(w.sched, to, s.text ? filch_str(bytes) : filch_bytes(bytes, size));
    free(bytes);
    return err;
}

/* In each step that gets a message, sends `each` messages of the next size to `reader`. */
static filch_err play_writes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count == 0 || has_cancel(events, count)) return play_idle(me, events, count, out);
    size_t size = sizes[me->stage++];
    for (uint32_t i = 0; i < s.each; i++) {
        me->note |= send_size(s.reader.pid, size);
        if (s.mixed) me->note |= filch_send(w.sched, s.reader.pid, filch_int((int64_t)size));
    }
    return filch_idle(out);
}

static filch_err play_reads(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        size_t size = sizes[s.writer.stage - 1];
        bool   number = filch_kind_of(&events[i].data) == FILCH_KIND_INT;
        if (!same_pid(events[i].from, s.writer.pid) || events[i].tag != 0 || events[i].error != FILCH_OK) continue;
        if (number) s.numbers += filch_as_int(&events[i].data) == (int64_t)size;
        else s.read += is_right(&events[i].data, size, s.text);
        if (me->user != NULL) me->note |= filch_send(w.sched, *(filch_pid *)me->user, events[i].data);
    }
    return filch_idle(out);
}

static void begin(uint32_t batch_max)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.batch_max = batch_max;
    memset(&s, 0, sizeof s);
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
}

static void all_sizes_arrive(uint32_t each, bool text, bool mixed)
{
    begin(8);
    s.each = each;
    s.text = text;
    s.mixed = mixed;
    actor_start(&w, &s.reader, play_reads);
    actor_start(&w, &s.writer, play_writes);
    (void)fixture_tick(&w);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        int64_t blocks = fli_load_rlx(&w.blocks);
        ok(filch_send(w.sched, s.writer.pid, filch_none()));
        (void)fixture_tick(&w);
        same(s.read, (i + 1) * each);
        same(s.numbers, mixed ? (i + 1) * each : 0);
#ifdef FLI_SMALL
        (void)blocks; /* the count is not checked: slabs with small segments allocate further blocks during the test */
#else
        if (each == 1 && i > 0) same(fli_load_rlx(&w.blocks), blocks); /* the blocks of read messages are freed */
#endif
    }
    ok(s.writer.note);
    fixture_end(&w);
}

TEST(one_byte_message_of_a_step_arrives_unchanged_at_every_size)
{
    all_sizes_arrive(1, false, false);
    all_sizes_arrive(1, true, false);
}

TEST(many_byte_messages_of_a_step_arrive_unchanged_and_in_batches)
{
    all_sizes_arrive(3, false, false);
    all_sizes_arrive(40, true, false);
    same(s.reader.count_max, 8);
}

TEST(bytes_and_numbers_of_a_step_arrive_together)
{
    all_sizes_arrive(1, false, true);
    all_sizes_arrive(20, true, true);
}

/* ---- forwarding ---- */

static filch_err play_reads_forwarded(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        me->stage +=
            same_pid(events[i].from, s.reader.pid) && is_right(&events[i].data, sizes[s.writer.stage - 1], s.text);
    }
    return filch_idle(out);
}

TEST(forwarded_bytes_arrive_unchanged_at_every_size)
{
    for (uint32_t each = 1; each <= 5; each += 4) {
        begin(4);
        s.each = each;
        s.reader.user = &s.second.pid;
        actor_start(&w, &s.second, play_reads_forwarded);
        actor_start(&w, &s.reader, play_reads);
        actor_start(&w, &s.writer, play_writes);
        (void)fixture_tick(&w);
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            ok(filch_send(w.sched, s.writer.pid, filch_none()));
            (void)fixture_tick(&w);
            same(s.second.stage, (i + 1) * each);
        }
        ok(s.reader.note);
        fixture_end(&w);
    }
}

/* ---- moved payloads, which a function of the program frees ---- */

static uint32_t freed;

static void count_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    freed++;
    free(bytes);
}

enum { MOVED = 5 };

static filch_err play_moves(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count == 0 || has_cancel(events, count)) return play_idle(me, events, count, out);
    int64_t messages = filch_as_int(&events[0].data);
    for (int64_t i = 0; i < messages; i++)
        me->note |= filch_send(w.sched, s.reader.pid, filch_move(make_bytes(100, false), 100, count_free));
    me->stage += messages;
    return filch_idle(out);
}

/* What the reader does at the end of the step that got a payload. In each case the payload must be freed once. */
typedef enum ending { GOES_IDLE, CONTINUES, FAILS, ENDS, SENDS_TO_ITSELF, ENDINGS } ending;

static ending how;

static filch_err play_ends_somehow(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count == 0 || has_cancel(events, count)) return play_idle(me, events, count, out);
    for (size_t i = 0; i < count; i++) s.read += filch_size(&events[i].data) == 100;
    switch (how) {
    case CONTINUES: return filch_continue(out);
    case FAILS: return FILCH_EUSER;
    case ENDS: return filch_done(out, events[0].data); /* the result of the process shares the block of the message */
    case SENDS_TO_ITSELF:
        if (!same_pid(events[0].from, me->pid)) me->note |= filch_send(w.sched, me->pid, filch_none());
        return filch_idle(out);
    default: return filch_idle(out);
    }
}

static void moved_bytes_are_freed(int64_t messages)
{
    for (how = GOES_IDLE; how < ENDINGS; how++) {
        begin(2);
        freed = 0;
        actor_start(&w, &s.reader, play_ends_somehow);
        actor_start(&w, &s.writer, play_moves);
        (void)fixture_tick(&w);
        ok(filch_send(w.sched, s.writer.pid, filch_int(messages)));
        (void)fixture_tick(&w);
        ok(s.writer.note);
        ok(s.reader.note);
        bool ended = how == FAILS || how == ENDS;
        same(s.read, ended && messages > 2 ? 2 : messages);
        filch_drop(&s.reader.result);
        same(freed, messages);
        fixture_end(&w);
        same(freed, messages);
    }
}

TEST(a_block_is_freed_once_however_the_step_ends)
{
    moved_bytes_are_freed(1);
    moved_bytes_are_freed(2);
    moved_bytes_are_freed(MOVED);
}

TEST(blocks_that_no_step_reads_are_freed_by_the_stop)
{
    begin(2);
    freed = 0;
    actor_start(&w, &s.reader, play_ends_somehow);
    actor_start(&w, &s.writer, play_moves);
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, s.writer.pid, filch_int(MOVED)));
    ok(filch_tick(w.sched, 1, NULL)); /* the writer */
    same(freed, 0);
    ok(filch_terminate(w.sched, s.reader.pid));
    (void)fixture_tick(&w);
    same(freed, MOVED);
    fixture_end(&w);
}

/* ---- the sender ---- */

TEST(a_message_of_a_thread_has_no_sender_whatever_its_payload)
{
    actor a = { 0 };
    begin(8);
    actor_start(&w, &a, play_idle);
    (void)fixture_tick(&w);
    for (size_t i = 0; i < 3; i++) {
        const filch_data payloads[] = { filch_int(7), filch_bytes("few", 3), filch_str("more than 24 bytes of text") };
        ok(filch_send(w.sched, a.pid, payloads[i]));
        (void)fixture_tick(&w);
        assert_true(is_null_pid(a.seen[i].from));
    }
    same(a.seen_count, 3);
    fixture_end(&w);
}

/* ---- refused ---- */

static struct {
    filch_err null_bytes, empty, dead, largest, too_big, too_big_text, unknown_kind;
} refused;

static filch_err play_sends_wrong_bytes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    filch_data odd = filch_bytes("abc", 3);
    odd.kind = 77;
    refused.null_bytes = filch_send(w.sched, s.reader.pid, filch_bytes(NULL, 3));
    refused.empty = filch_send(w.sched, s.reader.pid, filch_bytes(NULL, 0));
    refused.dead = filch_send(w.sched, (filch_pid){ me->pid.node, 999 }, filch_bytes("abc", 3));
    refused.largest = filch_send(w.sched, s.reader.pid, filch_bytes("0123456789", 10));
    refused.too_big = filch_send(w.sched, s.reader.pid, filch_bytes("0123456789a", 11));
    refused.too_big_text = filch_send(w.sched, s.reader.pid, filch_str("0123456789a"));
    refused.unknown_kind = filch_send(w.sched, s.reader.pid, odd);
    return filch_idle(out);
}

TEST(a_step_that_sends_wrong_bytes_gets_the_error_of_the_general_path)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.payload_max = 10;
    memset(&s, 0, sizeof s);
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start(&w, &s.reader, play_idle);
    (void)fixture_tick(&w);
    actor_start(&w, &s.writer, play_sends_wrong_bytes);
    (void)fixture_tick(&w);
    same(refused.null_bytes, FILCH_EINVAL);
    ok(refused.empty);
    same(refused.dead, FILCH_EDEAD);
    ok(refused.largest);
    same(refused.too_big, FILCH_ETOOBIG);
    same(refused.too_big_text, FILCH_ETOOBIG);
    same(refused.unknown_kind, FILCH_EINVAL);
    same(s.reader.seen_count, 2);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_byte_message_of_a_step_arrives_unchanged_at_every_size),
        cmocka_unit_test(many_byte_messages_of_a_step_arrive_unchanged_and_in_batches),
        cmocka_unit_test(bytes_and_numbers_of_a_step_arrive_together),
        cmocka_unit_test(forwarded_bytes_arrive_unchanged_at_every_size),
        cmocka_unit_test(a_block_is_freed_once_however_the_step_ends),
        cmocka_unit_test(blocks_that_no_step_reads_are_freed_by_the_stop),
        cmocka_unit_test(a_message_of_a_thread_has_no_sender_whatever_its_payload),
        cmocka_unit_test(a_step_that_sends_wrong_bytes_gets_the_error_of_the_general_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
