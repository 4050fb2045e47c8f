/* io_refused_test.c - I/O on a system that fails or is slow: no descriptors, no threads, no space in the poller; a
 * process that ends while a thread of the pool opens a file or starts a program for it; child programs that other code
 * has waited for; results that come too late because of a stop. The linker puts the functions below in place of the
 * system's. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/io_script.h"
#include "support/gate.h"
#include "support/instead.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

/* ---- the system ---- */

INSTEAD(int, accept4, (int fd, struct sockaddr *at, socklen_t *size, int flags), (fd, at, size, flags))
INSTEAD(int, epoll_create1, (int flags), (flags))
INSTEAD(int, getsockname, (int fd, struct sockaddr *at, socklen_t *size), (fd, at, size))
INSTEAD(int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))
INSTEAD(off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence))
INSTEAD_CODE(pthread_create, (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
             (thread, attr, run, arg))

/* Replaces epoll_ctl: only a call with EPOLL_CTL_ADD can be made to fail. */
INSTEAD_BEGIN(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event))
{
    return what == EPOLL_CTL_ADD && fault_strikes(&fault_of_epoll_ctl) ? -1 : __real_epoll_ctl(epoll, what, fd, event);
}

/* Replaces read: only reads of more than 8 bytes can be made to fail, because the poller reads its wake descriptor by
 * reads of 8 bytes. */
INSTEAD_BEGIN(ssize_t, read, (int fd, void *bytes, size_t room))
{
    return room > 8 && fault_strikes(&fault_of_read) ? -1 : __real_read(fd, bytes, room);
}

/* Gates at which open() and posix_spawnp() wait until the test opens the gate. */
static gate opening, spawning;

INSTEAD_BEGIN(int, open, (const char *path, int flags, ...))
{
    va_list list;
    va_start(list, flags);
    mode_t mode = va_arg(list, mode_t);
    va_end(list);
    gate_pass(&opening);
    return fault_strikes(&fault_of_open) ? -1 : __real_open(path, flags, mode);
}

INSTEAD_BEGIN(int, posix_spawnp,
              (pid_t * pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
               char *const argv[], char *const env[]))
{
    gate_pass(&spawning);
    return fault_strikes(&fault_of_posix_spawnp) ? errno : __real_posix_spawnp(pid, file, actions, attr, argv, env);
}

/* The next `still_dying` calls of waitid() with WNOHANG report that the program has not ended. */
static FLI_ATOMIC(int) still_dying;
int                    __real_waitid(idtype_t type, id_t id, siginfo_t *info, int how);
int                    __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int how);
int                    __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int how)
{
    if ((how & WNOHANG) == 0 || fli_load_rlx(&still_dying) <= 0) return __real_waitid(type, id, info, how);
    fli_add_rlx(&still_dying, -1);
    info->si_pid = 0;
    return 0;
}

/* While not 0, fli_clock_ns() returns this time; 0: the clock shows the real time. */
static FLI_ATOMIC(uint64_t) still_ns;
uint64_t                    __real_fli_clock_ns(void);
uint64_t                    __wrap_fli_clock_ns(void);
static FLI_ATOMIC(uint64_t) clock_reads;
uint64_t                    __wrap_fli_clock_ns(void)
{
    (void)fli_add_rlx(&clock_reads, 1);
    uint64_t now_ns = fli_load_rlx(&still_ns);
    return now_ns != 0 ? now_ns : __real_fli_clock_ns();
}

/* ---- connections ---- */

TEST(accept_without_descriptors_fails_and_backs_off_up_to_a_second)
{
    enum { TIMES = 12 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT,
                           DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT, DO_ACCEPT);
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    refuse(accept4, TIMES, EMFILE);
    int fd = peer_connect(&server);
    fli_store_rlx(&still_ns, __real_fli_clock_ns());
    (void)fixture_tick(&w);
    uint64_t pause_ns = FILCH_MILLISECONDS(10);
    int      wrong = refused(accept4) != 1; /* the first accept was made in this tick, and failed */
    for (int i = 1; i < TIMES; i++) {
        (void)fli_add_rlx(&still_ns, pause_ns - 1);
        (void)fixture_tick(&w);
        wrong += refused(accept4) != i;        /* the listener does not accept again before its pause is over */
        (void)fli_add_rlx(&still_ns, 1000001); /* ends the pause, plus 1 ms, because a timer may be late */
        (void)fixture_tick(&w);
        wrong += refused(accept4) != i + 1;
        pause_ns = pause_ns * 2 > FILCH_SECONDS(1) ? FILCH_SECONDS(1) : pause_ns * 2;
    }
    fli_store_rlx(&still_ns, 0);
    same(wrong, 0);
    fli_store_rlx(&still_ns, __real_fli_clock_ns() + FILCH_SECONDS(60));
    (void)fixture_tick(&w);
    fli_store_rlx(&still_ns, 0);
    script_ends(&w, &server); /* there are descriptors again, so the connection was accepted */
    for (int i = 0; i < TIMES; i++) {
        same(server.result[2 + i].error, FILCH_EFILES);
        same(server.result[2 + i].number, EMFILE);
    }
    ok(server.result[2 + TIMES].error);
    close(fd);
    fixture_end(&w);
}

TEST(a_listener_in_back_off_still_times_out)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_TIMEOUT(FILCH_MILLISECONDS(2)),
                           DO_ACCEPT, DO_TIMEOUT(FILCH_FOREVER), DO_ACCEPT);
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    fli_store_rlx(&still_ns, __real_fli_clock_ns());
    refuse(accept4, 1, ENFILE);
    int fd = peer_connect(&server);
    (void)fixture_tick(&w);
    uint32_t paused = script_stage(&server);
    (void)fli_add_rlx(&still_ns, FILCH_MILLISECONDS(4));
    (void)fixture_tick(&w);
    uint32_t timed_out = script_stage(&server);
    fli_store_rlx(&still_ns, 0);
    script_ends(&w, &server);
    same(paused, 4);
    same(timed_out, 6);
    same(server.result[2].error, FILCH_EFILES);
    same(server.result[4].error, FILCH_EDEADLINE);
    ok(server.result[6].error);
    close(fd);
    fixture_end(&w);
}

static FLI_ATOMIC(uint32_t) accepting; /* number of accepts that play_accepts_on() has yielded */

/* The process listens and accepts for ever. After a cancel it takes a while to end. */
static filch_err play_accepts_on(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    enum { TO_LISTEN, TO_ACCEPT, TO_SLEEP };
    script *s = me->user;
    if (me->steps == 1) me->note |= filch_yield_listen(out, TO_LISTEN, "127.0.0.1:0", NULL);
    for (size_t i = 0; i < count; i++) {
        bool yields = events[i].type == FILCH_EVENT_YIELD;
        if (events[i].type == FILCH_EVENT_CANCEL) me->note |= filch_yield_sleep(out, TO_SLEEP, FILCH_MILLISECONDS(200));
        if (!yields) continue;
        if (events[i].tag == TO_SLEEP) return filch_done(out, filch_none());
        if (events[i].tag == TO_LISTEN) {
            s->stream = filch_as_stream(&events[i].data);
            me->note |= filch_stream_address(out, s->stream, FILCH_ADDRESS_LOCAL, s->local, sizeof s->local);
        }
        me->note |= filch_yield_accept(out, TO_ACCEPT, s->stream, FILCH_FOREVER);
        (void)fli_add_rel(&accepting, 1);
    }
    return filch_idle(out);
}

TEST(a_listener_in_back_off_does_not_make_stop_spin){ FOR_WORKER_COUNTS({
    script server = SCRIPT(DO_PAUSE);
    server.actor.user = &server;
    fli_store_rlx(&accepting, 0);
    actor_start(&w, &server.actor, play_accepts_on);
    UNTIL(&w, fli_load_acq(&accepting) == 1);
    refuse(accept4, 1, EMFILE);
    int fd = peer_connect(&server);
    UNTIL(&w, fli_load_acq(&accepting) >= 2); /* the first accept has failed, and the listener pauses */
    uint64_t before = fli_load_rlx(&clock_reads), began_ns = fli_clock_ns();
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    /* A worker that spins reads the clock more than a hundred times per millisecond. On a busy machine the stop takes
     * longer than its 200 ms. */
    uint64_t passed_ms = (fli_clock_ns() - began_ns) / FILCH_MILLISECONDS(1);
    assert_in_range(fli_load_rlx(&clock_reads) - before, 0, 1000 + 10 * passed_ms);
    ok(server.actor.note);
    close(fd);
    fixture_begin(&w, FILCH_NO_WORKERS);
}) }

TEST(a_connection_that_the_poller_refuses_is_closed_and_the_next_works){ FOR_WORKER_COUNTS({
    script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_ACCEPT, DO_READ(0));
    char   got;
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    refuse(epoll_ctl, 1, ENOSPC);
    int lost = peer_connect(&server);
    UNTIL(&w, script_stage(&server) == 3);
    same(refused(epoll_ctl), 1);
    same(server.result[2].error, FILCH_ESYS);
    same(recv(lost, &got, 1, 0), 0);
    close(lost);
    int fd = peer_connect(&server);
    same(send(fd, "x", 1, 0), 1);
    script_ends(&w, &server);
    assert_string_equal(server.result[4].bytes, "x");
    close(fd);
}) }

TEST(a_failure_to_create_the_poller_is_reported_and_tried_again_later)
{
    int before = open_descriptors();
    fixture_begin(&w, 1);
    refuse(epoll_create1, 2, EMFILE);
    script s = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_CONNECT("127.0.0.1:9"), DO_LISTEN("127.0.0.1:0"), DO_ADDRESS);
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[0].error, FILCH_ESYS);
    same(s.result[1].error, FILCH_ESYS);
    ok(s.result[2].error);
    fixture_end(&w);
    same(open_descriptors(), before);
}

static filch_err read_address(script *s, filch_out *out)
{
    char text[64];
    return filch_stream_address(out, s->stream, FILCH_ADDRESS_LOCAL, text, sizeof text);
}

TEST(a_failure_of_getsockname_is_an_error)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    script s = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_CALL(read_address), DO_CALL(read_address));
    refuse(getsockname, 1, ENOBUFS);
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[1].error, FILCH_ENOMEM);
    ok(s.result[2].error);
    fixture_end(&w);
}

TEST(signals_without_descriptors_are_refused)
{
    static const int numbers[] = { SIGUSR1 };
    FOR_WORKER_COUNTS({
        script s = SCRIPT(DO_SIGNALS(numbers, 1), DO_SIGNALS(numbers, 1), DO_SIGNALS(numbers, 1));
        int    before = open_descriptors();
        refuse(signalfd, 1, EMFILE);
        refuse(epoll_ctl, 0, 0);
        script_start(&w, &s);
        UNTIL(&w, script_stage(&s) >= 1);
        script_ends(&w, &s);
        same(s.result[0].error, FILCH_EFILES);
        same(s.result[0].number, EMFILE);
        ok(s.result[1].error);
        assert_true(open_descriptors() <= before + 2); /* the only new descriptors are the two of the poller */
        script t = SCRIPT(DO_SIGNALS(numbers, 1), DO_SIGNALS(numbers, 1));
        refuse(epoll_ctl, 1, ENOSPC);
        script_start(&w, &t);
        script_ends(&w, &t);
        same(t.result[0].error, FILCH_ESYS);
        ok(t.result[1].error);
    })
}

/* Yields two signal commands that filch_yield_signals() would refuse: one without signal numbers, and one with too
 * many. */
static filch_err play_bad_signals(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    struct {
        uint32_t mark, how, backlog, text_size, service_size, spare;
        int64_t  number;
        uint64_t byte_count;
        int      numbers[100];
    } signal_request = { .mark = 0xf1, .byte_count = sizeof signal_request.numbers };
    if (me->stage++ == 0) {
        me->note = filch_yield(out, FILCH_CMD_SIGNALS, 1, filch_bytes(&signal_request, sizeof signal_request));
        signal_request.byte_count = 0;
        me->note |= filch_yield(out, FILCH_CMD_SIGNALS, 2,
                                filch_bytes(&signal_request, offsetof(__typeof__(signal_request), numbers)));
        return filch_idle(out);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].error != FILCH_EINVAL) me->note = FILCH_EUSER;
    }
    return me->seen_count < 2 ? filch_idle(out) : filch_done(out, filch_none());
}

TEST(lists_of_signals_that_are_empty_or_too_long_are_refused){ FOR_WORKER_COUNTS({
    actor me = { 0 };
    actor_start(&w, &me, play_bad_signals);
    actor_ends(&w, &me, FILCH_OK);
    ok(me.note);
}) }

/* ---- files ---- */

TEST(a_file_error_in_read_or_seek_is_reported_and_the_file_stays_usable)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/filch-refused-%d", (int)getpid());
    FOR_WORKER_COUNTS({
        script s = SCRIPT(DO_OPEN(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY),
                          DO_WRITE("one\ntwo\n"), DO_SEEK(0, 0), DO_PAUSE, DO_READ(0), DO_UNTIL("\n", 9), DO_PAUSE,
                          DO_WRITE("x"), DO_UNTIL("\n", 9));
        script_start(&w, &s);
        UNTIL(&w, script_stage(&s) == 3);
        refuse(read, 1, EAGAIN); /* some special files return EAGAIN, as this read does */
        ok(filch_send(w.sched, s.actor.pid, filch_none()));
        UNTIL(&w, script_stage(&s) == 6);
        refuse(lseek, 1, EIO);
        ok(filch_send(w.sched, s.actor.pid, filch_none()));
        script_ends(&w, &s);
        same(s.result[4].error, FILCH_ESYS);
        assert_string_equal(s.result[5].bytes, "one\n");
        same(s.result[7].error, FILCH_EIO);
        same(s.result[7].number, EIO);
        assert_string_equal(s.result[8].bytes, "two\n"); /* the failed write wrote nothing, and the failed read lost
                                                          * nothing */
    })
    ok(unlink(path));
}

static const char *const cat[] = { "cat", NULL }, *const sleeps[] = { "sleep", "1000", NULL };
enum { ALL = FILCH_RUN_INPUT | FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS };

TEST(without_pool_threads_files_programs_and_names_report_an_error)
{
    int before = open_descriptors();
    fixture_begin(&w, FILCH_NO_WORKERS);
    refuse(pthread_create, 3, EAGAIN);
    script s = SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ), DO_RUN(cat, ALL), DO_RESOLVE("127.0.0.1", "1"),
                      DO_RESOLVE("127.0.0.1", "1"), DO_OPEN("/dev/null", FILCH_OPEN_READ), DO_READ(0));
    script_start(&w, &s);
    script_ends(&w, &s);
    same(refused(pthread_create), 3);
    for (int i = 0; i < 3; i++) same(s.result[i].error, FILCH_ESYS);
    ok(s.result[3].error);
    same(s.result[5].error, FILCH_EEND);
    fixture_end(&w);
    same(open_descriptors(), before);
}

/* ---- a process ends while a thread of the pool opens a file or starts a program for it ---- */

TEST(an_open_that_ends_after_its_process_leaks_nothing)
{
    int before = open_descriptors();
    for (size_t i = 0; i < 2 * COUNT_OF(worker_counts); i++) {
        bool   fails = i % 2 == 1;
        script s = SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ));
        fixture_begin(&w, worker_counts[i / 2]);
        gate_shut(&opening);
        if (fails) refuse(open, 1, EACCES);
        script_start(&w, &s);
        UNTIL(&w, gate_is_waiting(&opening));
        ok(filch_terminate(w.sched, s.actor.pid));
        script_ends(&w, &s);
        gate_open(&opening);
        fixture_end(&w); /* the stop waits for the thread of the pool that opens the file */
        if (fails) same(refused(open), 1);
    }
    same(open_descriptors(), before);
}

/* Returns true if the program has children that were not waited for. */
static bool has_children(void)
{
    siginfo_t info = { .si_pid = 0 };
    return __real_waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

TEST(a_program_is_killed_if_its_process_ends_while_it_is_started)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        for (uint32_t flags = 0; flags <= ALL; flags += ALL) {
            script s = SCRIPT(DO_RUN(sleeps, flags));
            gate_shut(&spawning);
            script_start(&w, &s);
            UNTIL(&w, gate_is_waiting(&spawning));
            ok(filch_terminate(w.sched, s.actor.pid));
            script_ends(&w, &s);
            gate_open(&spawning);
            UNTIL(&w, !gate_is_waiting(&spawning));
            UNTIL(&w, !has_children());
        }
    })
    same(open_descriptors(), before);
}

TEST(a_program_that_cannot_be_spawned_is_an_error_and_the_next_one_runs)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        script s = SCRIPT(DO_RUN(cat, ALL), DO_RUN(cat, FILCH_RUN_INPUT));
        refuse(posix_spawnp, 1, EAGAIN);
        script_start(&w, &s);
        script_ends(&w, &s);
        same(refused(posix_spawnp), 1);
        same(s.result[0].error, FILCH_EFULL);
        same(s.result[0].number, EAGAIN);
        ok(s.result[1].error);
        UNTIL(&w, !has_children());
    })
    same(open_descriptors(), before);
}

TEST(a_queued_program_is_not_started_after_its_process_has_ended)
{
    int before = open_descriptors();
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.work_threads = 1;
        fixture_begin_with(&w, worker_counts[each], opt);
        script first = SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ)), s = SCRIPT(DO_RUN(sleeps, ALL));
        gate_shut(&opening);
        script_start(&w, &first);
        UNTIL(&w, gate_is_waiting(&opening));    /* the only thread of the pool waits at the gate `opening` */
        refuse(pthread_create, 1000000, EAGAIN); /* the pool cannot start another thread */
        script_start(&w, &s);
        /* the process waits for its job, which is queued */
        UNTIL(&w, fixture_inspect(&w, s.actor.pid).state == FILCH_STATE_IDLE);
        ok(filch_terminate(w.sched, s.actor.pid));
        script_ends(&w, &s);
        refuse(posix_spawnp, 1, EUSERS);
        gate_open(&opening);
        script_ends(&w, &first);
        /* this open is queued behind the job of the ended process */
        script after = SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ));
        script_start(&w, &after);
        script_ends(&w, &after);
        refuse_no_more(pthread_create);
        same(refused(posix_spawnp), 0); /* posix_spawnp was not called */
        refuse_no_more(posix_spawnp);
        fixture_end(&w);
    }
    assert_false(has_children());
    same(open_descriptors(), before);
}

TEST(a_program_with_pipes_that_the_poller_refuses_is_ended)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        script first = SCRIPT(DO_DATAGRAM("127.0.0.1:0")); /* creates the poller */
        script_start(&w, &first);
        script_ends(&w, &first);
        int nth = 0;
        /* the poller refuses registration number `nth`, counted from 0. For a program the runtime registers its pidfd,
         * if the system has pidfds, and its three pipes */
        for (bool struck = true; struck; nth++) {
            script s = SCRIPT(DO_RUN(sleeps, ALL), DO_PAUSE);
            int    without = open_descriptors();
            refuse_after(epoll_ctl, nth, 1, ENOSPC);
            script_start(&w, &s);
            UNTIL(&w, script_stage(&s) == 1);
            struck = refused(epoll_ctl) > 0;
            refuse_no_more(epoll_ctl);
            if (struck)
                UNTIL(&w, open_descriptors() <= without); /* the pipes are closed although the process lives
                                                           * on */
            ok(filch_send(w.sched, s.actor.pid, filch_none()));
            script_ends(&w, &s);
            same(s.result[0].error, struck ? FILCH_ESYS : FILCH_OK);
            UNTIL(&w, !has_children());
        }
        assert_true(nth > 3);
    })
    same(open_descriptors(), before);
}

/* ---- programs that end ---- */

static filch_err kill_unborn(script *s, filch_out *out)
{
    /* An id that is easy to guess: the id that the next stream in this slot will have. */
    return filch_yield_kill(out, TAG_EXTRA, (filch_stream){ s->stream.id + (UINT64_C(1) << 32) }, SIGTERM);
}

static filch_err play_kills_unborn(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    script *s = me->user;
    (void)count;
    switch (me->stage++) {
    case 0: me->note = filch_yield_datagram(out, 0, "127.0.0.1:0", NULL); return filch_wait(out);
    case 1:
        s->stream = filch_as_stream(&events[0].data);
        me->note |= filch_yield_close(out, 0, s->stream);
        return filch_wait(out);
    case 2:
        me->note |= filch_yield_run(out, 1, sleeps, 0);
        me->note |= kill_unborn(s, out);
        return filch_wait(out);
    default:
        if (events[0].tag != TAG_EXTRA) return FILCH_EUSER;
        note(&s->result[0], &events[0]);
        return filch_done(out, filch_none());
    }
}

TEST(a_program_that_has_not_started_cannot_be_killed){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_PAUSE);
    s.actor.user = &s;
    gate_shut(&spawning);
    actor_start(&w, &s.actor, play_kills_unborn);
    actor_ends(&w, &s.actor, FILCH_OK);
    gate_open(&spawning);
    ok(s.actor.note);
    same(s.result[0].error, FILCH_EINVAL);
    UNTIL(&w, !gate_is_waiting(&spawning) && !has_children());
}) }

TEST(the_exit_of_a_program_that_the_host_has_reaped_completes){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_RUN(cat, FILCH_RUN_INPUT), DO_PAUSE, DO_EXIT, DO_KILL(SIGTERM));
    script_start(&w, &s);
    UNTIL(&w, script_stage(&s) == 1);
    ok(kill((pid_t)s.program.pid, SIGKILL));
    same(waitpid((pid_t)s.program.pid, NULL, 0), s.program.pid);
    ok(filch_send(w.sched, s.actor.pid, filch_none()));
    script_ends(&w, &s);
    /* the exit status is known on Linux 6.15 and later, where a pidfd keeps it after the program was reaped */
    bool known = s.result[2].error == FILCH_OK;
    if (!known) same(s.result[2].error, FILCH_ESYS);
    same(s.result[2].number, known ? -SIGKILL : ECHILD);
    same(s.result[3].error, FILCH_ESYS);
    same(s.result[3].number, ESRCH);
}) }

/* If a program takes long to end, a thread of the pool waits for it, or the calling thread if there is no memory for a
 * job. */
TEST(a_program_that_ends_slowly_is_reaped)
{
    FOR_WORKER_COUNTS({
        for (int no_memory = 0; no_memory <= 1; no_memory++) {
            script s = SCRIPT(DO_RUN(sleeps, 0), DO_EXIT);
            script_start(&w, &s);
            UNTIL(&w, script_stage(&s) == 1);
            ok(kill((pid_t)s.program.pid, 0));
            fli_store_rlx(&still_dying, 3);
            if (w.ticks) fli_store_rlx(&w.deny, no_memory != 0);
            ok(filch_terminate(w.sched, s.actor.pid));
            script_ends(&w, &s);
            fli_store_rlx(&w.deny, false);
            fli_store_rlx(&still_dying, 0);
            UNTIL(&w, !has_children());
        }
    })
}

/* ---- a stop while calls on the thread pool are outstanding ---- */

/* The process yields an open, a run and a resolve in its first step, and one more of each on the cancel. Then it opens
 * the gate, at which the only thread of the pool waits. It ends when all six yields are completed. */
static filch_err play_wants_more(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->steps == 1 || has_cancel(events, count)) {
        me->note |= filch_yield_open(out, 1, "/dev/null", FILCH_OPEN_READ);
        me->note |= filch_yield_run(out, 2, cat, ALL);
        me->note |= filch_yield_resolve(out, 3, "127.0.0.1", NULL);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        me->stage++;
        me->note |= events[i].error;
    }
    if (has_cancel(events, count)) gate_open(&opening);
    return me->stage < 6 ? filch_idle(out) : filch_done(out, filch_none());
}

TEST(queued_and_late_pool_jobs_are_done_before_stop_returns)
{
    int before = open_descriptors();
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.work_threads = 1;
        fixture_begin_with(&w, worker_counts[each], opt);
        script first = SCRIPT(DO_OPEN("/dev/null", FILCH_OPEN_READ));
        actor  me = { 0 };
        gate_shut(&opening);
        script_start(&w, &first);
        UNTIL(&w, gate_is_waiting(&opening));
        /* no thread can be started, so the pool has only the thread that waits at the gate */
        refuse(pthread_create, 1000000, EAGAIN);
        actor_start(&w, &me, play_wants_more);
        UNTIL(&w, fixture_inspect(&w, me.pid).state == FILCH_STATE_IDLE);
        ok(filch_terminate(w.sched, first.actor.pid));
        script_ends(&w, &first);
        fixture_end(&w);
        refuse_no_more(pthread_create);
        same(me.exit_error, FILCH_OK);
        ok(me.note);
        same(me.stage, 6);
        same(open_descriptors(), before);
    }
}

TEST(a_program_that_ends_slowly_is_reaped_before_stop_returns)
{
    FOR_WORKER_COUNTS({
        script s = SCRIPT(DO_RUN(sleeps, FILCH_RUN_INPUT), DO_EXIT);
        script_start(&w, &s);
        UNTIL(&w, script_stage(&s) == 1);
        fli_store_rlx(&still_dying, 2);
        ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
        fli_store_rlx(&still_dying, 0);
        assert_false(has_children());
        filch_drop(&s.last);
        fixture_begin(&w, FILCH_NO_WORKERS);
    })
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accept_without_descriptors_fails_and_backs_off_up_to_a_second),
        cmocka_unit_test(a_listener_in_back_off_still_times_out),
        cmocka_unit_test(a_listener_in_back_off_does_not_make_stop_spin),
        cmocka_unit_test(a_connection_that_the_poller_refuses_is_closed_and_the_next_works),
        cmocka_unit_test(a_failure_to_create_the_poller_is_reported_and_tried_again_later),
        cmocka_unit_test(a_failure_of_getsockname_is_an_error),
        cmocka_unit_test(signals_without_descriptors_are_refused),
        cmocka_unit_test(lists_of_signals_that_are_empty_or_too_long_are_refused),
        cmocka_unit_test(a_file_error_in_read_or_seek_is_reported_and_the_file_stays_usable),
        cmocka_unit_test(without_pool_threads_files_programs_and_names_report_an_error),
        cmocka_unit_test(an_open_that_ends_after_its_process_leaks_nothing),
        cmocka_unit_test(a_program_is_killed_if_its_process_ends_while_it_is_started),
        cmocka_unit_test(a_program_that_cannot_be_spawned_is_an_error_and_the_next_one_runs),
        cmocka_unit_test(a_queued_program_is_not_started_after_its_process_has_ended),
        cmocka_unit_test(a_program_with_pipes_that_the_poller_refuses_is_ended),
        cmocka_unit_test(a_program_that_has_not_started_cannot_be_killed),
        cmocka_unit_test(the_exit_of_a_program_that_the_host_has_reaped_completes),
        cmocka_unit_test(a_program_that_ends_slowly_is_reaped),
        cmocka_unit_test(queued_and_late_pool_jobs_are_done_before_stop_returns),
        cmocka_unit_test(a_program_that_ends_slowly_is_reaped_before_stop_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
