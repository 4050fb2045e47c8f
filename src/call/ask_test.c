/* ask_test.c - a process uses the argument that a waiting thread has lent only while the thread waits. Tests both
 * orders: the thread's deadline passes while the process uses the argument, and before the process begins. */
#include "call/caller.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/gate.h"
#include "support/until.h"

typedef struct lent_arg {
    gate g;
    /* number of calls of `ask`; number of calls during which the thread that lent the argument had returned */
    FLI_ATOMIC(uint32_t) asked, used_after;
    FLI_ATOMIC(bool)     gone;
} lent_arg;

static filch_err ask(filch_sched *sched, filch_pid to, void *arg)
{
    lent_arg *p = arg;
    (void)sched;
    (void)to;
    fli_add_rlx(&p->asked, 1);
    gate_pass(&p->g);
    if (fli_load_acq(&p->gone)) fli_add_rlx(&p->used_after, 1);
    return FILCH_OK;
}

typedef struct host {
    filch_sched *sched;
    filch_pid    to;
    lent_arg    *p;
    filch_err    err;
} host;

static void run(void *arg)
{
    host *h = arg;
    h->err = filch_call_with(h->sched, h->to, ask, h->p, FILCH_MICROSECONDS(200), NULL);
    fli_store_rel(&h->p->gone, true);
}

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    lent_arg *p = filch_as_ptr(self);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    if (p != NULL) gate_pass(&p->g);
    return filch_idle(out);
}

static filch_err init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(filch_data *)self = *args;
    return FILCH_OK;
}

static const filch_type type = { .name = "type", .size = sizeof(filch_data), .init = init, .step = step };

static filch_sched *begin(filch_pid *pid, lent_arg *blocks_in)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    opt.workers = 1;
    spawn.args = filch_ptr(blocks_in);
    ok(filch_sched_create(&sched, &opt));
    ok(filch_spawn(sched, &type, &spawn, pid));
    return sched;
}

TEST(a_running_ask_delays_the_return_of_the_thread_that_lent_its_argument)
{
    lent_arg   p = { 0 };
    host       h = { .p = &p };
    fli_thread thread;
    /* On a loaded machine the deadline may pass before `ask` is called. The test repeats until `ask` is called in
     * time. */
    do {
        gate_shut(&p.g);
        fli_store_rlx(&p.gone, false);
        h.sched = begin(&h.to, NULL);
        ok(fli_thread_start(&thread, "host", run, &h));
        until(gate_is_waiting(&p.g) || fli_load_acq(&p.gone));
        bool     inside = gate_is_waiting(&p.g);
        uint64_t late_ns = fli_clock_ns() + FILCH_MILLISECONDS(5);
        while (inside && fli_clock_ns() < late_ns)
            yield_slice(); /* waits until the thread's deadline has
                                   passed */
        gate_open(&p.g);
        fli_thread_join(&thread);
        same(h.err, FILCH_EDEADLINE);
        ok(filch_sched_stop(h.sched, FILCH_SECONDS(60), NULL));
    } while (fli_load_rlx(&p.asked) == 0);
    same(fli_load_rlx(&p.used_after), 0);
}

static uint64_t alive(filch_sched *sched)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats.alive;
}

TEST(an_ask_is_not_called_after_its_thread_has_returned)
{
    lent_arg p = { 0 }, busy = { 0 };
    host     h = { .p = &p };
    gate_shut(&busy.g);
    h.sched = begin(&h.to, &busy);
    until(gate_is_waiting(&busy.g)); /* blocks the only worker */
    run(&h);
    same(h.err, FILCH_EDEADLINE);
    gate_open(&busy.g);
    until(alive(h.sched) == 1); /* the process that served the thread has ended */
    ok(filch_sched_stop(h.sched, FILCH_SECONDS(60), NULL));
    same(fli_load_rlx(&p.asked), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_running_ask_delays_the_return_of_the_thread_that_lent_its_argument),
        cmocka_unit_test(an_ask_is_not_called_after_its_thread_has_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
