/* blackbox_test.c - a process that failed is recorded, and fails again when the recording is replayed alone. */
#include "fixture.h"

#include <stdio.h>

#include "support/alloc.h"

#define BROKEN (FILCH_EUSER + 7)
#define LARGE 5000

/* ---- shelf: keeps the last recording that on_blackbox got ---- */

typedef struct shelf {
    FLI_ATOMIC(uint32_t) count;
    filch_pid            pid;
    filch_err            error;
    uint8_t             *bytes; /* bytes of the last recording */
    size_t               size;
} shelf;

static void on_blackbox(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    shelf *s = user;
    s->pid = pid;
    s->error = error;
    free(s->bytes);
    s->bytes = bytes != NULL ? malloc(size) : NULL;
    if (s->bytes != NULL) memcpy(s->bytes, bytes, size);
    s->size = size;
    fli_add_rel(&s->count, 1);
}

static filch_options options_for(shelf *s)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.on_blackbox = on_blackbox;
    opt.on_blackbox_user = s;
    opt.blackbox = FILCH_BLACKBOX_STEPS;
    return opt;
}

/* ---- a clerk: a process that obeys messages, keeps a little state, and fails on request ---- */

typedef struct clerk {
    /* computed from all events: if a replay gives one different event, the clerk sends a different sum later */
    uint64_t sum;
    filch_pid friend, child;
    int64_t   speed;
    filch_err last; /* result of the last call to the library */
} clerk;

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type child_type = { .name = "child", .step = child_step };

static filch_err clerk_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    clerk *me = self;
    if (method != NULL && strcmp(method, "careful") != 0) return FILCH_EMETHOD;
    me->friend = filch_as_pid(args);
    me->speed = filch_as_int(filch_ctx_value(ctx, "speed")) + (method != NULL);
    return FILCH_OK;
}

static void free_block(void *user, void *bytes, size_t size)
{
    (void)user;
    (void)size;
    free(bytes);
}

static const filch_type retired_type;
/* number of calls that the clerk makes in one step; more than a recording holds */
static int many = 5000;

/* Scheduler that the clerk tries to stop at the message "stop the host", and the result; NULL: it does not. */
static filch_sched *host;
static filch_err    host_stopped;

static filch_err clerk_does(clerk *me, const char *what, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    if (strcmp(what, "send") == 0) me->last = filch_send(sched, me->friend, filch_int((int64_t)me->sum + me->speed));
    if (strcmp(what, "many") == 0) {
        for (int i = 0; i < many && !me->last; i++) me->last = filch_send(sched, me->friend, filch_none());
    }
    if (strcmp(what, "budget") == 0) {
        int n = 0;
        while (!filch_should_yield(out)) n += filch_send(sched, me->friend, filch_none()) == FILCH_OK;
        me->sum += (uint64_t)n;
    }
    if (strcmp(what, "move") == 0) {
        void *bytes = calloc(1, LARGE);
        me->last = filch_send(sched, me->friend, filch_move(bytes, LARGE, free_block));
        if (me->last != FILCH_OK) free(bytes);
    }
    if (strcmp(what, "find") == 0) {
        me->last = filch_whereis(sched, "archive", &me->friend);
        me->sum += me->friend.serial;
    }
    if (strcmp(what, "spawn") == 0) me->last = filch_spawn(sched, &child_type, NULL, &me->child);
    if (strcmp(what, "kill") == 0) me->last = filch_terminate(sched, me->child);
    if (strcmp(what, "cancel") == 0) me->last = filch_cancel(sched, me->child);
    if (strcmp(what, "tell") == 0) me->last = filch_send(sched, me->child, filch_of_pid(filch_ctx_self(ctx)));
    if (strcmp(what, "doze") == 0) me->last = filch_yield_sleep(out, me->sum, 1);
    if (strcmp(what, "look up") == 0) me->last = filch_yield_resolve(out, 5, "127.0.0.1", "80");
    if (strcmp(what, "cancel the look up") == 0) me->last = filch_yield_tag_cancel(out, me->sum, 5);
    if (strcmp(what, "deliver") == 0) {
        filch_package package = { .to = me->friend, .from = me->friend, .data = filch_str("from a friend") };
        me->last = filch_deliver(sched, &package);
    }
    if (strcmp(what, "stop the host") == 0 && host != NULL) host_stopped = filch_sched_stop(host, 0, NULL);
    if (strcmp(what, "retire") == 0) return filch_upgrade(out, &retired_type, NULL, filch_int((int64_t)me->sum));
    if (strcmp(what, "break") == 0) return BROKEN;
    if (strcmp(what, "forget") == 0) return FILCH_OK; /* returns without a call that chooses the status of the step */
    return filch_idle(out);
}

static filch_err clerk_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    clerk    *me = self;
    filch_err err = count == 0 ? filch_idle(out) : FILCH_OK;
    for (size_t i = 0; i < count; i++) {
        const filch_event *event = &events[i];
        const uint8_t     *raw = filch_raw(&event->data);
        if (event->type == FILCH_EVENT_CANCEL) return filch_done(out, filch_int((int64_t)me->sum));
        me->sum = me->sum * 31 + (uint64_t)filch_as_int(&event->data) + event->tag + (uint64_t)event->error;
        for (size_t b = 0; b < filch_size(&event->data); b++) me->sum = me->sum * 31 + raw[b];
        err = clerk_does(me, filch_text(&event->data), out);
        me->sum += (uint64_t)me->last;
    }
    return err;
}

static const filch_type clerk_type = { .name = "clerk", .size = sizeof(clerk), .init = clerk_init, .step = clerk_step };

/* Functions of the type to which the clerk changes at the message "retire". */
static filch_err retired_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    if (method != NULL || filch_kind_of(args) > FILCH_KIND_INT) return FILCH_EINVAL;
    *(int64_t *)self = filch_as_int(args);
    return filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_str("a first day of rest"));
}

static filch_err retired_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(filch_text(&events[i].data), "break") == 0) return BROKEN;
        *(int64_t *)self += 1;
    }
    return filch_idle(out);
}

static const filch_type retired_type = {
    .name = "retired", .size = sizeof(int64_t), .init = retired_init, .step = retired_step
};

/* ---- helpers ---- */

/* Sends the texts to the clerk one by one, so that each is read in a step of its own. */
static void send_each(fixture *w, filch_pid pid, const char *const *what)
{
    for (; *what != NULL; what++) {
        ok(filch_send(w->sched, pid, filch_str(*what)));
        UNTIL(w, filch_next_timeout(w->sched) == FILCH_FOREVER);
    }
}

#define SEND_EACH(w, pid, ...) send_each(w, pid, (const char *const[]){ __VA_ARGS__, NULL })

static filch_blackbox_report replay(const shelf *s, const filch_type *type, filch_err expected)
{
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    same(filch_blackbox_replay(s->bytes, s->size, type, &report), expected);
    return report;
}

/* Replays the recording. The replay must fail in the recorded way and find no other difference. */
static filch_blackbox_report fails_again(const shelf *s, const filch_type *type, filch_err error)
{
    filch_blackbox_report report = replay(s, type, FILCH_OK);
    assert_string_equal(report.text, "");
    same(report.differs, 0);
    same(report.fed, report.steps);
    same(report.recorded, error);
    same(report.error, error);
    same(report.again, 1);
    assert_true(same_pid(report.pid, s->pid));
    return report;
}

/* A scheduler with a clerk, and a process `friend` to which the clerk sends. */
typedef struct office {
    fixture   w;
    shelf     shelf;
    filch_pid clerk, friend;
} office;

static void office_open_with(office *o, filch_options opt, filch_spawn_options how)
{
    fixture_begin_with(&o->w, FILCH_NO_WORKERS, opt);
    ok(filch_spawn(o->w.sched, &child_type, NULL, &o->friend));
    if (how.args.kind == FILCH_KIND_NONE) how.args = filch_of_pid(o->friend);
    ok(filch_spawn(o->w.sched, &clerk_type, &how, &o->clerk));
    (void)fixture_tick(&o->w); /* runs the first step of the clerk, which has no events */
}

static void office_open(office *o)
{
    *o = (office){ .clerk = { 0, 0 } };
    office_open_with(o, options_for(&o->shelf), (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT);
}

static void office_close(office *o)
{
    fixture_end(&o->w);
    free(o->shelf.bytes);
}

/* ---- tests ---- */

TEST(a_process_that_failed_fails_again_in_a_replay)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "hello", "send", "doze", "spawn", "tell", "deliver", "cancel", "tell");
    SEND_EACH(&o.w, o.clerk, "move", "budget", "break");
    same(fli_load_acq(&o.shelf.count), 1);
    same(o.shelf.error, BROKEN);
    assert_true(same_pid(o.shelf.pid, o.clerk));
    filch_blackbox_report report = fails_again(&o.shelf, &clerk_type, BROKEN);
    /* 11 steps for messages, the first step without events, and one step for the completion of the sleep */
    same(report.steps, 13);
    same(report.partial, 0);
    same(report.cut, 0);
    same(report.pointers, 0);
    office_close(&o);
}

TEST(a_replay_returns_the_recorded_results_of_calls)
{
    office o;
    office_open(&o);
    ok(filch_terminate(o.w.sched, o.friend));
    (void)fixture_tick(&o.w);
    /* The friend has ended, and the child will end, so some sends fail. The clerk adds each result to the sum that it
     * sends. */
    SEND_EACH(&o.w, o.clerk, "send", "spawn", "kill", "tell", "send", "break");
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    office_close(&o);
}

TEST(a_replay_returns_the_recorded_results_of_whereis)
{
    office    o;
    filch_pid archive;
    office_open(&o);
    /* the name "archive" does not exist yet, so the clerk still sends to its friend */
    SEND_EACH(&o.w, o.clerk, "find", "send");
    ok(filch_spawn(o.w.sched, &child_type, NULL, &archive));
    ok(filch_register(o.w.sched, "archive", archive));
    SEND_EACH(&o.w, o.clerk, "find", "send", "break");
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    office_close(&o);
}

static filch_err elsewhere_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    clerk *me = self;
    if (count == 0 || strcmp(filch_text(&events[0].data), "find") != 0) return clerk_step(self, events, count, out);
    me->last = filch_whereis(filch_out_sched(out), "cellar", &me->child);
    /* this second call is a second difference: the recorded step called filch_whereis() only once */
    me->last = filch_whereis(filch_out_sched(out), "attic", &me->child);
    return me->last == FILCH_EDEAD && me->child.serial == 0 ? filch_idle(out) : FILCH_EUSER;
}

static filch_err looking_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    filch_pid pid = { 1, 2 };
    same(filch_whereis(filch_ctx_sched(ctx), "archive", &pid), FILCH_EDEAD);
    assert_true(pid.node == 1 && pid.serial == 2);
    return clerk_init(self, ctx, method, args);
}

TEST(a_replay_returns_the_recorded_completions_of_cancelled_yields)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "look up", "cancel the look up", "cancel the look up", "send", "break");
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    office_close(&o);
}

TEST(whereis_of_another_name_than_recorded_is_a_difference)
{
    office     o;
    filch_type other = clerk_type;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "find", "break");
    other.step = elsewhere_step;
    filch_blackbox_report report = replay(&o.shelf, &other, FILCH_OK);
    same(report.differs, 2);
    assert_non_null(strstr(report.text, "recorded whereis archive, now whereis cellar"));
    same(report.again, 1);
    other = clerk_type;
    other.init = looking_init; /* whereis in looking_init was not recorded, so it returns FILCH_EDEAD in the replay */
    same(replay(&o.shelf, &other, FILCH_OK).differs, 0);
    office_close(&o);
}

TEST(a_step_without_a_status_is_recorded_with_its_error)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "send", "forget");
    (void)fails_again(&o.shelf, &clerk_type, FILCH_ENOSTATUS);
    office_close(&o);
}

static filch_err impatient_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count == 0) (void)!filch_yield_sleep(out, 1, 1);
    if (count > 0 && events[0].type == FILCH_EVENT_YIELD)
        return filch_wait(out); /* fails with FILCH_ENOYIELD, because no yield is outstanding */
    return filch_wait(out);
}

TEST(a_replay_tells_a_wait_with_a_yield_from_one_without)
{
    const filch_type type = { .name = "impatient", .step = impatient_step };
    shelf            s = { .size = 0 };
    fixture          w;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    ok(filch_spawn(w.sched, &type, NULL, NULL));
    UNTIL(&w, fli_load_acq(&s.count) == 1);
    same(fails_again(&s, &type, FILCH_ENOYIELD).steps, 2);
    fixture_end(&w);
    free(s.bytes);
}

static filch_err patient_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (has_cancel(events, count)) return BROKEN;
    if (count > 0) return filch_wait(out); /* the event is the completion of the yield of the first step */
    if (filch_yield_sleep(out, 1, FILCH_SECONDS(3600)) != FILCH_OK) return FILCH_EUSER;
    return filch_idle(out);
}

TEST(a_wait_for_the_yield_of_an_earlier_step_is_replayed)
{
    const filch_type type = { .name = "patient", .step = patient_step };
    shelf            s = { .size = 0 };
    fixture          w;
    filch_pid        pid;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    ok(filch_spawn(w.sched, &type, NULL, &pid));
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, pid, filch_none()));
    (void)fixture_tick(&w);
    ok(filch_cancel(w.sched, pid));
    (void)fixture_tick(&w);
    same(fails_again(&s, &type, BROKEN).steps, 3);
    fixture_end(&w);
    free(s.bytes);
}

static filch_err brittle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count, (void)out;
    return BROKEN;
}

static const filch_type brittle = { .name = "brittle", .step = brittle_step };

enum { CHILDREN = 10 };

/* Spawns children one after the other, so that later children reuse the memory of earlier children. */
static filch_err play_spawns(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count) || me->stage == CHILDREN) return filch_done(out, filch_none());
    me->stage++;
    me->note |= filch_spawn(filch_out_sched(out), &brittle, NULL, NULL);
    return filch_continue(out);
}

TEST(children_of_an_unrecorded_process_are_recorded)
{
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    shelf               s = { .size = 0 };
    fixture             w;
    actor               a = { 0 };
    how.blackbox = FILCH_BLACKBOX_OFF;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    actor_start_with(&w, &a, play_spawns, how);
    actor_ends(&w, &a, FILCH_OK);
    ok(a.note);
    (void)fixture_tick(&w);
    same(fli_load_acq(&s.count), CHILDREN);
    same(fails_again(&s, &brittle, BROKEN).steps, 1);
    fixture_end(&w);
    free(s.bytes);
}

/* Sends "hello" to the clerk that `user` points to, at every event. */
static filch_err play_chat(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    filch_sched *sched = filch_out_sched(out);
    if (count > 0) me->note = filch_send(sched, *(filch_pid *)me->user, filch_str("hello"));
    return filch_idle(out);
}

TEST(calls_of_other_processes_on_the_worker_are_not_recorded)
{
    office              o;
    actor               talking = { .user = &o.clerk };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    office_open(&o);
    how.blackbox = FILCH_BLACKBOX_OFF;
    actor_start_with(&o.w, &talking, play_chat, how);
    for (int i = 0; i < 3; i++) {
        /* the clerk is now the last recorded process that has run on this worker */
        SEND_EACH(&o.w, o.clerk, "hello");
        ok(filch_send(o.w.sched, talking.pid, filch_none()));
        (void)fixture_tick(&o.w);
        same(talking.note, FILCH_OK);
    }
    SEND_EACH(&o.w, o.clerk, "break");
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    office_close(&o);
    filch_drop(&talking.result);
}

TEST(method_args_and_inherited_values_are_replayed)
{
    office        o = { .clerk = { 0, 0 } };
    filch_values *first = NULL, *values = NULL;
    ok(filch_values_create(NULL, "speed", filch_int(1), &first));
    /* `values` has a newer "speed", which hides the "speed" of `first` */
    ok(filch_values_create(first, "speed", filch_int(40), &values));
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.values = values;
    how.method = "careful";
    office_open_with(&o, options_for(&o.shelf), how);
    filch_values_drop(values);
    filch_values_drop(first);
    SEND_EACH(&o.w, o.clerk, "send", "break");
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    office_close(&o);
}

TEST(a_replay_follows_an_upgrade)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "send", "retire", "nap", "break");
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    office_close(&o);
}

TEST(a_recording_that_begins_after_an_upgrade_has_the_new_type)
{
    office              o = { .clerk = { 0, 0 } };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.blackbox = 2;
    office_open_with(&o, options_for(&o.shelf), how);
    SEND_EACH(&o.w, o.clerk, "retire", "nap", "nap", "nap", "break");
    same(replay(&o.shelf, &clerk_type, FILCH_EINVAL).fed, 0);
    filch_blackbox_report report = fails_again(&o.shelf, &retired_type, BROKEN);
    same(report.partial, 1);
    same(report.steps, 2);
    office_close(&o);
}

/* Step of a clerk that computes its sum in another way than clerk_step(). */
static filch_err clumsy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    ((clerk *)self)->sum++;
    return clerk_step(self, events, count, out);
}

static filch_err brave_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0 && strcmp(filch_text(&events[0].data), "break") == 0) return filch_done(out, filch_none());
    return clerk_step(self, events, count, out);
}

static filch_err silent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0 && strcmp(filch_text(&events[0].data), "send") == 0) return filch_idle(out);
    return clerk_step(self, events, count, out);
}

static filch_err chatty_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    if (count > 0) (void)!filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_str("oh"));
    return clerk_step(self, events, count, out);
}

TEST(the_first_difference_is_reported)
{
    office     o;
    filch_type other = clerk_type;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "hello", "send", "break");

    other.step = clumsy_step;
    filch_blackbox_report report = replay(&o.shelf, &other, FILCH_OK);
    same(report.differs, 3);
    same(report.again, 1); /* the replay ends with the recorded error although it found a difference */
    assert_non_null(strstr(report.text, "step 3: recorded send to"));

    other.step = brave_step;
    report = replay(&o.shelf, &other, FILCH_OK);
    same(report.differs, 4);
    same(report.again, 0);
    same(report.error, FILCH_OK);
    assert_non_null(strstr(report.text, "recorded error 1007"));
    assert_non_null(strstr(report.text, "now done"));

    other.step = silent_step;
    report = replay(&o.shelf, &other, FILCH_OK);
    same(report.differs, 3);
    assert_non_null(strstr(report.text, "now idle"));

    other.step = chatty_step;
    report = replay(&o.shelf, &other, FILCH_OK);
    same(report.differs, 2);
    assert_non_null(strstr(report.text, "recorded nothing more, now send"));
    office_close(&o);
}

TEST(a_replay_of_a_recording_that_lost_steps_reports_it)
{
    office              o = { .clerk = { 0, 0 } };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.blackbox = 3;
    office_open_with(&o, options_for(&o.shelf), how);
    SEND_EACH(&o.w, o.clerk, "one", "two", "three", "send", "break");
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    same(report.partial, 1);
    same(report.lost, 0);
    same(report.missing, 3);
    same(report.steps, 3);
    same(report.fed, 3);
    same(report.again, 1);
    same(report.differs, 2); /* the recording lacks the first messages, so the sum of the replayed clerk differs */
    office_close(&o);
}

TEST(only_failures_are_recorded)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "spawn");
    ok(filch_cancel(o.w.sched, o.clerk)); /* the clerk ends on the cancel without an error */
    ok(filch_terminate(o.w.sched, o.friend));
    (void)fixture_tick(&o.w);
    same(fli_load_acq(&o.shelf.count), 0);
    office_close(&o);

    /* A process that ends on the cancel that a stop sends has not failed: on_blackbox is not called. */
    shelf   s = { .size = 0 };
    fixture w;
    actor   idler = { .play = NULL };
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    actor_start(&w, &idler, play_idle);
    (void)fixture_tick(&w);
    fixture_end(&w);
    same(fli_load_acq(&s.count), 0);
}

TEST(an_overflowed_process_is_recorded_too)
{
    office              o = { .clerk = { 0, 0 } };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.mailbox_max = 1;
    how.overflow = FILCH_OVERFLOW_STOP;
    office_open_with(&o, options_for(&o.shelf), how);
    SEND_EACH(&o.w, o.clerk, "send");
    ok(filch_send(o.w.sched, o.clerk, filch_none()));
    same(filch_send(o.w.sched, o.clerk, filch_none()), FILCH_EFULL);
    (void)fixture_tick(&o.w);
    same(o.shelf.error, FILCH_EOVERFLOW);
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    same(report.differs, 0);
    same(report.recorded, FILCH_EOVERFLOW);
    same(report.error, FILCH_OK); /* in the replay no step failed: the mailbox overflow is not the error of a step */
    same(report.again, 0);
    office_close(&o);
}

TEST(nothing_is_recorded_unless_enabled)
{
    /* Case: recording is on, but there is no on_blackbox. */
    office        o = { .clerk = { 0, 0 } };
    filch_options opt = options_for(&o.shelf);
    opt.on_blackbox = NULL;
    office_open_with(&o, opt, (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT);
    SEND_EACH(&o.w, o.clerk, "send", "break");
    same(fli_load_acq(&o.shelf.count), 0);
    office_close(&o);

    /* Case: recording is off, the default. */
    o = (office){ .clerk = { 0, 0 } };
    opt = options_for(&o.shelf);
    opt.blackbox = 0;
    office_open_with(&o, opt, (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT);
    SEND_EACH(&o.w, o.clerk, "send", "break");
    same(fli_load_acq(&o.shelf.count), 0);
    office_close(&o);

    /* Case: recording is on, but not for this process. */
    o = (office){ .clerk = { 0, 0 } };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.blackbox = FILCH_BLACKBOX_OFF;
    office_open_with(&o, options_for(&o.shelf), how);
    SEND_EACH(&o.w, o.clerk, "send", "break");
    same(fli_load_acq(&o.shelf.count), 0);
    office_close(&o);
}

TEST(long_payloads_are_cut_and_the_report_counts_them)
{
    office o;
    char  *large = calloc(1, LARGE);
    office_open(&o);
    ok(filch_send(o.w.sched, o.clerk, filch_bytes(large, LARGE)));
    SEND_EACH(&o.w, o.clerk, "break");
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    same(report.cut, 1);
    same(report.again, 1);
    free(large);
    office_close(&o);
}

TEST(a_payload_of_the_maximum_is_kept_whole_and_a_longer_one_is_cut)
{
    enum { KEPT = 4096 };
    static char bytes[KEPT + 2];
    for (size_t size = KEPT - 1; size <= KEPT + 2; size++) {
        office o;
        office_open(&o);
        ok(filch_send(o.w.sched, o.clerk, filch_bytes(bytes, size)));
        SEND_EACH(&o.w, o.clerk, "break");
        filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
        same(report.cut, size > KEPT);
        office_close(&o);
    }
}

TEST(the_size_of_a_recording_has_a_bound)
{
    office              o = { .clerk = { 0, 0 } };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    char               *large = calloc(1, LARGE);
    how.blackbox = FILCH_BLACKBOX_MAX;
    office_open_with(&o, options_for(&o.shelf), how);
    (void)fixture_tick(&o.w);
    int64_t before = fli_load_rlx(&o.w.bytes), most = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        ok(filch_send(o.w.sched, o.clerk, filch_bytes(large, LARGE)));
        if (i % 100 != 0) /* messages arrive one by one in most rounds, and a hundred at once in some rounds */
            (void)fixture_tick(&o.w);
        int64_t now = fli_load_rlx(&o.w.bytes);
        if (now > most) most = now;
    }
    assert_true(most - before < (3 << 20));
    SEND_EACH(&o.w, o.clerk, "many");
    SEND_EACH(&o.w, o.clerk, "break");
    assert_true(o.shelf.size < (2 << 20));
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    same(report.partial, 1);
    same(report.lost, 0);
    same(report.again, 1);
    free(large);
    office_close(&o);
}

TEST(a_step_with_very_many_calls_is_replayed)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "many", "break");
    assert_true(o.shelf.size < 4500 * 56); /* a recording has at most 4096 actions of 56 bytes (ACTS_MAX), a header and
                                            * the events */
    (void)fails_again(&o.shelf, &clerk_type, BROKEN);
    many -= 500;
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    many += 500;
    same(report.differs, 2);
    assert_non_null(strstr(report.text, "now fewer"));
    office_close(&o);
}

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        const int *number = filch_as_ptr(&events[i].data);
        if (number != NULL && *number == 13) return BROKEN;
    }
    return filch_idle(out);
}

static void *give_number(void *user, uint64_t step, void *was)
{
    assert_non_null(was);
    assert_true(step > 0);
    return user;
}

TEST(a_replay_ends_where_a_pointer_is_needed)
{
    const filch_type type = { .name = "reader", .step = reader_step };
    shelf            s = { .size = 0 };
    fixture          w;
    filch_pid        pid;
    int              fine = 1, bad = 13;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    ok(filch_spawn(w.sched, &type, NULL, &pid));
    ok(filch_send(w.sched, pid, filch_int(5)));
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, pid, filch_ptr(&fine)));
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, pid, filch_ptr(&bad)));
    (void)fixture_tick(&w);
    same(fli_load_acq(&s.count), 1);
    filch_blackbox_report report = replay(&s, &type, FILCH_OK);
    same(report.fed, 1);
    same(report.steps, 3);
    same(report.pointers, 1);
    same(report.again, 0);
    assert_non_null(strstr(report.text, "pointer"));

    report = (filch_blackbox_report){ .size = sizeof report, .pointer = give_number, .pointer_user = &bad };
    ok(filch_blackbox_replay(s.bytes, s.size, &type, &report));
    /* the replay gives &bad to the process instead of each recorded pointer, so the process fails at the first */
    same(report.fed, 2);
    same(report.error, BROKEN);
    same(report.differs, 2);
    same(report.pointers, 1);
    fixture_end(&w);
    free(s.bytes);
}

/* Replays a recording in the first step. */
static filch_err play_replay(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    const shelf          *s = me->user;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    host = filch_out_sched(out);
    me->note = filch_blackbox_replay(s->bytes, s->size, &clerk_type, &report);
    host = NULL;
    return filch_idle(out);
}

TEST(a_stop_in_a_replay_inside_a_step_of_the_scheduler_is_refused)
{
    office  o;
    fixture w;
    actor   a = { .user = &o.shelf };
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "stop the host", "break");
    host_stopped = FILCH_OK;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_replay);
    (void)fixture_tick(&w);
    same(a.note, FILCH_OK);
    same(host_stopped, FILCH_ESTATE);
    fixture_end(&w);
    office_close(&o);
}

static filch_err play_fail(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    (void)out;
    return count > 0 ? me->note : filch_idle(out);
}

static void *give_actor(void *user, uint64_t step, void *was)
{
    same(step, 0);
    assert_non_null(was);
    return user;
}

TEST(args_that_are_a_pointer_can_be_replaced)
{
    shelf   s = { .size = 0 };
    fixture w;
    actor   ill = { .note = BROKEN }, again = { .play = play_fail, .note = BROKEN };
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    actor_start(&w, &ill, play_fail);
    ok(filch_send(w.sched, ill.pid, filch_none()));
    actor_ends(&w, &ill, BROKEN);
    filch_blackbox_report report = replay(&s, &actor_type, FILCH_OK);
    same(report.fed, 0);
    assert_non_null(strstr(report.text, "args"));

    report = (filch_blackbox_report){ .size = sizeof report, .pointer = give_actor, .pointer_user = &again };
    ok(filch_blackbox_replay(s.bytes, s.size, &actor_type, &report));
    same(report.again, 1);
    same(again.inits, 1);
    same(again.closes, 1);
    assert_true(same_pid(again.pid, ill.pid));
    fixture_end(&w);
    free(s.bytes);
}

TEST(bad_recordings_are_refused_with_a_text)
{
    office                o;
    filch_type            other = clerk_type;
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "send", "spawn", "doze", "break");
    for (size_t size = 0; size < o.shelf.size; size++) {
        same(filch_blackbox_replay(o.shelf.bytes, size, &clerk_type, &report), FILCH_EINVAL);
        assert_true(report.text[0] != '\0');
    }
    other.name = "cleric";
    assert_non_null(strstr(replay(&o.shelf, &other, FILCH_EINVAL).text, "type clerk, not cleric"));
    other = clerk_type;
    other.size++;
    assert_non_null(strstr(replay(&o.shelf, &other, FILCH_EINVAL).text, "bytes of state"));
    o.shelf.bytes[o.shelf.size / 2] ^= 4;
    assert_non_null(strstr(replay(&o.shelf, &clerk_type, FILCH_EINVAL).text, "damaged"));

    other.step = NULL;
    same(filch_blackbox_replay(NULL, 100, &clerk_type, &report), FILCH_EINVAL);
    same(filch_blackbox_replay(o.shelf.bytes, o.shelf.size, NULL, &report), FILCH_EINVAL);
    same(filch_blackbox_replay(o.shelf.bytes, o.shelf.size, &other, &report), FILCH_EINVAL);
    same(filch_blackbox_replay(o.shelf.bytes, o.shelf.size, &clerk_type, NULL), FILCH_EINVAL);
    report.size = 8;
    same(filch_blackbox_replay(o.shelf.bytes, o.shelf.size, &clerk_type, &report), FILCH_EINVAL);

    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.blackbox = FILCH_BLACKBOX_MAX + 1;
    same(filch_spawn(o.w.sched, &child_type, &how, NULL), FILCH_EINVAL);
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched = NULL;
    opt.blackbox = FILCH_BLACKBOX_MAX + 1;
    same(filch_sched_create(&sched, &opt), FILCH_EINVAL);
    office_close(&o);
}

static filch_err fussy_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    filch_err err = clerk_init(self, ctx, method, args);
    return err != FILCH_OK ? err : BROKEN;
}

static filch_err busy_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    filch_sched *sched = filch_ctx_sched(ctx);
    filch_pid    child;
    filch_err    err = clerk_init(self, ctx, method, args);
    if (err == FILCH_OK) err = filch_spawn(sched, &child_type, NULL, &child);
    if (err == FILCH_OK) err = filch_send(sched, child, filch_none());
    return err;
}

TEST(init_is_part_of_a_replay)
{
    office     o;
    filch_type other = clerk_type;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "send", "break");
    other.init = fussy_init;
    filch_blackbox_report report = replay(&o.shelf, &other, FILCH_OK);
    same(report.fed, 0);
    same(report.again, 0);
    assert_non_null(strstr(report.text, "init failed"));
    /* busy_init makes calls that are not in the recording; they change neither the replay nor other processes */
    other.init = busy_init;
    report = replay(&o.shelf, &other, FILCH_OK);
    same(report.again, 1);
    same(report.differs, 0);
    office_close(&o);
}

/* ---- memory runs out ---- */

TEST(a_step_does_not_fail_because_its_recording_has_no_memory)
{
    office o;
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "one", "two");
    fli_store_rlx(&o.w.deny, true);
    SEND_EACH(&o.w, o.clerk, "send");
    same(fixture_inspect(&o.w, o.clerk).state, FILCH_STATE_IDLE);
    fli_store_rlx(&o.w.deny, false);
    SEND_EACH(&o.w, o.clerk, "three", "break");
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    same(report.lost, 1);
    same(report.partial, 1);
    same(report.missing, 4);
    same(report.steps, 2);
    same(report.again, 1);
    office_close(&o);

    /* Case: when the clerk fails, there is no memory for the recording. on_blackbox is called with a size of 0. */
    office_open(&o);
    SEND_EACH(&o.w, o.clerk, "one");
    fli_store_rlx(&o.w.deny, true);
    SEND_EACH(&o.w, o.clerk, "break");
    fli_store_rlx(&o.w.deny, false);
    same(fli_load_acq(&o.shelf.count), 1);
    same(o.shelf.error, BROKEN);
    assert_null(o.shelf.bytes);
    same(o.shelf.size, 0);
    office_close(&o);
}

/* Lets each allocation fail in turn. In each case the clerk behaves as it would without a recording, or the spawn
 * fails. */
TEST(any_refused_allocation_costs_at_most_the_recording)
{
    bool refused = true;
    for (uint64_t nth = 1; refused; nth++) {
        test_alloc    alloc = { 0 };
        shelf         s = { .size = 0 };
        filch_options opt = options_for(&s);
        filch_sched  *sched = NULL;
        filch_pid     pid = { 0, 0 };
        uint32_t      ran;
        opt.workers = FILCH_NO_WORKERS;
        opt.alloc = test_alloc_fn;
        opt.alloc_user = &alloc;
        ok(filch_sched_create(&sched, &opt));
        /* A first process with 20 messages, so that later processes and messages reuse its memory and do not
         * allocate. */
        ok(filch_spawn(sched, &child_type, NULL, &pid));
        for (int i = 0; i < 20; i++) ok(filch_send(sched, pid, filch_str("")));
        ok(filch_tick(sched, 0, &ran));
        uint64_t before = alloc.refused;
        test_alloc_fail(&alloc, nth, false);
        filch_err err = filch_spawn(sched, &clerk_type, NULL, &pid);
        if (err == FILCH_OK) {
            ok(filch_send(sched, pid, filch_str("one")));
            ok(filch_tick(sched, 0, &ran));
            ok(filch_send(sched, pid, filch_str("break")));
            ok(filch_tick(sched, 0, &ran));
            same(fli_load_acq(&s.count), 1);
            same(s.error, BROKEN);
            filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
            if (s.bytes != NULL) report = replay(&s, &clerk_type, FILCH_OK);
            if (s.bytes != NULL) same(report.again == 1 && report.partial == 0, report.lost == 0);
        } else {
            same(err, FILCH_ENOMEM);
        }
        refused = alloc.refused > before;
        if (!refused) assert_non_null(s.bytes);
        test_alloc_fail(&alloc, 0, false);
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
        test_alloc_balanced(&alloc);
        free(s.bytes);
        assert_true(nth < 1000);
    }
}

/* ---- differing: a process that differs from its recording in one chosen way ---- */

static int difference; /* difference that the step makes in the replay; 0 while the process is recorded */

enum {
    DIFF_TAG = 1,
    DIFF_COMMAND,
    DIFF_NO_SLEEP,
    DIFF_KIND,
    DIFF_SIZE,
    DIFF_TO,
    DIFF_NODE,
    DIFF_SPAWN_TYPE,
    DIFF_SPAWN_ARGS,
    DIFF_SPAWN_SEND,
    DIFF_STATUS,
    DIFF_UPGRADE,
    DIFF_NO_UPGRADE,
    DIFF_ERROR
};

static filch_err any_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method, (void)args;
    return FILCH_OK;
}

static filch_err differing_step(void *self, const filch_event *events, size_t count, filch_out *out);

static const filch_type nephew_type = { .name = "nephew", .init = any_init, .step = child_step };
static const filch_type niece_type = { .name = "niece", .init = any_init, .step = child_step };
static const filch_type differing_type = { .name = "odd", .step = differing_step };
static const filch_type older_type = { .name = "older", .step = differing_step };
static const filch_type wiser_type = { .name = "wiser", .step = differing_step };

static filch_err no_work(void *arg, filch_data *result)
{
    (void)arg, (void)result;
    return FILCH_OK;
}

static filch_err differing_sends(filch_sched *sched, filch_pid self)
{
    filch_pid to = self;
    if (difference == DIFF_TO) to.serial++;
    if (difference == DIFF_NODE) to.node++;
    if (difference == DIFF_KIND) return filch_send(sched, to, filch_num(8));
    if (difference == DIFF_SIZE) return filch_send(sched, to, filch_str("longer than a number"));
    return filch_send(sched, to, filch_int(8));
}

static filch_err differing_spawns(filch_sched *sched, filch_pid self)
{
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.args = filch_int(difference == DIFF_SPAWN_ARGS ? 2 : 1);
    if (difference == DIFF_SPAWN_SEND) return filch_send(sched, self, filch_none());
    return filch_spawn(sched, difference == DIFF_SPAWN_TYPE ? &niece_type : &nephew_type, &how, NULL);
}

static filch_err differing_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    const char      *what = count > 0 ? filch_text(&events[0].data) : "";
    (void)self;
    if (strcmp(what, "yield") == 0) {
        uint64_t tag = difference == DIFF_TAG ? 2 : 1;
        if (difference == DIFF_COMMAND)
            return filch_yield_timer(out, tag, 1) == FILCH_OK ? filch_wait(out) : FILCH_EUSER;
        if (difference != DIFF_NO_SLEEP && filch_yield_sleep(out, tag, 1) != FILCH_OK) return FILCH_EUSER;
        return difference == DIFF_NO_SLEEP ? filch_idle(out) : filch_wait(out);
    }
    if (strcmp(what, "work") == 0)
        return filch_yield_work(out, 3, no_work, NULL) == FILCH_OK ? filch_wait(out) : FILCH_EUSER;
    /* The malformed payload is refused both while recording and in the replay, so the replay sees no difference. */
    if (strcmp(what, "unsound") == 0)
        (void)!filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_bytes(NULL, 3));
    if (strcmp(what, "send") == 0) (void)!differing_sends(filch_ctx_sched(ctx), filch_ctx_self(ctx));
    if (strcmp(what, "spawn") == 0) (void)!differing_spawns(filch_ctx_sched(ctx), filch_ctx_self(ctx));
    if (strcmp(what, "grow") == 0 && difference != DIFF_NO_UPGRADE)
        return filch_upgrade(out, difference == DIFF_UPGRADE ? &wiser_type : &older_type, NULL, filch_none());
    if (strcmp(what, "break") == 0) return difference == DIFF_ERROR ? BROKEN + 1 : BROKEN;
    if (strcmp(what, "rest") == 0 && difference == DIFF_STATUS) return filch_continue(out);
    return filch_idle(out);
}

TEST(each_kind_of_difference_is_described)
{
    static const struct {
        int         difference;
        uint64_t    step;
        const char *then, *now;
    } all[] = {
        { DIFF_TAG, 2, "recorded yield 10 tag 1 with an int", "now yield 10 tag 2 with an int" },
        { DIFF_COMMAND, 2, "recorded yield 10 tag 1", "now yield 11 tag 1" },
        { DIFF_NO_SLEEP, 2, "recorded yield 10 tag 1", "now idle" },
        { DIFF_KIND, 7, "of an int", "of a num" },
        { DIFF_SIZE, 7, "of an int", "of a text (20 bytes" },
        { DIFF_TO, 7, "recorded send to", "now send to" },
        { DIFF_NODE, 7, "recorded send to", "now send to" },
        { DIFF_SPAWN_TYPE, 9, "recorded spawn nephew with an int", "now spawn niece with an int" },
        { DIFF_SPAWN_ARGS, 9, "recorded spawn nephew with an int", "now spawn nephew with an int" },
        { DIFF_SPAWN_SEND, 9, "recorded spawn nephew", "now send to" },
        { DIFF_STATUS, 10, "recorded idle", "now continue" },
        { DIFF_UPGRADE, 11, "recorded upgrade to older", "now upgrade to wiser" },
        { DIFF_NO_UPGRADE, 11, "recorded upgrade to older", "now idle" },
        { DIFF_ERROR, 13, "recorded error 1007", "now error 1008" },
    };
    shelf     s = { .size = 0 };
    fixture   w;
    filch_pid pid;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    ok(filch_spawn(w.sched, &differing_type, NULL, &pid));
    (void)fixture_tick(&w);
    /* "yield" and "work" take two steps each: one for the message, one for the completion */
    SEND_EACH(&w, pid, "yield");
    ok(filch_send(w.sched, pid, filch_str("work")));
    UNTIL(&w, fixture_inspect(&w, pid).state == FILCH_STATE_IDLE);
    SEND_EACH(&w, pid, "unsound", "send", "spawn", "rest", "grow", "break");
    assert_string_equal(fails_again(&s, &differing_type, BROKEN).text, "");
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        difference = all[i].difference;
        filch_blackbox_report report = replay(&s, &differing_type, FILCH_OK);
        difference = 0;
        if (report.differs != all[i].step || strstr(report.text, all[i].then) == NULL ||
            strstr(report.text, all[i].now) == NULL) {
            fail_msg("%zu: %s", i, report.text);
        }
        same(report.again, all[i].difference != DIFF_ERROR);
    }
    fixture_end(&w);
    free(s.bytes);
}

static filch_err gives_in_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? FILCH_ECANCELLED : filch_idle(out);
}

TEST(a_process_that_ends_with_ecancelled_on_cancel_has_not_failed)
{
    const filch_type type = { .name = "gives in", .step = gives_in_step };
    shelf            s = { .size = 0 };
    fixture          w;
    filch_pid        pid;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options_for(&s));
    ok(filch_spawn(w.sched, &type, NULL, &pid));
    (void)fixture_tick(&w);
    ok(filch_cancel(w.sched, pid));
    (void)fixture_tick(&w);
    same(filch_cancel(w.sched, pid), FILCH_EDEAD);
    same(fli_load_acq(&s.count), 0);
    /* Malformed args are refused with and without a recording. */
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.args = filch_bytes(NULL, 3);
    same(filch_spawn(w.sched, &nephew_type, &how, NULL), FILCH_EINVAL);
    fixture_end(&w);
}

TEST(of_many_long_payloads_in_one_step_only_a_part_is_recorded)
{
    office        o = { .clerk = { 0, 0 } };
    filch_options opt = options_for(&o.shelf);
    char         *large = calloc(1, LARGE);
    opt.batch_max = 500;
    office_open_with(&o, opt, (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT);
    for (uint32_t i = 0; i < opt.batch_max; i++) ok(filch_send(o.w.sched, o.clerk, filch_bytes(large, LARGE)));
    (void)fixture_tick(&o.w);
    SEND_EACH(&o.w, o.clerk, "break");
    assert_true(o.shelf.size < 512 << 10); /* the recording is far smaller than 500 messages of 4096 bytes */
    filch_blackbox_report report = replay(&o.shelf, &clerk_type, FILCH_OK);
    same(report.cut, opt.batch_max);
    same(report.fed, 3);
    same(report.again, 1);
    free(large);
    office_close(&o);
}

/* An allocation fails during the change of type. The change either happens or fails. If the recording lacks the change,
 * a new recording of the new type begins. */
TEST(a_change_of_type_that_is_lost_begins_a_recording_of_the_new_type)
{
    bool refused = true, begun_anew = false;
    for (uint64_t nth = 1; refused; nth++) {
        test_alloc    alloc = { 0 };
        shelf         s = { .size = 0 };
        filch_options opt = options_for(&s);
        filch_sched  *sched = NULL;
        filch_pid     pid = { 0, 0 };
        opt.workers = FILCH_NO_WORKERS;
        opt.alloc = test_alloc_fn;
        opt.alloc_user = &alloc;
        ok(filch_sched_create(&sched, &opt));
        ok(filch_spawn(sched, &clerk_type, NULL, &pid));
        ok(filch_send(sched, pid, filch_str("one")));
        ok(filch_tick(sched, 0, NULL));
        ok(filch_send(sched, pid, filch_str("retire")));
        test_alloc_fail(&alloc, nth, false);
        ok(filch_tick(sched, 0, NULL));
        refused = alloc.refused > 0;
        test_alloc_fail(&alloc, 0, false);
        if (fli_load_acq(&s.count) == 0) {
            ok(filch_send(sched, pid, filch_str("break")));
            ok(filch_tick(sched, 0, NULL));
            same(s.error, BROKEN);
            filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
            filch_err             err = filch_blackbox_replay(s.bytes, s.size, &clerk_type, &report);
            if (err == FILCH_EINVAL) report = replay(&s, &retired_type, FILCH_OK);
            else ok(err);
            same(err == FILCH_EINVAL, report.lost != 0);
            begun_anew |= report.lost != 0;
            same(report.again, 1);
        } else {
            same(s.error, FILCH_ENOMEM);
        }
        same(fli_load_acq(&s.count), 1);
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
        test_alloc_balanced(&alloc);
        free(s.bytes);
        assert_true(nth < 1000);
    }
    assert_true(begun_anew);
}

/* ---- recordings of many processes at once, and in a simulation ---- */

typedef struct archive {
    FLI_ATOMIC(uint32_t) good, bad;
} archive;

/* Replays the recording on the worker, as soon as the process has ended. */
static void replay_at_once(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    archive              *a = user;
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    filch_err             err = filch_blackbox_replay(bytes, size, &clerk_type, &report);
    bool                  good = err == FILCH_OK && report.again == 1 && report.differs == 0 && error == BROKEN;
    good = good && same_pid(report.pid, pid);
    if (!good) print_message("%s: %s\n", filch_err_name(err), report.text);
    fli_add_rlx(good ? &a->good : &a->bad, 1);
}

static const char *const words[] = { "hello", "send", "doze", "spawn", "tell", "deliver", "cancel", "move", "kill" };

TEST(processes_that_failed_on_many_workers_fail_again_in_replays)
{
    archive a = { .good = 0 };
    fixture w;
    filch_pid friend, pids[100];
    filch_options opt = FILCH_OPTIONS_INIT;
    uint32_t      rounds = fixture_scale(40, 2);
    opt.on_blackbox = replay_at_once;
    opt.on_blackbox_user = &a;
    opt.blackbox = 4096;
    fixture_begin_with(&w, 4, opt);
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.blackbox = FILCH_BLACKBOX_OFF;
    ok(filch_spawn(w.sched, &child_type, &how, &friend));
    how = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    how.args = filch_of_pid(friend);
    for (uint32_t round = 1; round <= rounds; round++) {
        for (size_t i = 0; i < COUNT_OF(pids); i++) ok(filch_spawn(w.sched, &clerk_type, &how, &pids[i]));
        for (size_t n = 0; n < 30; n++) {
            for (size_t i = 0; i < COUNT_OF(pids); i++) {
                ok(filch_send(w.sched, pids[i], filch_str(words[(n * 7 + i) % COUNT_OF(words)])));
            }
        }
        for (size_t i = 0; i < COUNT_OF(pids); i++) ok(filch_send(w.sched, pids[i], filch_str("break")));
        UNTIL(&w, fli_load_rlx(&a.good) + fli_load_rlx(&a.bad) == round * COUNT_OF(pids));
    }
    same(fli_load_rlx(&a.bad), 0);
    fixture_end(&w);
}

static filch_err scenario(filch_sched *sched, void *user)
{
    filch_pid friend, pid;
    filch_err err = filch_spawn(sched, &child_type, NULL, &friend);
    (void)user;
    for (int i = 0; i < 10 && err == FILCH_OK; i++) {
        filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
        how.args = filch_of_pid(friend);
        err = filch_spawn(sched, &clerk_type, &how, &pid);
        for (size_t n = 0; n < COUNT_OF(words) && err == FILCH_OK; n++) {
            err = filch_send(sched, pid, filch_str(words[n]));
        }
        if (err == FILCH_OK) err = filch_send(sched, pid, filch_str("break"));
    }
    return err;
}

TEST(a_process_that_failed_in_a_simulation_fails_again_in_a_replay)
{
    archive           a = { .good = 0 };
    filch_options     sched = FILCH_OPTIONS_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    uint32_t          runs = fixture_scale(300, 5);
    sched.on_blackbox = replay_at_once;
    sched.on_blackbox_user = &a;
    sched.blackbox = FILCH_BLACKBOX_STEPS;
    opt.sched = &sched;
    opt.late_answer = 100;
    ok(filch_sim_sweep(&opt, 1, runs, scenario, NULL, &report));
    same(report.verdict, FILCH_SIM_OK);
    filch_sim_report_free(&report);
    same(fli_load_rlx(&a.good), runs * 10);
    same(fli_load_rlx(&a.bad), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_failed_fails_again_in_a_replay),
        cmocka_unit_test(a_replay_returns_the_recorded_results_of_calls),
        cmocka_unit_test(a_replay_returns_the_recorded_results_of_whereis),
        cmocka_unit_test(a_replay_returns_the_recorded_completions_of_cancelled_yields),
        cmocka_unit_test(whereis_of_another_name_than_recorded_is_a_difference),
        cmocka_unit_test(a_step_without_a_status_is_recorded_with_its_error),
        cmocka_unit_test(a_replay_tells_a_wait_with_a_yield_from_one_without),
        cmocka_unit_test(a_wait_for_the_yield_of_an_earlier_step_is_replayed),
        cmocka_unit_test(children_of_an_unrecorded_process_are_recorded),
        cmocka_unit_test(calls_of_other_processes_on_the_worker_are_not_recorded),
        cmocka_unit_test(method_args_and_inherited_values_are_replayed),
        cmocka_unit_test(a_replay_follows_an_upgrade),
        cmocka_unit_test(a_recording_that_begins_after_an_upgrade_has_the_new_type),
        cmocka_unit_test(the_first_difference_is_reported),
        cmocka_unit_test(a_replay_of_a_recording_that_lost_steps_reports_it),
        cmocka_unit_test(only_failures_are_recorded),
        cmocka_unit_test(an_overflowed_process_is_recorded_too),
        cmocka_unit_test(nothing_is_recorded_unless_enabled),
        cmocka_unit_test(long_payloads_are_cut_and_the_report_counts_them),
        cmocka_unit_test(a_payload_of_the_maximum_is_kept_whole_and_a_longer_one_is_cut),
        cmocka_unit_test(the_size_of_a_recording_has_a_bound),
        cmocka_unit_test(a_step_with_very_many_calls_is_replayed),
        cmocka_unit_test(a_replay_ends_where_a_pointer_is_needed),
        cmocka_unit_test(a_stop_in_a_replay_inside_a_step_of_the_scheduler_is_refused),
        cmocka_unit_test(args_that_are_a_pointer_can_be_replaced),
        cmocka_unit_test(bad_recordings_are_refused_with_a_text),
        cmocka_unit_test(init_is_part_of_a_replay),
        cmocka_unit_test(a_step_does_not_fail_because_its_recording_has_no_memory),
        cmocka_unit_test(any_refused_allocation_costs_at_most_the_recording),
        cmocka_unit_test(each_kind_of_difference_is_described),
        cmocka_unit_test(a_process_that_ends_with_ecancelled_on_cancel_has_not_failed),
        cmocka_unit_test(of_many_long_payloads_in_one_step_only_a_part_is_recorded),
        cmocka_unit_test(a_change_of_type_that_is_lost_begins_a_recording_of_the_new_type),
        cmocka_unit_test(processes_that_failed_on_many_workers_fail_again_in_replays),
        cmocka_unit_test(a_process_that_failed_in_a_simulation_fails_again_in_a_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
