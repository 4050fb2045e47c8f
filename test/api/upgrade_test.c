/* upgrade_test.c - a status that is chosen after an upgrade in the same step does not replace the upgrade. */
#include <filch.h>

#include "api/fixture.h"

static struct {
    int       old_steps, old_closed, new_opened, new_steps, new_closed;
    filch_err after;                   /* what `then` returned */
    filch_err (*then)(filch_out *out); /* called by the step after filch_upgrade(), to choose another status */
    bool returns;                      /* true: the step returns the result of `then`; false: it returns FILCH_OK */
} seen;

static filch_err new_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)ctx;
    (void)method;
    (void)args;
    seen.new_opened++;
    return FILCH_OK;
}

static filch_err new_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    seen.new_steps++;
    return filch_done(out, filch_int(2));
}

static void new_close(void *self)
{
    (void)self;
    seen.new_closed++;
}

static const filch_type new_type = { .name = "new", .size = 8, .init = new_init, .step = new_step, .close = new_close };

static filch_err finish(filch_out *out)
{
    return filch_done(out, filch_int(1));
}

static filch_err give_up(filch_out *out)
{
    return filch_fail(out, FILCH_EUSER, filch_none());
}

static filch_err old_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    seen.old_steps++;
    if (filch_upgrade(out, &new_type, NULL, filch_none()) != FILCH_OK) return FILCH_EUSER + 1;
    seen.after = seen.then(out);
    return seen.returns ? seen.after : FILCH_OK;
}

static void old_close(void *self)
{
    (void)self;
    seen.old_closed++;
}

static const filch_type old_type = { .name = "old", .size = 8, .step = old_step, .close = old_close };

static filch_err ended;
static int64_t   result_of;

static void on_end(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    ended = error;
    result_of = filch_as_int(result);
}

static void play(filch_err (*then)(filch_out *out), bool returns)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    memset(&seen, 0, sizeof seen);
    seen.then = then;
    seen.returns = returns;
    ended = FILCH_EUSER + 99;
    opt.workers = FILCH_NO_WORKERS;
    spawn.on_exit = on_end;
    ok(filch_sched_create(&sched, &opt));
    ok(filch_spawn(sched, &old_type, &spawn, NULL));
    for (int i = 0; i < 5; i++) ok(filch_tick(sched, 100, NULL));
    ok(filch_sched_stop(sched, FILCH_FOREVER, NULL));
    same(seen.old_steps, 1);
    same(seen.old_closed, 1);
    same(seen.new_opened, 1);
    same(seen.new_closed, 1);
}

TEST(a_status_after_an_upgrade_is_refused_and_the_upgrade_stays)
{
    filch_err (*const statuses[])(filch_out *) = { filch_continue, filch_wait, filch_idle };
    for (int i = 0; i < 3; i++) {
        play(statuses[i], false);
        same(seen.after, FILCH_ESTATE);
        same(seen.new_steps, 1);
        same(ended, FILCH_OK);
        same(result_of, 2);
    }
}

TEST(a_step_that_returns_the_refusal_ends_with_it)
{
    play(filch_continue, true);
    same(seen.new_steps, 0);
    same(ended, FILCH_ESTATE);
}

TEST(an_upgrade_followed_by_the_end_closes_the_new_instance)
{
    play(finish, true);
    same(seen.new_steps, 0);
    same(ended, FILCH_OK);
    same(result_of, 1);
    play(give_up, true);
    same(seen.new_steps, 0);
    same(ended, FILCH_EUSER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_after_an_upgrade_is_refused_and_the_upgrade_stays),
        cmocka_unit_test(a_step_that_returns_the_refusal_ends_with_it),
        cmocka_unit_test(an_upgrade_followed_by_the_end_closes_the_new_instance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
