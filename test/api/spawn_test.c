/* spawn_test.c - how processes begin and end: init, entry points, limits, pids, on_exit. */
#include "api/fixture.h"

static fixture w;

/* ---- init ---- */

typedef struct probe {
    void        *thread; /* identifies the thread that ran init: result of thread_name() */
    const char  *method;
    filch_data   args;
    filch_pid    self;
    filch_sched *sched;
    bool         zeroed, aligned;
    size_t       size;
    uint32_t     inits, steps, closes;
    filch_err    init_result;
    void        *at[3]; /* address of the process's state in init, step and close */
} probe;

static probe       p;
static const char *thread_name(void)
{
    static __thread char mark;
    return &mark;
}

static filch_err probe_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    p.thread = (void *)(uintptr_t)thread_name();
    p.method = method;
    p.args = *args;
    p.self = filch_ctx_self(ctx);
    p.sched = filch_ctx_sched(ctx);
    p.zeroed = true;
    for (size_t i = 0; i < p.size; i++) p.zeroed &= ((unsigned char *)self)[i] == 0;
    if (p.size > 0) memset(self, 0xab, p.size);
    p.aligned = (uintptr_t)self % _Alignof(max_align_t) == 0;
    p.at[0] = self;
    p.inits++;
    return p.init_result;
}

static filch_err probe_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    for (size_t i = 0; i < p.size; i++) p.zeroed &= ((unsigned char *)self)[i] == 0xab;
    p.at[1] = self;
    p.steps++;
    return filch_done(out, filch_none());
}

static void probe_close(void *self)
{
    p.at[2] = self;
    p.closes++;
}

TEST(init_finds_zeroed_aligned_memory_that_stays_where_it_is)
{
    static const size_t sizes[] = { 0, 1, 8, 15, 16, 17, 24, 128, 4096, 1 << 20 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            filch_type type = {
                .name = "probe", .size = sizes[i], .init = probe_init, .step = probe_step, .close = probe_close
            };
            filch_pid pid = { 0, 0 };
            p = (probe){ .size = sizes[i] };
            ok(filch_spawn(w.sched, &type, NULL, &pid));
            same(p.inits, 1); /* filch_spawn() has run init, on this thread */
            assert_ptr_equal(p.thread, thread_name());
            same(p.steps, 0);
            assert_true(p.zeroed && p.aligned);
            assert_true(same_pid(p.self, pid));
            assert_ptr_equal(p.sched, w.sched);
            assert_null(p.method);
            same(filch_kind_of(&p.args), FILCH_KIND_NONE);
            (void)fixture_tick(&w);
            same(p.steps, 1);
            same(p.closes, 1);
            assert_true(p.zeroed);
            assert_ptr_equal(p.at[0], p.at[1]);
            assert_ptr_equal(p.at[0], p.at[2]);
        }
    }
    fixture_end(&w);
}

TEST(init_gets_method_and_args_as_they_were_given)
{
    static const filch_type type = { .init = probe_init, .step = probe_step, .close = probe_close };
    static const char       method[] = "second door";
    char                    text[100] = "arguments are lent: the very same bytes";
    filch_data all[] = { filch_int(3), filch_num(1.5), filch_ptr(text), filch_str(text), filch_bytes(text, 50) };
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.method = method;
        opt.args = all[i];
        p = (probe){ .size = 0 };
        ok(filch_spawn(w.sched, &type, &opt, NULL)); /* a caller that does not need the pid passes NULL */
        assert_ptr_equal(p.method, method);
        assert_memory_equal(&p.args, &all[i], sizeof all[i]);
    }
    (void)fixture_tick(&w);
    fixture_end(&w);
}

static filch_err keeper_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    return filch_keep(args, self);
}

static void keeper_close(void *self)
{
    filch_drop(self);
}

static filch_err keeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    return filch_done(out, *(filch_data *)self);
}

static void free_never(void *user, void *bytes, size_t size)
{
    (void)user, (void)bytes, (void)size;
    abort();
}

TEST(moved_arguments_are_borrowed_like_all_others)
{
    static const filch_type type = {
        .size = sizeof(filch_data), .init = keeper_init, .step = keeper_step, .close = keeper_close
    };
    char                bytes[64] = "on the stack: whoever frees this is wrong";
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_move(bytes, sizeof bytes, free_never);
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_spawn(w.sched, &type, &opt, NULL)); /* init keeps the args, so it gets a copy of the bytes */
    memset(bytes, 0, sizeof bytes);
    (void)fixture_tick(&w);
    same(fixture_stats(&w).ended, 1);
    fixture_end(&w);
}

TEST(an_init_that_fails_leaks_nothing)
{
    static const size_t sizes[] = { 0, 16, 1000 };
    actor               a = { .stage = 0 };
    filch_values       *values;
    ok(filch_values_create(NULL, "key", filch_int(1), &values));
    fixture_begin(&w, FILCH_NO_WORKERS);
    /* this process makes the scheduler allocate its first blocks, before they are counted */
    actor_start(&w, &a, play_idle);
    (void)fixture_tick(&w);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        filch_type          type = { .size = sizes[i], .init = probe_init, .step = probe_step, .close = probe_close };
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.on_exit = actor_exit;
        opt.on_exit_user = &a;
        opt.values = values;
        opt.mailbox_max = 5;
        p = (probe){ .size = sizes[i], .init_result = FILCH_EUSER + (int)i };
        filch_pid   pid = { 8, 9 };
        filch_stats before = fixture_stats(&w);
        int64_t     blocks = fli_load_rlx(&w.blocks), bytes = fli_load_rlx(&w.bytes);
        for (int k = 0; k < 100; k++) same(filch_spawn(w.sched, &type, &opt, &pid), FILCH_EUSER + (int)i);
        same(p.inits, 100);
        same(p.closes, 0);
        assert_true(pid.node == 8 && pid.serial == 9);
        same(fixture_tick(&w), 0);
        same(p.steps, 0);
        filch_stats after = fixture_stats(&w);
        assert_memory_equal(&before, &after, sizeof before);
        same(fli_load_rlx(&w.blocks), blocks);
        same(fli_load_rlx(&w.bytes), bytes);
        same(filch_send(w.sched, p.self, filch_none()), FILCH_EDEAD);
    }
    same(fli_load_rlx(&a.exits), 0);
    filch_values_drop(values);
    fixture_end(&w);
}

/* Each of the first four steps makes three spawns of a type without init: with default options, with a method, and with
 * args. Only the spawn with default options succeeds. */
static filch_err play_spawns_without_init(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const filch_type type = { .name = "plain", .step = probe_step };
    filch_spawn_options     opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched            *sched = filch_out_sched(out);
    if (has_cancel(events, count) || me->stage++ > 3) return play_idle(me, events, count, out);
    me->note |= filch_spawn(sched, &type, &opt, NULL);
    opt.method = "main";
    if (filch_spawn(sched, &type, &opt, NULL) != FILCH_EMETHOD) me->note = FILCH_EUSER;
    opt.method = NULL;
    opt.args = filch_int(1);
    if (filch_spawn(sched, &type, &opt, NULL) != FILCH_EINVAL) me->note = FILCH_EUSER + 1;
    return filch_continue(out);
}

TEST(a_spawn_in_a_step_refuses_method_and_args_for_a_type_without_init)
{
    actor a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_spawns_without_init);
    (void)fixture_tick(&w);
    ok(a.note);
    same(fixture_stats(&w).spawned, 5);
    fixture_end(&w);
}

TEST(a_spawn_refuses_method_and_args_for_a_type_without_init)
{
    static const filch_type type = { .size = 64, .step = probe_step };
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    opt.method = "main";
    same(filch_spawn(w.sched, &type, &opt, &pid), FILCH_EMETHOD);
    opt.method = NULL;
    opt.args = filch_int(0);
    same(filch_spawn(w.sched, &type, &opt, &pid), FILCH_EINVAL);
    opt.method = "main"; /* if the type has an init, only init can refuse an unknown method */
    opt.args = filch_ptr(&w);
    same(filch_spawn(w.sched, &actor_type, &opt, &pid), FILCH_EMETHOD);
    same(fixture_stats(&w).spawned, 0);
    p = (probe){ .zeroed = true };
    ok(filch_spawn(w.sched, &type, NULL, &pid));
    assert_string_equal(fixture_inspect(&w, pid).name, "?"); /* the type has no name either, so "?" is shown */
    (void)fixture_tick(&w);
    same(fixture_stats(&w).ended, 1);
    fixture_end(&w);
}

/* ---- limits and pids ---- */

TEST(no_more_than_max_processes_are_alive)
{
    enum { MAX = 5 };
    static actor  a[MAX + 1];
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.max_processes = MAX;
    memset(a, 0, sizeof a);
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_spawn_options more = FILCH_SPAWN_OPTIONS_INIT;
    more.args = filch_ptr(&a[MAX]);
    a[MAX].play = play_idle;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < MAX; i++) {
            a[i] = (actor){ .stage = 0 };
            actor_start(&w, &a[i], play_idle);
        }
        for (int i = 0; i < 3; i++) same(filch_spawn(w.sched, &actor_type, &more, NULL), FILCH_ELIMIT);
        same(a[MAX].inits, 0); /* the spawn was refused before init */
        same(fixture_stats(&w).alive, MAX);
        for (int i = 0; i < MAX; i++) {
            ok(filch_cancel(w.sched, a[i].pid));
            actor_ends(&w, &a[i], FILCH_OK);
        }
    }
    fixture_end(&w);
}

static FLI_ATOMIC(uint32_t) began, refused_by_limit, went_wrong;

static filch_err forever_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type forever = { .name = "forever", .step = forever_step };

static void spawn_many(void *arg)
{
    for (uint32_t i = *(uint32_t *)arg; i > 0; i--) {
        switch (filch_spawn(w.sched, &forever, NULL, NULL)) {
        case FILCH_OK: fli_add_rlx(&began, 1); break;
        case FILCH_ELIMIT: fli_add_rlx(&refused_by_limit, 1); break;
        default: fli_add_rlx(&went_wrong, 1); break;
        }
    }
}

TEST(threads_that_spawn_at_once_stay_within_max_processes)
{
    for (int round = 0; round < 20; round++) {
        fli_thread    threads[4];
        uint32_t      each = 100;
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.max_processes = 50;
        fli_store_rlx(&began, 0);
        fli_store_rlx(&refused_by_limit, 0);
        fli_store_rlx(&went_wrong, 0);
        fixture_begin_with(&w, 2, opt);
        for (size_t i = 0; i < COUNT_OF(threads); i++) ok(fli_thread_start(&threads[i], "spawn", spawn_many, &each));
        for (size_t i = 0; i < COUNT_OF(threads); i++) fli_thread_join(&threads[i]);
        /* Concurrent spawns may exceed the limit of 50, by fewer processes than there are threads. */
        uint32_t n = fli_load_rlx(&began);
        assert_true(n >= 50 && n < 50 + COUNT_OF(threads));
        same(fli_load_rlx(&refused_by_limit), COUNT_OF(threads) * each - n);
        same(fli_load_rlx(&went_wrong), 0);
        fixture_end(&w);
    }
}

TEST(the_pid_of_an_ended_process_stays_dead)
{
    uint32_t                n = fixture_scale(50000, 500);
    filch_pid              *pids = calloc(n, sizeof *pids);
    static const filch_type brief = { .step = probe_step };
    p = (probe){ .size = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (uint32_t i = 0; i < n; i++) {
        ok(filch_spawn(w.sched, &brief, NULL, &pids[i]));
        (void)fixture_tick(&w);
        assert_true(pids[i].serial != 0);
        if (i > 0) assert_false(same_pid(pids[i], pids[i - 1]));
    }
    actor a = { .stage = 0 };
    actor_start(&w, &a, play_idle); /* each new process reuses the memory of an ended process */
    (void)fixture_tick(&w);
    for (uint32_t i = 0; i < n; i++) {
        assert_false(same_pid(pids[i], a.pid));
        same(filch_send(w.sched, pids[i], filch_int(1)), FILCH_EDEAD);
        if (i % 100 == 0) same(filch_terminate(w.sched, pids[i]), FILCH_EDEAD);
    }
    same(a.seen_count, 0);
    same(fixture_stats(&w).undelivered, n);
    fixture_end(&w);
    free(pids);
}

/* ---- spawning inside steps, handlers and on_exit ---- */

/* State of a process that spawns two processes of its own type, unless the tree is deep enough. */
typedef struct twig {
    int64_t depth;
} twig;

static filch_err twig_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    ((twig *)self)->depth = filch_as_int(args);
    return FILCH_OK;
}

static filch_err        twig_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type twig_type = { .name = "twig", .size = sizeof(twig), .init = twig_init, .step = twig_step };

static filch_err twig_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const twig *t = self;
    (void)events, (void)count;
    for (int i = 0; t->depth > 0 && i < 2; i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_int(t->depth - 1);
        filch_err err = filch_spawn(filch_out_sched(out), &twig_type, &opt, NULL);
        if (err != FILCH_OK) return err;
    }
    return filch_done(out, filch_none());
}

TEST(a_tree_of_processes_grows_on_all_workers)
{
    int64_t depth = 4;
    while ((UINT32_C(2) << depth) < fixture_scale(100000, 100)) depth++;
    uint64_t all = (UINT64_C(2) << depth) - 1;
    fixture_begin(&w, 4);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_int(depth);
    ok(filch_spawn(w.sched, &twig_type, &opt, NULL));
    UNTIL(&w, fixture_stats(&w).ended == all);
    filch_stats stats = fixture_stats(&w);
    same(stats.spawned, all);
    same(stats.failed, 0);
    same(stats.alive, 0);
    fixture_end(&w);
}

/* Record of a sequence of processes: rise(), the on_exit function of each process, spawns the next process. */
typedef struct phoenix {
    filch_sched         *sched;
    actor               *watcher;
    FLI_ATOMIC(uint32_t) spawns, failed;
    uint32_t             times, closes, early, wrong;
    filch_pid            last;
} phoenix;

static phoenix bird;

static filch_err phoenix_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_int(6));
}

static void phoenix_close(void *self)
{
    (void)self;
    bird.closes++;
}

static const filch_type phoenix_type = { .size = 40, .step = phoenix_step, .close = phoenix_close };

static void rise(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    uint32_t spawns = fli_load_rlx(&bird.spawns) + 1;
    if (bird.closes != spawns) bird.early++; /* on_exit must be called after close */
    if (error != FILCH_OK || filch_as_int(result) != 6 || same_pid(pid, bird.last)) bird.wrong++;
    if (filch_send(bird.sched, pid, filch_none()) != FILCH_EDEAD)
        bird.wrong++; /* a process that has ended must be unreachable when on_exit is called */
    if (filch_send(bird.sched, bird.watcher->pid, filch_int(spawns)) != FILCH_OK) bird.wrong++;
    bird.last = pid;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.on_exit = rise;
    bool again = spawns < bird.times;
    fli_store_rel(&bird.spawns, spawns);
    /* Must be the last statement: the new process may end on another worker before this function returns. */
    if (again && filch_spawn(bird.sched, &phoenix_type, &opt, NULL) != FILCH_OK) fli_store_rel(&bird.failed, 1);
}

TEST(on_exit_is_called_once_after_close_and_may_spawn_and_send)
{
    actor watcher = { .stage = 0 };
    fixture_begin(&w, 2);
    bird = (phoenix){ .sched = w.sched, .watcher = &watcher, .times = fixture_scale(5000, 100) };
    actor_start(&w, &watcher, play_idle);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.on_exit = rise;
    ok(filch_spawn(w.sched, &phoenix_type, &opt, NULL));
    UNTIL(&w, fli_load_acq(&bird.spawns) == bird.times);
    UNTIL(&w, fixture_stats(&w).alive == 1);
    ok(filch_cancel(w.sched, watcher.pid));
    actor_ends(&w, &watcher, FILCH_OK);
    same(bird.early + bird.wrong + fli_load_acq(&bird.failed), 0);
    same(bird.closes, bird.times);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_finds_zeroed_aligned_memory_that_stays_where_it_is),
        cmocka_unit_test(init_gets_method_and_args_as_they_were_given),
        cmocka_unit_test(moved_arguments_are_borrowed_like_all_others),
        cmocka_unit_test(an_init_that_fails_leaks_nothing),
        cmocka_unit_test(a_spawn_refuses_method_and_args_for_a_type_without_init),
        cmocka_unit_test(a_spawn_in_a_step_refuses_method_and_args_for_a_type_without_init),
        cmocka_unit_test(no_more_than_max_processes_are_alive),
        cmocka_unit_test(threads_that_spawn_at_once_stay_within_max_processes),
        cmocka_unit_test(the_pid_of_an_ended_process_stays_dead),
        cmocka_unit_test(a_tree_of_processes_grows_on_all_workers),
        cmocka_unit_test(on_exit_is_called_once_after_close_and_may_spawn_and_send),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
