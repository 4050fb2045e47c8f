/* supervisor_tag_test.c - answers of a supervisor are identified by a tag, and the answers for one id come in order.
 * Bytes that only look like a request or an answer are ignored. */
#include "api/child_log.h"

static const filch_spawn_options a_options = { .size = sizeof(filch_spawn_options), .args = FILCH_INT_INIT(0) };
static const filch_child         child_a = { .id = "late", .type = &child_type, .options = &a_options };

enum { ANSWERS_MAX = 16 };

static struct {
    filch_pid          supervisor, pid;
    filch_child_answer answers[ANSWERS_MAX];
    uint32_t           count, others;
    int64_t            untagged[ANSWERS_MAX]; /* answers without a tag */
    bool               tagged;
} boss;

/* Sends requests to the supervisor in one step. With tags: start, stop, start, start (which fails, because the child
 * exists), stop, start, and a stop of an unknown child. Without tags: start, stop, start. */
static filch_err send_requests(filch_sched *sched)
{
    filch_pid to = boss.supervisor;
    filch_err err = FILCH_OK;
    if (!boss.tagged) {
        err |= filch_child_start(sched, to, &child_a);
        err |= filch_child_stop(sched, to, "late");
        err |= filch_child_start(sched, to, &child_a);
        return err;
    }
    err |= filch_child_start_tagged(sched, to, &child_a, 10);
    err |= filch_child_stop_tagged(sched, to, "late", 11);
    err |= filch_child_start_tagged(sched, to, &child_a, 12);
    err |= filch_child_start_tagged(sched, to, &child_a, 13);
    err |= filch_child_stop_tagged(sched, to, "late", 14);
    err |= filch_child_start_tagged(sched, to, &child_a, 15);
    err |= filch_child_stop_tagged(sched, to, "nobody", UINT64_MAX);
    return err;
}

static filch_err boss_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t *steps = self;
    if ((*steps)++ == 0 && send_requests(filch_out_sched(out)) != FILCH_OK) return FAILURE;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE || boss.count == ANSWERS_MAX) continue;
        if (filch_child_answered(&events[i].data, &boss.answers[boss.count])) boss.count++;
        else
            boss.untagged[boss.others++] =
                filch_kind_of(&events[i].data) == FILCH_KIND_PID ? -1 : filch_as_int(&events[i].data);
    }
    return filch_idle(out);
}

static const filch_type boss_type = { .name = "boss", .size = 8, .step = boss_step };

static const filch_supervisor empty = { .child_count = 0 };

static void boss_begin(fixture *w, bool tagged)
{
    memset(&boss, 0, sizeof boss);
    boss.tagged = tagged;
    fixture_begin(w, FILCH_NO_WORKERS);
    boss.supervisor = supervise(w->sched, &empty);
    fixture_tick(w);
    ok(filch_spawn(w->sched, &boss_type, NULL, &boss.pid));
    for (int i = 0; i < 20; i++) fixture_tick(w);
}

static const filch_child_answer *answer_with_tag(uint64_t tag)
{
    for (uint32_t i = 0; i < boss.count; i++) {
        if (boss.answers[i].tag == tag) return &boss.answers[i];
    }
    fail_msg("no answer with tag %llu", (unsigned long long)tag);
    return NULL;
}

TEST(each_request_is_answered_with_its_tag_and_in_order_for_one_id)
{
    static const uint64_t in_order[] = { 10, 11, 12, 13, 14, 15 };
    fixture               w;
    boss_begin(&w, true);
    same(boss.count, 7);
    same(boss.others, 0);
    same(answer_with_tag(10)->error, FILCH_OK);
    same(answer_with_tag(11)->error, FILCH_OK);
    same(answer_with_tag(12)->error, FILCH_OK);
    same(answer_with_tag(13)->error, FILCH_EEXISTS);
    same(answer_with_tag(14)->error, FILCH_OK);
    same(answer_with_tag(15)->error, FILCH_OK);
    same(answer_with_tag(UINT64_MAX)->error, FILCH_EDEAD);
    assert_true(answer_with_tag(10)->pid.serial != 0 && answer_with_tag(12)->pid.serial != 0);
    assert_true(answer_with_tag(10)->pid.serial != answer_with_tag(12)->pid.serial);
    same(answer_with_tag(11)->pid.serial, 0);
    uint32_t next = 0;
    for (uint32_t i = 0; i < boss.count; i++) {
        if (boss.answers[i].tag == UINT64_MAX) continue;
        same(boss.answers[i].tag, in_order[next++]);
    }
    assert_string_equal(child_log_from(0), "+a -a +a -a +a");
    fixture_end(&w);
}

TEST(stop_and_start_of_one_id_are_answered_in_order_without_a_tag)
{
    fixture w;
    boss_begin(&w, false);
    same(boss.others, 3);
    same(boss.untagged[0], -1); /* -1 stands for a pid */
    same(boss.untagged[1], FILCH_OK);
    same(boss.untagged[2], -1);
    fixture_end(&w);
}

/* ---- list and await ---- */

static struct {
    filch_pid          supervisor, pid;
    filch_child_answer answers[ANSWERS_MAX];
    char               ids[ANSWERS_MAX][64]; /* the ids in answers[i].children, each followed by a blank */
    uint32_t           count, others;
} lister;

static void note_answer(const filch_child_answer *answer)
{
    char *ids = lister.ids[lister.count];
    for (size_t i = 0; i < answer->child_count; i++) {
        assert_true(strlen(ids) + strlen(answer->children[i].id) + 2 <= sizeof lister.ids[0]);
        strcat(strcat(ids, answer->children[i].id), " ");
        same(answer->children[i].running, 1);
        if (i == 1 || i == 2) same(answer->children[i].pid.serial, child_log.pids[i].serial);
    }
    lister.answers[lister.count++] = *answer;
}

static filch_err lister_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t     *steps = self;
    filch_sched *sched = filch_out_sched(out);
    if ((*steps)++ == 0) {
        ok(filch_child_await_tagged(sched, lister.supervisor, 30));
        ok(filch_child_list_tagged(sched, lister.supervisor, 31));
        ok(filch_child_start_tagged(sched, lister.supervisor, &child_a, 32));
        ok(filch_child_list_tagged(sched, lister.supervisor, UINT64_MAX));
        ok(filch_child_await_tagged(sched, lister.supervisor, 34));
    }
    for (size_t i = 0; i < count; i++) {
        filch_child_answer answer;
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        if (filch_child_answered(&events[i].data, &answer)) note_answer(&answer);
        else lister.others++;
    }
    return filch_idle(out);
}

static const filch_type lister_type = { .name = "lister", .size = 8, .step = lister_step };

TEST(list_and_await_are_answered_with_their_tags)
{
    /* The expected answers, in order. The answers to the two await requests (tags 30 and 34) come last, at the end of
     * the supervisor's step, when all children are up. */
    static const uint64_t    tags[] = { 31, 32, UINT64_MAX, 30, 34 };
    static const char *const ids[] = { "a b c ", "", "a b c late ", "", "" };
    fixture                  w;
    memset(&lister, 0, sizeof lister);
    fixture_begin(&w, FILCH_NO_WORKERS);
    lister.supervisor = supervise(w.sched, &(const filch_supervisor){ .children = three, .child_count = 3 });
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    ok(filch_spawn(w.sched, &lister_type, NULL, &lister.pid));
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    same(lister.others, 0);
    same(lister.count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        same(lister.answers[i].tag, tags[i]);
        same(lister.answers[i].error, FILCH_OK);
        same(lister.answers[i].pid.serial != 0, tags[i] == 32);
        same(lister.answers[i].children != NULL, ids[i][0] != '\0');
        assert_string_equal(lister.ids[i], ids[i]);
    }
    fixture_end(&w);
}

/* Forwards each message twice to the supervisor. */
static filch_err forwarder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        filch_child_answer answer;
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (filch_child_answered(&events[i].data, &answer)) {
            note_answer(&answer);
            continue;
        }
        for (int twice = 0; twice < 2; twice++) ok(filch_send(filch_out_sched(out), lister.supervisor, events[i].data));
    }
    return filch_idle(out);
}

static const filch_type forwarder_type = { .name = "forwarder", .step = forwarder_step };

/* The two copies of the request share one answer. The second copy must leave the answer unchanged, because the process
 * that got the first copy back may be using it. */
TEST(a_request_that_is_forwarded_twice_has_one_answer)
{
    fixture w;
    memset(&lister, 0, sizeof lister);
    fixture_begin(&w, FILCH_NO_WORKERS);
    lister.supervisor = supervise(w.sched, &(const filch_supervisor){ .children = three, .child_count = 3 });
    ok(filch_spawn(w.sched, &forwarder_type, NULL, &lister.pid));
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    ok(filch_child_list_tagged(w.sched, lister.pid, 40));
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    same(lister.count, 2);
    same(lister.answers[0].tag, 40);
    assert_string_equal(lister.ids[0], "a b c ");
    same(lister.answers[0].error, FILCH_OK);
    same(lister.answers[1].error, FILCH_OK);
    assert_string_equal(lister.ids[1], "a b c ");
    assert_ptr_equal(lister.answers[0].children, lister.answers[1].children);
    /* For the second copy of the stop request there is no child any more, but the answer to the first copy remains. */
    ok(filch_child_stop_tagged(w.sched, lister.pid, "b", 41));
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    same(lister.count, 4);
    for (int i = 2; i < 4; i++) same(lister.answers[i].tag, 41), same(lister.answers[i].error, FILCH_OK);
    fixture_end(&w);
}

/* ---- forged requests and answers ---- */

/* Bytes of a request to a supervisor, copied by a process to which the request was sent. */
static unsigned char copied[512];
static size_t        copied_size;

static filch_err thief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        copied_size = filch_size(&events[i].data);
        if (copied_size <= sizeof copied) memcpy(copied, filch_raw(&events[i].data), copied_size);
    }
    return filch_idle(out);
}

static const filch_type thief_type = { .name = "thief", .step = thief_step };

TEST(bytes_that_look_like_a_request_are_an_ordinary_message)
{
    fixture   w;
    filch_pid thief, supervisor;
    fixture_begin(&w, FILCH_NO_WORKERS);
    supervisor = supervise(w.sched, &(const filch_supervisor){ .children = three, .child_count = 3 });
    ok(filch_spawn(w.sched, &thief_type, NULL, &thief));
    fixture_tick(&w);
    ok(filch_child_stop(w.sched, thief, "a"));
    fixture_tick(&w);
    assert_in_range(copied_size, 1, sizeof copied);
    ok(filch_send(w.sched, supervisor, filch_bytes(copied, copied_size)));
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    same(child_log.alive, 3);
    ok(filch_child_stop(w.sched, supervisor, "a")); /* a request made by the library is obeyed */
    for (int i = 0; i < 5; i++) fixture_tick(&w);
    same(child_log.alive, 2);
    fixture_end(&w);
}

TEST(bytes_that_look_like_an_answer_are_not_taken_for_one)
{
    filch_child_answer out, forged = { .tag = 1 };
    filch_data         bytes = filch_bytes(&forged, sizeof forged), number = filch_int(0);
    same(filch_child_answered(&bytes, &out), 0);
    same(filch_child_answered(&number, &out), 0);
    same(filch_child_answered(NULL, &out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_answered_with_its_tag_and_in_order_for_one_id),
        cmocka_unit_test(stop_and_start_of_one_id_are_answered_in_order_without_a_tag),
        cmocka_unit_test(list_and_await_are_answered_with_their_tags),
        cmocka_unit_test(a_request_that_is_forwarded_twice_has_one_answer),
        cmocka_unit_test(bytes_that_look_like_a_request_are_an_ordinary_message),
        cmocka_unit_test(bytes_that_look_like_an_answer_are_not_taken_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
