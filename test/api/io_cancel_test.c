/* io_cancel_test.c - filch_yield_tag_cancel: yields without a stream are cancelled by their tag. Each yield completes
 * once, the call that it waited for is not interrupted, and nothing that the call opens later stays open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/io_script.h"
#include "port/net.h"
#include "port/program.h"
#include "support/alloc.h"
#include "support/gate.h"
#include "support/until.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

/* ---- replaced blocking calls, which wait while the gate is shut ---- */

static gate door;

filch_err __real_fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size);
filch_err __wrap_fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size);
filch_err __wrap_fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size)
{
    (void)host;
    gate_pass(&door);
    return __real_fli_net_resolve("127.0.0.1", service, text, room, size);
}

int __real_fli_program_start(const fli_program_plan *plan, fli_program *out);
int __wrap_fli_program_start(const fli_program_plan *plan, fli_program *out);
int __wrap_fli_program_start(const fli_program_plan *plan, fli_program *out)
{
    gate_pass(&door);
    return __real_fli_program_start(plan, out);
}

/* While the gate `door` is shut, this replacement reports that a connect has not been answered yet. */
int __real_fli_net_connected(int fd);
int __wrap_fli_net_connected(int fd);
int __wrap_fli_net_connected(int fd)
{
    return gate_is_open(&door) ? __real_fli_net_connected(fd) : -EAGAIN;
}

int __real_fli_net_connect(const fli_address *address, uint32_t flags, bool *pending);
int __wrap_fli_net_connect(const fli_address *address, uint32_t flags, bool *pending);
int __wrap_fli_net_connect(const fli_address *address, uint32_t flags, bool *pending)
{
    int fd = __real_fli_net_connect(address, flags, pending);
    if (!gate_is_open(&door)) *pending = true;
    return fd;
}

/* ---- caller: a process that yields in its first step, and at a message cancels the yields with the tag in it ---- */

enum { CANCEL_TAG = 1000, OTHER_TAG = 2000 };

typedef struct caller {
    actor actor;
    void (*make_yields)(filch_out *out, struct caller *c);
    const char *text;
    int         fd;
    /* true: at its cancel the process cancels the yields with tag 1; after three completions opens `door` and ends */
    bool                 in_stop;
    filch_out           *kept;
    sighting             seen[SIGHTINGS_MAX]; /* the completions */
    uint32_t             seen_count;
    FLI_ATOMIC(uint32_t) completions; /* number of completions in `seen` that the test may read */
    /* Number of writes by which the test lets a poll complete. Orders the test's reads of `seen` before the next step,
     * which a thread sanitizer cannot learn from the descriptor. */
    FLI_ATOMIC(uint32_t) writes;
} caller;

static void see(caller *c, const filch_event *event)
{
    (void)fli_load_acq(&c->writes);
    c->seen[c->seen_count++] =
        (sighting){ .error = event->error, .tag = event->tag, .number = filch_as_int(&event->data) };
}

/* Writes a byte to `fd`, so that the polls of its other end complete. */
static void write_byte(caller *c, int fd)
{
    fli_add_rel(&c->writes, 1);
    ok(write(fd, "x", 1) == 1 ? FILCH_OK : FILCH_EIO);
}

static filch_err play_caller(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    caller  *c = me->user;
    uint32_t completed = 0;
    bool     cancel = has_cancel(events, count);
    if (me->steps == 1) {
        c->kept = out;
        c->make_yields(out, c);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE)
            me->note |= filch_yield_tag_cancel(out, CANCEL_TAG, (uint64_t)filch_as_int(&events[i].data));
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        see(c, &events[i]);
        completed++;
    }
    uint32_t all = fli_add_rel(&c->completions, completed) + completed;
    if (cancel && !c->in_stop) return filch_done(out, filch_none());
    if (cancel) me->note |= filch_yield_tag_cancel(out, CANCEL_TAG, 1);
    if (!c->in_stop || all < 3) return filch_idle(out);
    gate_open(&door);
    return filch_done(out, filch_none());
}

static void start(caller *c)
{
    c->actor.user = c;
    actor_start(&w, &c->actor, play_caller);
}

static void cancel_tag(caller *c, int64_t tag)
{
    ok(filch_send(w.sched, c->actor.pid, filch_int(tag)));
}

static bool has_completed(caller *c, uint32_t count)
{
    return fli_load_acq(&c->completions) == count;
}

static void finish(caller *c)
{
    ok(filch_cancel(w.sched, c->actor.pid));
    actor_ends(&w, &c->actor, FILCH_OK);
    ok(c->actor.note);
}

/* Returns the completion number `nth` (0: the first) with `tag`. */
static const sighting *completion(caller *c, uint64_t tag, uint32_t nth)
{
    uint32_t count = fli_load_acq(&c->completions);
    for (uint32_t i = 0; i < count; i++) {
        if (c->seen[i].tag == tag && nth-- == 0) return &c->seen[i];
    }
    fail_msg("no such completion: tag %d", (int)tag);
    return NULL;
}

/* Checks the completion number `nth` of the tag 1: cancelled, with `data`. */
static void is_cancelled(caller *c, uint32_t nth, int64_t data)
{
    same(completion(c, 1, nth)->error, FILCH_ECANCELLED);
    same(completion(c, 1, nth)->number, data);
}

/* Checks the completion number `nth` of a tag cancel: it has cancelled `count` yields. */
static void has_cancelled(caller *c, uint32_t nth, int64_t count)
{
    same(completion(c, CANCEL_TAG, nth)->error, FILCH_OK);
    same(completion(c, CANCEL_TAG, nth)->number, count);
}

/* ---- cancels of operations that have begun and hang ---- */

static char fifo[64];

static void make_fifo(void)
{
    snprintf(fifo, sizeof fifo, "/tmp/filch-io-cancel-%d", (int)getpid());
    (void)unlink(fifo);
    ok(mkfifo(fifo, 0600));
}

static void yield_open(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_open(out, 1, c->text, FILCH_OPEN_READ);
}

TEST(an_open_of_a_fifo_can_be_cancelled_and_leaves_no_descriptor)
{
    make_fifo();
    FOR_WORKER_COUNTS({
        int    before = open_descriptors();
        caller c = { .make_yields = yield_open, .text = fifo };
        start(&c);
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 2));
        has_cancelled(&c, 0, 1);
        same(completion(&c, 1, 0)->error, FILCH_ECANCELLED);
        cancel_tag(&c, 1); /* the open is cancelled already, so this cancels no yield */
        UNTIL(&w, has_completed(&c, 3));
        has_cancelled(&c, 1, 0);
        int fd = open(fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK); /* lets the open of the FIFO return, if it has begun */
        UNTIL(&w, open_descriptors() <= before + 1);
        finish(&c);
        close(fd);
    })
    ok(unlink(fifo));
}

static void yield_resolve(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_resolve(out, 1, "name", "80");
}

TEST(a_name_lookup_that_hangs_can_be_cancelled)
{
    FOR_WORKER_COUNTS({
        caller c = { .make_yields = yield_resolve };
        gate_shut(&door);
        start(&c);
        UNTIL(&w, gate_is_waiting(&door));
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 2));
        has_cancelled(&c, 0, 1);
        is_cancelled(&c, 0, 0);
        gate_open(&door);
        UNTIL(&w, fixture_stats(&w).late_completions == 1); /* the result of the lookup is dropped */
        finish(&c);
    })
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

static void yield_run(filch_out *out, caller *c)
{
    static const char *const sleeps[] = { "sleep", "1000", NULL };
    c->actor.note |= filch_yield_run(out, 1, sleeps, FILCH_RUN_INPUT | FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS);
}

TEST(a_program_whose_start_was_cancelled_is_killed_if_it_starts)
{
    FOR_WORKER_COUNTS({
        caller first = { .make_yields = yield_run }, c = first;
        start(&first);
        UNTIL(&w, has_completed(&first, 1));
        finish(&first);
        UNTIL(&w, !has_children());
        int before = open_descriptors(); /* the poller exists already, so its descriptors are in `before` */
        gate_shut(&door);
        start(&c);
        UNTIL(&w, gate_is_waiting(&door));
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 2));
        has_cancelled(&c, 0, 1);
        is_cancelled(&c, 0, 0);
        gate_open(&door);
        UNTIL(&w, fixture_stats(&w).late_completions > 0);
        UNTIL(&w, !has_children() && open_descriptors() <= before);
        finish(&c);
    })
}

/* ---- cancels of functions of the program: running ones and queued ones ---- */

static FLI_ATOMIC(uint32_t) called, freed;

static void count_freed(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    fli_add_acqrel(&freed, 1);
}

static filch_err hang(void *arg, filch_data *answer)
{
    (void)arg;
    fli_add_acqrel(&called, 1);
    gate_pass(&door);
    return filch_share(malloc(100), 100, count_freed, NULL, answer);
}

static void yield_three_functions(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_work(out, 1, hang, NULL);
    c->actor.note |= filch_yield_work_within(out, 1, hang, NULL, FILCH_SECONDS(3600));
    c->actor.note |= filch_yield_work(out, 2, hang, NULL);
}

static void begin_with_one_thread(int32_t workers)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.work_threads = 1;
    fli_store_rlx(&called, 0);
    fli_store_rlx(&freed, 0);
    gate_shut(&door);
    fixture_begin_with(&w, workers, opt);
}

TEST(a_queued_function_that_was_cancelled_is_never_called)
{
    for (size_t i = 0; i < COUNT_OF(worker_counts); i++) {
        begin_with_one_thread(worker_counts[i]);
        caller c = { .make_yields = yield_three_functions };
        start(&c);
        UNTIL(&w, gate_is_waiting(&door)); /* the first function runs, two are queued */
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 3));
        has_cancelled(&c, 0, 2);
        int64_t never_begins = completion(&c, 1, 0)->number + completion(&c, 1, 1)->number;
        same(never_begins, 1);             /* 1 only for the queued function, 0 for the running one */
        same(fixture_stats(&w).timers, 0); /* the timer of its deadline was removed */
        gate_open(&door);
        UNTIL(&w, has_completed(&c, 4));
        same(completion(&c, 2, 0)->error, FILCH_OK);
        same(fli_load_acq(&called), 2);
        finish(&c);
        fixture_end(&w);
        same(fli_load_acq(&freed), 2);
    }
}

static void yield_late_function(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_work(out, 2, hang, NULL);
    c->actor.note |= filch_yield_work_within(out, 1, hang, NULL, 1);
}

TEST(a_cancel_after_the_deadline_does_not_take_the_function_from_its_queue)
{
    begin_with_one_thread(2);
    caller c = { .make_yields = yield_late_function };
    start(&c);
    UNTIL(&w, has_completed(&c, 1));
    same(completion(&c, 1, 0)->error, FILCH_EDEADLINE);
    cancel_tag(&c, 1);
    UNTIL(&w, has_completed(&c, 2));
    has_cancelled(&c, 0, 0);
    gate_open(&door);
    UNTIL(&w, fli_load_acq(&called) == 2);
    UNTIL(&w, has_completed(&c, 3));
    finish(&c);
    fixture_end(&w);
}

TEST(yields_can_be_cancelled_during_a_stop)
{
    for (size_t i = 0; i < COUNT_OF(worker_counts); i++) {
        begin_with_one_thread(worker_counts[i]);
        caller c = { .make_yields = yield_three_functions, .in_stop = true };
        start(&c);
        UNTIL(&w, gate_is_waiting(&door));
        fixture_end(&w); /* succeeds, because the process opens the gate `door` when its yields are cancelled */
        same(fli_load_acq(&c.actor.exits), 1);
        ok(c.actor.exit_error);
        ok(c.actor.note);
        has_cancelled(&c, 0, 2);
        filch_drop(&c.actor.result);
    }
}

/* ---- which yields the cancel of a tag cancels ---- */

static void yield_several(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_resolve(out, 1, "name", "80");
    c->actor.note |= filch_yield_poll(out, 1, c->fd, FILCH_POLL_IN, FILCH_FOREVER);
    c->actor.note |= filch_yield_connect(out, 1, c->text, NULL);
    c->actor.note |= filch_yield_poll(out, 2, c->fd, FILCH_POLL_IN, FILCH_FOREVER);
    /* the sleep is the last yield: when its timer is armed, the yields before it have begun */
    c->actor.note |= filch_yield_sleep(out, 1, FILCH_SECONDS(3600));
}

/* Returns a listening socket, which accepts nothing, and stores its address as text. */
static int listen_for_connections(char *text, size_t room)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          size = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ok(bind(fd, (struct sockaddr *)&at, sizeof at) | listen(fd, 8) | getsockname(fd, (struct sockaddr *)&at, &size));
    snprintf(text, room, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

TEST(all_yields_with_the_tag_are_cancelled_but_no_sleep_and_no_yield_of_another_process)
{
    FOR_WORKER_COUNTS({
        int  ends[2];
        char address[64];
        int  listener = listen_for_connections(address, sizeof address);
        ok(pipe2(ends, O_CLOEXEC));
        caller c = { .make_yields = yield_several, .text = address, .fd = ends[0] }, other = c;
        gate_shut(&door);
        start(&other);
        UNTIL(&w, fixture_stats(&w).timers == 1);
        int before = open_descriptors(); /* includes the descriptors of the poller and of `other` */
        start(&c);
        cancel_tag(&c, 3); /* no yield has this tag */
        UNTIL(&w, has_completed(&c, 1));
        has_cancelled(&c, 0, 0);
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 5));
        has_cancelled(&c, 1, 3);
        for (uint32_t i = 0; i < 3; i++) same(completion(&c, 1, i)->error, FILCH_ECANCELLED);
        same(fixture_stats(&w).timers, 2);           /* both sleeps go on */
        UNTIL(&w, open_descriptors() == before + 1); /* the poll with the tag 2 goes on */
        assert_true(has_completed(&other, 0));
        gate_open(&door);
        write_byte(&c, ends[1]);
        UNTIL(&w, has_completed(&c, 6));
        same(completion(&c, 2, 0)->error, FILCH_OK);
        UNTIL(&w, fli_load_acq(&other.completions) >= 3); /* lookup and both polls of `other`; its connect may hang */
        finish(&c);
        finish(&other);
        close(listener);
        close(ends[0]);
        close(ends[1]);
    })
}

static void yield_in_order(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_poll(out, 1, c->fd, FILCH_POLL_IN, 0); /* completes at once */
    c->actor.note |= filch_yield_poll(out, 1, c->fd, FILCH_POLL_IN, FILCH_FOREVER);
    c->actor.note |= filch_yield_tag_cancel(out, CANCEL_TAG, 1);
    c->actor.note |= filch_yield_poll(out, 1, c->fd, FILCH_POLL_IN, FILCH_FOREVER);
}

TEST(a_cancel_is_for_the_earlier_yields_of_a_step_that_are_not_completed)
{
    FOR_WORKER_COUNTS({
        int    ends[2];
        caller c = { .make_yields = yield_in_order };
        ok(pipe2(ends, O_CLOEXEC));
        c.fd = ends[0];
        start(&c);
        UNTIL(&w, has_completed(&c, 3));
        same(completion(&c, 1, 0)->error, FILCH_EDEADLINE);
        same(completion(&c, 1, 1)->error, FILCH_ECANCELLED);
        has_cancelled(&c, 0, 1);
        write_byte(&c, ends[1]);
        UNTIL(&w, has_completed(&c, 4));
        same(completion(&c, 1, 2)->error, FILCH_OK);
        same(completion(&c, 1, 2)->number, FILCH_POLL_IN);
        finish(&c);
        close(ends[0]);
        close(ends[1]);
    })
}

static void yield_many_polls(filch_out *out, caller *c)
{
    for (int i = 0; i < 50; i++) c->actor.note |= filch_yield_poll(out, 1, c->fd, FILCH_POLL_IN, FILCH_FOREVER);
}

TEST(fifty_polls_with_one_tag_are_cancelled)
{
    FOR_WORKER_COUNTS({
        int    ends[2];
        caller c = { .make_yields = yield_many_polls };
        ok(pipe2(ends, O_CLOEXEC));
        c.fd = ends[0];
        start(&c);
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 51));
        has_cancelled(&c, 0, 50);
        finish(&c);
        close(ends[0]);
        close(ends[1]);
    })
}

static void yield_stat(filch_out *out, caller *c)
{
    c->actor.note |= filch_yield_stat(out, 1, c->text, 0);
}

TEST(a_cancel_after_the_completion_finds_nothing)
{
    FOR_WORKER_COUNTS({
        caller c = { .make_yields = yield_stat, .text = "/" };
        start(&c);
        UNTIL(&w, has_completed(&c, 1));
        ok(completion(&c, 1, 0)->error);
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 2));
        has_cancelled(&c, 0, 0);
        finish(&c);
    })
}

/* Opens the FIFO and reads it with the tag 1. Message 1 cancels the read by the tag, message 2 by the stream. */
static filch_err play_reader(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    caller  *c = me->user;
    uint32_t completed = 0;
    if (me->steps == 1) me->note = filch_yield_open(out, 5, fifo, FILCH_OPEN_READ | FILCH_OPEN_WRITE);
    for (size_t i = 0; i < count; i++) {
        filch_stream stream = { (uint64_t)me->stage };
        int64_t      number = filch_as_int(&events[i].data);
        if (events[i].type == FILCH_EVENT_YIELD) {
            see(c, &events[i]);
            completed++;
        }
        if (events[i].type == FILCH_EVENT_MESSAGE)
            me->note |= number == 1 ? filch_yield_tag_cancel(out, CANCEL_TAG, 1)
                                    : filch_yield_io_cancel(out, OTHER_TAG, stream);
        if (events[i].type != FILCH_EVENT_YIELD || events[i].tag != 5) continue;
        me->stage = number;
        me->note |= filch_yield_read(out, 1, filch_as_stream(&events[i].data), 0, FILCH_FOREVER);
    }
    fli_add_rel(&c->completions, completed);
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(a_read_of_an_open_file_is_cancelled_by_its_stream_only)
{
    make_fifo();
    FOR_WORKER_COUNTS({
        caller c = { .fd = -1 };
        c.actor.user = &c;
        actor_start(&w, &c.actor, play_reader);
        UNTIL(&w, has_completed(&c, 1));
        cancel_tag(&c, 1);
        UNTIL(&w, has_completed(&c, 2));
        has_cancelled(&c, 0, 0);
        cancel_tag(&c, 2);
        UNTIL(&w, has_completed(&c, 4));
        is_cancelled(&c, 0, 0);
        same(completion(&c, OTHER_TAG, 0)->number, 1);
        int fd = open(fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        ok(write(fd, "x", 1) == 1 ? FILCH_OK : FILCH_EIO); /* lets the read return */
        finish(&c);
        close(fd);
    })
    ok(unlink(fifo));
}

TEST(a_cancel_outside_of_the_step_is_refused)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    caller c = { .make_yields = yield_stat, .text = "/" };
    start(&c);
    UNTIL(&w, has_completed(&c, 1));
    same(filch_yield_tag_cancel(c.kept, 1, 1), FILCH_ESTATE);
    same(filch_yield_tag_cancel(NULL, 1, 1), FILCH_EINVAL);
    finish(&c);
    fixture_end(&w);
}

/* ---- a cancel at the same time as the result, and a cancel without memory ---- */

static void yield_to_race(filch_out *out, caller *c)
{
    for (int i = 0; i < 6; i++) c->actor.note |= filch_yield_open(out, 1, "/etc/passwd", FILCH_OPEN_READ);
    for (int i = 0; i < 3; i++) c->actor.note |= filch_yield_resolve(out, 1, "name", "80");
    for (int i = 0; i < 3; i++) c->actor.note |= filch_yield_work(out, 1, hang, NULL);
}

TEST(a_yield_completes_once_however_late_its_cancel_comes)
{
    gate_open(&door);
    FOR_WORKER_COUNTS({
        int before = open_descriptors();
        for (uint32_t round = 0; round < fixture_scale(300, 10); round++) {
            caller c = { .make_yields = yield_to_race };
            start(&c);
            for (uint32_t i = 0; i < round % 50; i++) fixture_turn(&w);
            cancel_tag(&c, 1);
            UNTIL(&w, has_completed(&c, 13));
            int64_t cancelled = 0;
            for (uint32_t i = 0; i < 12; i++) {
                filch_err err = completion(&c, 1, i)->error;
                if (err != FILCH_OK) same(err, FILCH_ECANCELLED);
                cancelled += err == FILCH_ECANCELLED;
            }
            has_cancelled(&c, 0, cancelled);
            finish(&c);
        }
        UNTIL(&w, open_descriptors() <= before);
    })
}

static void yield_without_memory(filch_out *out, caller *c)
{
    filch_err err = filch_yield_open(out, 1, c->text, FILCH_OPEN_READ);
    if (err == FILCH_OK) err = filch_yield_work_within(out, 1, hang, NULL, FILCH_SECONDS(3600));
    if (err == FILCH_OK) err = filch_yield_stat(out, 1, "/", 0);
    if (err == FILCH_OK) err = filch_yield_tag_cancel(out, CANCEL_TAG, 1);
    c->actor.note = err;
}

static filch_err play_without_memory(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    caller *c = me->user;
    (void)events;
    if (me->steps == 1) yield_without_memory(out, c);
    if (me->note != FILCH_OK) return filch_done(out, filch_none());
    fli_add_rel(&c->completions, (uint32_t)count);
    return fli_load_rlx(&c->completions) == 4 ? filch_done(out, filch_none()) : filch_wait(out);
}

TEST(a_cancel_without_memory_leaks_nothing_and_hangs_nothing)
{
    bool refused = true;
    gate_open(&door);
    for (uint64_t nth = 1; refused; nth++) {
        static test_alloc alloc;
        filch_options     opt = FILCH_OPTIONS_INIT;
        caller            c = { .text = "/etc/passwd" };
        int               before = open_descriptors();
        memset(&alloc, 0, sizeof alloc);
        w = (fixture){ .ticks = true };
        opt.workers = FILCH_NO_WORKERS;
        opt.alloc = test_alloc_fn;
        opt.alloc_user = &alloc;
        ok(filch_sched_create(&w.sched, &opt));
        c.actor.user = &c;
        actor_start(&w, &c.actor, play_without_memory);
        test_alloc_fail(&alloc, nth, true);
        UNTIL(&w, is_over(&c.actor));
        refused = atomic_load(&alloc.refused) > 0;
        test_alloc_fail(&alloc, 0, false);
        if (c.actor.note != FILCH_OK) same(c.actor.note, FILCH_ENOMEM);
        filch_drop(&c.actor.result);
        ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
        test_alloc_balanced(&alloc);
        same(open_descriptors(), before);
    }
}

/* ---- in a simulation ---- */

typedef struct simulated {
    uint32_t steps, completed, cancelled;
    int64_t  count;
} simulated;

static filch_err answer(void *arg, filch_data *data)
{
    (void)arg;
    *data = filch_int(7);
    return FILCH_OK;
}

static filch_err step_simulated(void *self, const filch_event *events, size_t count, filch_out *out)
{
    simulated *me = self;
    filch_err  err = FILCH_OK;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        me->completed++;
        if (events[i].tag == CANCEL_TAG) me->count += filch_as_int(&events[i].data);
        else if (events[i].error == FILCH_ECANCELLED) me->cancelled++;
        else if (events[i].error != FILCH_OK || filch_as_int(&events[i].data) != 7) return FILCH_EUSER;
    }
    if (me->steps++ == 0) {
        for (int i = 0; i < 8 && err == FILCH_OK; i++) err = filch_yield_work(out, i % 2 == 0, answer, NULL);
        if (err == FILCH_OK) err = filch_yield_sleep(out, CANCEL_TAG, 1000);
    } else if (me->steps == 2) {
        err = filch_yield_tag_cancel(out, CANCEL_TAG, 1);
    }
    if (err != FILCH_OK) return err;
    if (me->completed < 10) return filch_wait(out);
    return me->count == me->cancelled ? filch_done(out, filch_none()) : FILCH_EUSER + 1;
}

static const filch_type simulated_type = { .name = "caller", .size = sizeof(simulated), .step = step_simulated };

static void check_end(void *user, filch_pid pid, filch_err error, const filch_data *data)
{
    (void)pid, (void)data;
    if (error != FILCH_OK) *(filch_err *)user = error;
}

static filch_err scenario(filch_sched *sched, void *user)
{
    filch_err           err = FILCH_OK;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.on_exit = check_end;
    opt.on_exit_user = user;
    for (int i = 0; i < 3 && err == FILCH_OK; i++) err = filch_spawn(sched, &simulated_type, &opt, NULL);
    return err;
}

TEST(functions_are_cancelled_in_simulations_too)
{
    filch_err         failed = FILCH_OK;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    opt.late_answer = opt.double_answer = 100;
    ok(filch_sim_sweep(&opt, 1, fixture_scale(300, 20), scenario, &failed, &report));
    same(report.verdict, FILCH_SIM_OK);
    same(failed, FILCH_OK);
    filch_sim_report_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_of_a_fifo_can_be_cancelled_and_leaves_no_descriptor),
        cmocka_unit_test(a_name_lookup_that_hangs_can_be_cancelled),
        cmocka_unit_test(a_program_whose_start_was_cancelled_is_killed_if_it_starts),
        cmocka_unit_test(a_queued_function_that_was_cancelled_is_never_called),
        cmocka_unit_test(a_cancel_after_the_deadline_does_not_take_the_function_from_its_queue),
        cmocka_unit_test(yields_can_be_cancelled_during_a_stop),
        cmocka_unit_test(all_yields_with_the_tag_are_cancelled_but_no_sleep_and_no_yield_of_another_process),
        cmocka_unit_test(a_cancel_is_for_the_earlier_yields_of_a_step_that_are_not_completed),
        cmocka_unit_test(fifty_polls_with_one_tag_are_cancelled),
        cmocka_unit_test(a_cancel_after_the_completion_finds_nothing),
        cmocka_unit_test(a_read_of_an_open_file_is_cancelled_by_its_stream_only),
        cmocka_unit_test(a_cancel_outside_of_the_step_is_refused),
        cmocka_unit_test(a_yield_completes_once_however_late_its_cancel_comes),
        cmocka_unit_test(a_cancel_without_memory_leaks_nothing_and_hangs_nothing),
        cmocka_unit_test(functions_are_cancelled_in_simulations_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
