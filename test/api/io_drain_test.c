/* io_drain_test.c - files and sockets while a scheduler stops: state is saved, writes under way are finished or
 * counted, and no connection is accepted any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

static struct {
    FLI_ATOMIC(uint64_t) read, accepted, cancels;
    FLI_ATOMIC(bool)     begun, listens;
    test_alloc           alloc;
    char                 path[64];
} seen;

static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 3 };
#define EACH_WORKER_COUNT(w) for (size_t w = 0; w < sizeof worker_counts / sizeof *worker_counts; w++)

static filch_sched *begin(int32_t workers)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    memset(&seen, 0, sizeof seen);
    snprintf(seen.path, sizeof seen.path, "/tmp/filch-drain-%d", (int)getpid());
    (void)unlink(seen.path);
    options.workers = workers;
    options.alloc = test_alloc_fn;
    options.alloc_user = &seen.alloc;
    ok(filch_sched_create(&sched, &options));
    return sched;
}

static void start(filch_sched *sched, const filch_type *type)
{
    ok(filch_spawn(sched, type, NULL, NULL));
}

/* If the scheduler has no workers, runs it for a while. Otherwise does nothing. */
static void turn(filch_sched *sched, int32_t workers)
{
    if (workers < 0) ok(filch_tick(sched, 0, NULL));
}

/* ---- a process that saves its state when a stop cancels it, and a write that goes on during a stop ---- */

#define SNAPSHOT_SIZE 300000

typedef struct saver {
    filch_stream file;
} saver;

/* On a cancel the process opens a file, writes all of its state to the file, and closes the file. */
static filch_err saver_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    saver *me = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) {
            ok(filch_yield_open(out, 1, seen.path, FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY));
        } else if (events[i].type == FILCH_EVENT_YIELD && events[i].error != FILCH_OK) {
            return events[i].error;
        } else if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 1) {
            me->file = filch_as_stream(&events[i].data);
            char *bytes = malloc(SNAPSHOT_SIZE);
            if (bytes == NULL) return FILCH_ENOMEM;
            memset(bytes, 's', SNAPSHOT_SIZE);
            ok(filch_yield_write(out, 2, me->file, filch_move(bytes, SNAPSHOT_SIZE, NULL), FILCH_FOREVER));
        } else if (events[i].type == FILCH_EVENT_YIELD) {
            fli_store_rlx(&seen.read, (uint64_t)filch_as_int(&events[i].data));
            return filch_done(out, filch_none());
        }
    }
    return filch_idle(out);
}

static const filch_type saver_type = { .name = "saver", .size = sizeof(saver), .step = saver_step };

TEST(a_snapshot_is_written_to_a_file_during_a_stop)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        start(sched, &saver_type);
        filch_report report = FILCH_REPORT_INIT;
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), &report));
        assert_true(report.writes == 0 && report.ended == 1);
        filch_report_free(&report);
        same(fli_load_rlx(&seen.read), SNAPSHOT_SIZE);
        FILE *file = fopen(seen.path, "rb");
        assert_non_null(file);
        size_t n = 0;
        for (int c; (c = fgetc(file)) == 's';) n++;
        same(n, SNAPSHOT_SIZE);
        (void)fclose(file);
        (void)unlink(seen.path);
        test_alloc_balanced(&seen.alloc);
    }
}

/* ---- sockets ---- */

#define REPLY_SIZE 8000000

/* State of a process that accepts one connection, sends a large reply, and ends when the reply is written. The process
 * ignores a cancel. */
typedef struct replier {
    filch_stream listener, peer;
    bool         asked;
} replier;

static filch_err reply(replier *me, filch_out *out)
{
    char *bytes = calloc(1, REPLY_SIZE);
    if (bytes == NULL) return FILCH_ENOMEM;
    fli_add_rlx(&seen.accepted, 1);
    ok(filch_yield_write(out, 3, me->peer, filch_move(bytes, REPLY_SIZE, NULL), FILCH_FOREVER));
    ok(filch_yield_accept(out, 2, me->listener, FILCH_FOREVER));
    fli_store_rel(&seen.begun, true);
    return FILCH_OK;
}

static filch_err replier_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    replier *me = self;
    if (count == 0) {
        char address[80];
        snprintf(address, sizeof address, "unix:%s", seen.path);
        ok(filch_yield_listen(out, 1, address, NULL));
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) fli_add_rlx(&seen.cancels, 1);
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        if (events[i].error != FILCH_OK) return events[i].error;
        switch (events[i].tag) {
        case 1:
            me->listener = filch_as_stream(&events[i].data);
            ok(filch_yield_accept(out, 2, me->listener, FILCH_FOREVER));
            fli_store_rel(&seen.listens, true);
            break;
        case 2: {
            me->peer = filch_as_stream(&events[i].data);
            filch_err err = reply(me, out);
            if (err != FILCH_OK) return err;
            break;
        }
        default: return filch_done(out, filch_none());
        }
    }
    return filch_idle(out);
}

static const filch_type replier_type = { .name = "replier", .size = sizeof(replier), .step = replier_step };

static int dial(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int                fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", seen.path);
    same(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

typedef struct client {
    filch_sched *sched;
    int          fd;
    uint64_t     got;
    fli_thread   thread;
} client;

/* Thread of a client. It waits until the stop has begun (the scheduler refuses calls of foreign threads). Then it makes
 * a second connection, which must not be accepted, and reads the reply from the first connection. */
static void read_late(void *arg)
{
    client *c = arg;
    char    bytes[65536];
    while (!filch_sched_stopping(c->sched)) yield_slice();
    int second = dial();
    for (ssize_t n; (n = read(c->fd, bytes, sizeof bytes)) > 0;) c->got += (uint64_t)n;
    (void)close(second);
}

static filch_sched *reply_begun(int32_t workers, int *fd)
{
    filch_sched *sched = begin(workers);
    start(sched, &replier_type);
    turn(sched, workers);
    until(fli_load_acq(&seen.listens));
    *fd = dial();
    if (workers < 0) until(filch_tick(sched, 0, NULL) == FILCH_OK && fli_load_acq(&seen.begun));
    until(fli_load_acq(&seen.begun));
    return sched;
}

TEST(during_a_stop_a_begun_reply_arrives_whole_and_no_accept_succeeds)
{
    EACH_WORKER_COUNT(w)
    {
        client c = { .got = 0 };
        c.sched = reply_begun(worker_counts[w], &c.fd);
        ok(fli_thread_start(&c.thread, "client", read_late, &c));
        filch_report report = FILCH_REPORT_INIT;
        ok(filch_sched_close(c.sched, FILCH_SECONDS(60), &report));
        fli_thread_join(&c.thread);
        same(c.got, REPLY_SIZE);
        same(fli_load_rlx(&seen.accepted), 1);
        same(fli_load_rlx(&seen.cancels), 1);
        same(report.writes, 0);
        filch_report_free(&report);
        ok(filch_sched_stop(c.sched, 0, NULL));
        (void)close(c.fd);
        (void)unlink(seen.path);
        test_alloc_balanced(&seen.alloc);
    }
}

TEST(a_reply_that_is_not_read_is_counted_as_cut)
{
    EACH_WORKER_COUNT(w)
    {
        int          fd;
        char         first;
        filch_sched *sched = reply_begun(worker_counts[w], &fd);
        filch_report report = FILCH_REPORT_INIT;
        /* the step has requested the write; waits until a part of the reply is written */
        until(recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
        same(filch_sched_stop(sched, FILCH_MILLISECONDS(20), &report), FILCH_EDEADLINE);
        assert_true(report.forced == 1 && report.writes == 1 && report.loss_count == 1);
        assert_true(report.bytes > 0 && report.bytes < REPLY_SIZE);
        same(report.losses[0].pid.serial, report.stragglers[0].pid.serial);
        same(report.losses[0].writes, 1);
        same(report.losses[0].bytes, report.bytes);
        assert_string_equal(report.losses[0].name, "replier");
        filch_report_free(&report);
        (void)close(fd);
        (void)unlink(seen.path);
        test_alloc_balanced(&seen.alloc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_written_to_a_file_during_a_stop),
        cmocka_unit_test(during_a_stop_a_begun_reply_arrives_whole_and_no_accept_succeeds),
        cmocka_unit_test(a_reply_that_is_not_read_is_counted_as_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
