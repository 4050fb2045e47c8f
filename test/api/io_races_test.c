/* io_races_test.c - races between two threads that complete one operation. The test forces each race: the second thread
 * acts in the middle of a system call of the first, by a hook or behind a gate. The second thread runs a timeout, a
 * cancel, the end of the process, or is a worker that opens the poller. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/io_script.h"
#include "io/io.h"
#include "io/stream.h"
#include "port/thread.h"
#include "sched/sched.h"
#include "support/gate.h"
#include "support/instead.h"

static fixture w;

static fli_io *io_of(void)
{
    return &w.sched->io;
}

/* ---- replaced system calls that run a hook or wait at a gate ---- */

static void (*in_recv)(void);
static gate receiving, accepting, making;

INSTEAD_BEGIN(ssize_t, recv, (int fd, void *bytes, size_t room, int flags))
{
    if (in_recv != NULL) in_recv();
    gate_pass(&receiving);
    return fault_strikes(&fault_of_recv) ? -1 : __real_recv(fd, bytes, room, flags);
}

INSTEAD_BEGIN(int, accept4, (int fd, struct sockaddr *at, socklen_t *size, int flags))
{
    gate_pass(&accepting);
    return fault_strikes(&fault_of_accept4) ? -1 : __real_accept4(fd, at, size, flags);
}

INSTEAD_BEGIN(int, epoll_create1, (int flags))
{
    gate_pass(&making);
    return fault_strikes(&fault_of_epoll_create1) ? -1 : __real_epoll_create1(flags);
}

/* `came` counts the calls of fli_mutex_lock() with the lock `watched_lock`. */
static FLI_ATOMIC(fli_mutex *) watched_lock;
static FLI_ATOMIC(uint32_t)    came;
void                           __real_fli_mutex_lock(fli_mutex *mutex);
void                           __wrap_fli_mutex_lock(fli_mutex *mutex);
void                           __wrap_fli_mutex_lock(fli_mutex *mutex)
{
    if (mutex == fli_load_acq(&watched_lock)) (void)fli_add_rel(&came, 1);
    __real_fli_mutex_lock(mutex);
}

/* ---- timeouts with one thread: the timeout fires inside the system call of the read ---- */

static script  *reader;
static uint32_t alarms;

/* Fires the timeout of the reader's stream, as the timer wheel does. */
static void fire_timeout(void)
{
    in_recv = NULL;
    alarms++;
    fli_io_alarm(io_of(), reader->stream.id);
}

static filch_err fire_timeout_in_step(script *s, filch_out *out)
{
    (void)s, (void)out;
    fire_timeout();
    return FILCH_OK;
}

/* Fires the timeout of the reader's stream, as a worker does it between two steps. */
static void fire_timeout_between(void)
{
    script firing = SCRIPT(DO_CALL(fire_timeout_in_step));
    script_start(&w, &firing);
    script_ends(&w, &firing);
}

/* Creates a connection. The next receive of its server calls `hook` in the middle of the system call. */
static int begin_reading(script *server, void (*hook)(void))
{
    reader = server;
    alarms = 0;
    fixture_begin(&w, FILCH_NO_WORKERS);
    script_start(&w, server);
    UNTIL(&w, is_ready(server));
    int fd = peer_connect(server);
    UNTIL(&w, script_stage(server) == 4); /* the script `server` is at its line 4, a pause */
    in_recv = hook;
    ok(filch_send(w.sched, server->actor.pid, filch_none()));
    return fd;
}

static void end_reading(script *server, int fd)
{
    script_ends(&w, server);
    same(alarms, 1);
    close(fd);
    fixture_end(&w);
}

/* Waits until the deadline has passed, then fires the timeout while the worker is inside the system call. The timeout
 * sets a flag, which the worker finds after the call. */
static void fire_timeout_late(void)
{
    uint64_t end_ns = fli_clock_ns() + FILCH_MILLISECONDS(2);
    while (fli_clock_ns() < end_ns) {}
    fire_timeout();
}

TEST(a_timeout_during_a_receive_call_is_reported)
{
    script server =
        SCRIPT(SERVE, DO_TIMEOUT(FILCH_MILLISECONDS(1)), DO_PAUSE, DO_READ(0), DO_TIMEOUT(FILCH_FOREVER), DO_READ(0));
    int fd = begin_reading(&server, fire_timeout_late);
    UNTIL(&w, script_stage(&server) == 7);
    same(server.result[5].error, FILCH_EDEADLINE);
    same(send(fd, "later", 5, 0), 5);
    end_reading(&server, fd);
    assert_string_equal(server.result[7].bytes, "later");
}

TEST(the_timer_of_an_earlier_operation_does_not_end_a_running_one)
{
    script server = SCRIPT(SERVE, DO_TIMEOUT(FILCH_SECONDS(60)), DO_PAUSE, DO_READ(0));
    int    fd = begin_reading(&server, fire_timeout);
    for (int i = 0; i < 5; i++) (void)fixture_tick(&w);
    same(alarms, 1);
    same(script_stage(&server), 5); /* the timeout has not ended the read, which still waits */
    same(send(fd, "in time", 7, 0), 7);
    end_reading(&server, fd);
    assert_string_equal(server.result[5].bytes, "in time");
}

TEST(the_timer_of_an_earlier_operation_does_not_end_a_waiting_one)
{
    for (int timed = 0; timed <= 1; timed++) {
        script server = SCRIPT(SERVE, DO_TIMEOUT(timed ? FILCH_SECONDS(60) : FILCH_FOREVER), DO_PAUSE, DO_READ(0));
        int    fd = begin_reading(&server, NULL);
        (void)fixture_tick(&w);
        same(script_stage(&server), 5);
        fire_timeout_between();
        (void)fixture_tick(&w);
        same(script_stage(&server), 5);
        /* a timer is set only if this read has a timeout */
        same(filch_next_timeout(w.sched) == FILCH_FOREVER, !timed);
        same(send(fd, "in time", 7, 0), 7);
        end_reading(&server, fd);
        assert_string_equal(server.result[5].bytes, "in time");
    }
}

TEST(a_timer_for_an_ended_operation_or_a_closed_stream_has_no_effect)
{
    script server = SCRIPT(SERVE, DO_TIMEOUT(FILCH_SECONDS(60)), DO_PAUSE, DO_READ(0), DO_PAUSE, DO_CLOSE, DO_PAUSE);
    int    fd = begin_reading(&server, NULL);
    same(send(fd, "x", 1, 0), 1);
    UNTIL(&w, script_stage(&server) == 6);
    fire_timeout_between(); /* no operation is outstanding when this timeout fires */
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    UNTIL(&w, script_stage(&server) == 8);
    fli_io_alarm(io_of(), server.stream.id); /* fires the timeout of a stream that is closed */
    fli_poll_report old = { .number = server.stream.id, .in = true, .out = true };
    fli_io_batch    batch = { .count = 1, .reports = { old } };
    fli_io_deliver(io_of(), &batch); /* reports readiness of the closed stream, which has no effect */
    (void)fixture_tick(&w);
    same(script_stage(&server), 8);
    ok(filch_send(w.sched, server.actor.pid, filch_none()));
    end_reading(&server, fd);
}

/* ---- what a second worker does while the first worker waits at a gate ---- */

/* This process is always ready, so that the second worker does not park. A parked second worker would not be unparked:
 * the runtime expects that the worker that got the readiness report searches for further work, but here that worker
 * waits at the gate. */
static filch_err play_goes_on(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_continue(out);
}

static actor waker;

static void begin_awake(void)
{
    fixture_begin(&w, 2);
    waker = (actor){ 0 };
    actor_start(&w, &waker, play_goes_on);
}

static void end_awake(void)
{
    ok(filch_cancel(w.sched, waker.pid));
    actor_ends(&w, &waker, FILCH_OK);
    fixture_end(&w);
}

/* The process reads; a message makes it cancel the outstanding read. */
static filch_err play_cancels(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    script *s = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE) me->note |= filch_yield_io_cancel(out, 3, s->stream);
        else if (events[i].tag == 2) note(&s->result[0], &events[i]);
        else if (events[i].tag == 3) note(&s->result[1], &events[i]);
        else if (events[i].tag == 0) s->listener = filch_as_stream(&events[i].data);
        else s->stream = filch_as_stream(&events[i].data);
        if (events[i].type == FILCH_EVENT_MESSAGE) continue;
        me->stage++;
        if (events[i].tag == 0) {
            me->note |= filch_stream_address(out, s->listener, FILCH_ADDRESS_LOCAL, s->local, sizeof s->local);
            me->note |= filch_yield_accept(out, 1, s->listener, FILCH_FOREVER);
            fli_store_rel(&s->is_ready, true);
        }
        if (events[i].tag == 1) me->note |= filch_yield_read_exactly(out, 2, s->stream, 100, FILCH_FOREVER);
        if (events[i].tag == 3) fli_store_rel(&s->extra_seen, 1);
    }
    if (me->steps == 1) me->note |= filch_yield_listen(out, 0, "127.0.0.1:0", NULL);
    fli_store_rel(&s->stage, (uint32_t)me->stage);
    return me->stage == 4 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(a_cancel_during_a_receive_call_ends_the_read_before_it_waits)
{
    begin_awake();
    script s = SCRIPT(DO_PAUSE);
    s.actor.user = &s;
    actor_start(&w, &s.actor, play_cancels);
    UNTIL(&w, is_ready(&s));
    int fd = peer_connect(&s);
    UNTIL(&w, script_stage(&s) == 2 && fixture_inspect(&w, s.actor.pid).state == FILCH_STATE_IDLE);
    gate_shut(&receiving);
    same(send(fd, "some", 4, 0), 4);
    UNTIL(&w, gate_is_waiting(&receiving)); /* the first worker is inside recv(), at the gate */
    ok(filch_send(w.sched, s.actor.pid, filch_none()));
    /* the second worker has completed the cancel, and reported that it found a read */
    UNTIL(&w, fli_load_acq(&s.extra_seen) == 1);
    same(s.result[1].number, 1);
    gate_open(&receiving);
    actor_ends(&w, &s.actor, FILCH_OK);
    ok(s.actor.note);
    same(s.result[0].error, FILCH_ECANCELLED);
    close(fd);
    end_awake();
}

TEST(a_connection_that_is_accepted_for_a_process_that_has_just_ended_is_closed)
{
    int before = open_descriptors();
    begin_awake();
    script server = SCRIPT(SERVE);
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server) && fixture_inspect(&w, server.actor.pid).state == FILCH_STATE_IDLE);
    gate_shut(&accepting);
    int fd = peer_connect(&server);
    UNTIL(&w, gate_is_waiting(&accepting));
    ok(filch_terminate(w.sched, server.actor.pid));
    script_ends(&w, &server);
    gate_open(&accepting);
    char got;
    same(recv(fd, &got, 1, 0), 0);
    close(fd);
    end_awake();
    same(open_descriptors(), before);
}

TEST(two_workers_that_need_the_poller_at_once_create_one)
{
    int before = open_descriptors();
    fixture_begin(&w, 2);
    script one = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_PAUSE), two = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_PAUSE);
    fli_store_rel(&came, 0);
    fli_store_rel(&watched_lock, &io_of()->lock);
    gate_shut(&making);
    script_start(&w, &one);
    UNTIL(&w, gate_is_waiting(&making));
    script_start(&w, &two);
    /* the second worker has found that there is no poller, and waits for the lock */
    UNTIL(&w, fli_load_acq(&came) == 2);
    gate_open(&making);
    fli_store_rel(&watched_lock, NULL);
    UNTIL(&w, script_stage(&one) == 1 && script_stage(&two) == 1);
    /* four new descriptors: two listeners, one poller, and the descriptor that wakes the poller */
    same(open_descriptors(), before + 4);
    ok(filch_send(w.sched, one.actor.pid, filch_none()));
    ok(filch_send(w.sched, two.actor.pid, filch_none()));
    script_ends(&w, &one);
    script_ends(&w, &two);
    ok(one.result[0].error);
    ok(two.result[0].error);
    fixture_end(&w);
    same(open_descriptors(), before);
}

/* ---- a slot in which stream ids have reached their last generation ---- */

TEST(a_slot_without_generations_left_is_not_used_for_streams_again)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    script first = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_PAUSE);
    script_start(&w, &first);
    UNTIL(&w, script_stage(&first) == 1);
    uint32_t    slot = (uint32_t)first.stream.id;
    fli_stream *s = fli_slab_at(&io_of()->streams, slot);
    uint64_t    word = fli_load_rlx(&s->state) & UINT32_MAX;
    /* sets the generation as if the slot had been used for 2^31 streams */
    fli_store_rlx(&s->state, (uint64_t)FLI_STREAM_GEN_LAST << FLI_STREAM_GEN_SHIFT | word);
    ok(filch_send(w.sched, first.actor.pid, filch_none()));
    script_ends(&w, &first);
    for (int i = 0; i < 3; i++) {
        script next = SCRIPT(DO_DATAGRAM("127.0.0.1:0"));
        script_start(&w, &next);
        script_ends(&w, &next);
        ok(next.result[0].error);
        assert_true((uint32_t)next.stream.id != slot);
    }
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timeout_during_a_receive_call_is_reported),
        cmocka_unit_test(the_timer_of_an_earlier_operation_does_not_end_a_running_one),
        cmocka_unit_test(the_timer_of_an_earlier_operation_does_not_end_a_waiting_one),
        cmocka_unit_test(a_timer_for_an_ended_operation_or_a_closed_stream_has_no_effect),
        cmocka_unit_test(a_cancel_during_a_receive_call_ends_the_read_before_it_waits),
        cmocka_unit_test(a_connection_that_is_accepted_for_a_process_that_has_just_ended_is_closed),
        cmocka_unit_test(two_workers_that_need_the_poller_at_once_create_one),
        cmocka_unit_test(a_slot_without_generations_left_is_not_used_for_streams_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
