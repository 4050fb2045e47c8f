/* context_test.c - the context of a process: its pid, its scheduler, and the values it inherits. */
#include "api/fixture.h"

static fixture w;

/* ---- what a process sees ---- */

typedef struct view {
    filch_pid    self;
    filch_sched *sched;
    int64_t      a, b; /* values of "a" and "b" */
    filch_kind   missing, null;
    char         text[64];
} view;

static view look(const filch_ctx *ctx)
{
    view        v = { .self = filch_ctx_self(ctx),
                      .sched = filch_ctx_sched(ctx),
                      .a = filch_as_int(filch_ctx_value(ctx, "a")),
                      .b = filch_as_int(filch_ctx_value(ctx, "b")),
                      .missing = filch_kind_of(filch_ctx_value(ctx, "no such key")),
                      .null = filch_kind_of(filch_ctx_value(ctx, NULL)) };
    const char *text = filch_text(filch_ctx_value(ctx, "text"));
    for (size_t i = 0; i + 1 < sizeof v.text && text[i] != '\0'; i++) v.text[i] = text[i];
    return v;
}

/* Values that one process saw in its init, its step and a handler. Each process of the test has one such record. */
typedef struct seen_values {
    view init, step, handler;
    /* record of the child that the process spawns in its first step; NULL: spawns no child */
    struct seen_values *child;
    filch_values       *override; /* values for the child; NULL: the child inherits the values of its parent */
    bool                upgrades;
    filch_pid           pid;
} seen_values;

static filch_err seen_values_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)method;
    seen_values *d = filch_as_ptr(args);
    *(seen_values **)self = d;
    d->init = look(ctx);
    return FILCH_OK;
}

static filch_err        seen_values_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type seen_values_type = {
    .name = "diary", .size = sizeof(seen_values *), .init = seen_values_init, .step = seen_values_step
};

static filch_err seen_values_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    seen_values *d = *(seen_values **)self;
    (void)events;
    if (count > 0) return filch_done(out, filch_none());
    d->step = look(filch_out_ctx(out));
    if (d->upgrades) {
        d->upgrades = false;
        return filch_upgrade(out, &seen_values_type, NULL, filch_ptr(d));
    }
    if (d->child != NULL) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_ptr(d->child);
        opt.values = d->override;
        filch_err err = filch_spawn(filch_out_sched(out), &seen_values_type, &opt, &d->child->pid);
        if (err != FILCH_OK) return err;
    }
    filch_err err = filch_yield(out, FILCH_CMD_USER, 1, filch_ptr(d));
    return err == FILCH_OK ? filch_wait(out) : err;
}

static filch_err handle_look(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    seen_values *d = filch_as_ptr(&command->data);
    d->handler = look(command->ctx);
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void begin(int32_t workers)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, handle_look, NULL));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    fixture_begin_with(&w, workers, opt);
    filch_registry_destroy(registry);
}

static void start(seen_values *d, filch_values *values)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(d);
    opt.values = values;
    ok(filch_spawn(w.sched, &seen_values_type, &opt, &d->pid));
}

/* Checks that init, step and handler of the process `d` all found the inherited values `a`, `b` and `text`. */
static void saw(const seen_values *d, int64_t a, int64_t b, const char *text)
{
    const view *views[] = { &d->init, &d->step, &d->handler };
    for (size_t i = 0; i < COUNT_OF(views); i++) {
        assert_true(same_pid(views[i]->self, d->pid));
        assert_ptr_equal(views[i]->sched, w.sched);
        same(views[i]->a, a);
        same(views[i]->b, b);
        same(views[i]->missing, FILCH_KIND_NONE);
        same(views[i]->null, FILCH_KIND_NONE);
        assert_string_equal(views[i]->text, text);
    }
}

static void finish(uint64_t ended)
{
    UNTIL(&w, fixture_stats(&w).ended == ended);
    same(fixture_stats(&w).failed, 0);
}

TEST(values_are_seen_by_init_step_and_handlers_and_by_children)
{
    filch_values *a, *b, *text;
    ok(filch_values_create(NULL, "a", filch_int(1), &a));
    ok(filch_values_create(a, "b", filch_int(2), &b));
    ok(filch_values_create(b, "text", filch_str("a text that is long enough to need a block"), &text));
    seen_values grandchild = { .child = NULL }, child = { .child = &grandchild }, parent = { .child = &child };
    seen_values unrelated = { .child = NULL }, short_chain = { .child = NULL };
    begin(FILCH_NO_WORKERS);
    start(&parent, text);
    start(&unrelated, NULL); /* a process that a foreign thread spawns without values has none */
    start(&short_chain, a);
    filch_values_drop(text); /* the processes hold references of their own to `text` */
    filch_values_drop(b);
    filch_values_drop(a);
    finish(5);
    const char *words = "a text that is long enough to need a block";
    saw(&parent, 1, 2, words);
    saw(&child, 1, 2, words);
    saw(&grandchild, 1, 2, words);
    saw(&unrelated, 0, 0, "");
    saw(&short_chain, 1, 0, "");
    fixture_end(&w);
}

TEST(the_nearest_value_wins_and_options_override_what_is_inherited)
{
    filch_values *outer, *inner, *other;
    ok(filch_values_create(NULL, "a", filch_int(1), &outer));
    ok(filch_values_create(outer, "a", filch_int(10), &inner)); /* the new "a" hides the "a" of `outer` */
    ok(filch_values_create(NULL, "b", filch_int(20), &other));
    seen_values child = { .child = NULL }, parent = { .child = &child, .override = other };
    seen_values before = { .child = NULL };
    begin(FILCH_NO_WORKERS);
    start(&parent, inner);
    start(&before, outer); /* `outer` is unchanged by the longer chain `inner` */
    finish(3);
    saw(&parent, 10, 0, "");
    saw(&child, 0, 20, ""); /* `override` replaces the values of the parent */
    saw(&before, 1, 0, "");
    filch_values_drop(inner);
    filch_values_drop(outer);
    filch_values_drop(other);
    fixture_end(&w);
}

TEST(an_upgraded_process_keeps_its_values)
{
    filch_values *a;
    ok(filch_values_create(NULL, "a", filch_int(3), &a));
    seen_values child = { .child = NULL }, d = { .upgrades = true, .child = &child };
    begin(FILCH_NO_WORKERS);
    start(&d, a);
    filch_values_drop(a);
    finish(2);
    saw(&d, 3, 0, "");
    saw(&child, 3, 0, "");
    fixture_end(&w);
}

/* ---- references to values ---- */

static FLI_ATOMIC(uint32_t) freed;

static void count_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    fli_add_acqrel(&freed, 1);
}

TEST(a_chain_is_freed_with_its_last_holder)
{
    fli_store_rlx(&freed, 0);
    char          key[] = "key";
    filch_data    shared;
    filch_values *first, *second, *third;
    ok(filch_share(malloc(9), 9, count_free, NULL, &shared));
    ok(filch_values_create(NULL, key, filch_move(malloc(7), 7, count_free), &first));
    key[0] = 'x'; /* filch_values_create() has copied the key, so this changes nothing */
    ok(filch_values_create(first, "moved", filch_move(malloc(8), 8, count_free), &second));
    /* the chains `second` and `third` have the common tail `first` */
    ok(filch_values_create(first, "shared", shared, &third));
    filch_drop(&shared);
    filch_values_drop(first);
    same(fli_load_acq(&freed), 0);
    filch_values_drop(second);
    same(fli_load_acq(&freed), 1); /* only the value that no other chain uses was freed */
    seen_values d = { .child = NULL };
    begin(FILCH_NO_WORKERS);
    start(&d, third);
    filch_values_drop(third);
    same(fli_load_acq(&freed), 1);
    finish(1);
    same(fli_load_acq(&freed), 3); /* the process held the last reference to the chain */
    fixture_end(&w);

    filch_values *none = NULL;
    filch_data    moved = filch_move(malloc(5), 5, count_free);
    same(filch_values_create(NULL, NULL, moved, &none), FILCH_EINVAL);
    same(fli_load_acq(&freed), 3); /* filch_values_create() was refused, so the caller still owns the payload */
    free((void *)filch_raw(&moved));
}

/* ---- on all workers ---- */

static const filch_type inheritor_type;

static filch_err inheritor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)method;
    *(int64_t *)self = filch_as_int(args);
    return filch_as_int(filch_ctx_value(ctx, "deep")) == 99 ? FILCH_OK : FILCH_EUSER;
}

static filch_err inheritor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    int64_t          depth = *(int64_t *)self;
    (void)events, (void)count;
    if (filch_as_int(filch_ctx_value(ctx, "deep")) != 99) return FILCH_EUSER;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_int(depth - 1);
    for (int i = 0; depth > 0 && i < 2; i++) {
        /* The first child inherits the values of its parent; the second child gets new values. */
        if (i == 1) {
            filch_err err = filch_values_create(NULL, "deep", filch_int(99), &opt.values);
            if (err != FILCH_OK) return err;
        }
        filch_err err = filch_spawn(filch_ctx_sched(ctx), &inheritor_type, &opt, NULL);
        filch_values_drop(opt.values);
        if (err != FILCH_OK) return err;
    }
    return filch_done(out, filch_none());
}

static const filch_type inheritor_type = { .size = sizeof(int64_t), .init = inheritor_init, .step = inheritor_step };

TEST(values_are_inherited_on_all_workers)
{
    int64_t depth = 4;
    while ((UINT32_C(2) << depth) < fixture_scale(50000, 100)) depth++;
    fli_store_rlx(&freed, 0);
    filch_values *tail, *deep;
    ok(filch_values_create(NULL, "tail", filch_move(malloc(50), 50, count_free), &tail));
    ok(filch_values_create(tail, "deep", filch_int(99), &deep));
    begin(4);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_int(depth);
    opt.values = deep;
    ok(filch_spawn(w.sched, &inheritor_type, &opt, NULL));
    filch_values_drop(tail);
    filch_values_drop(deep);
    finish((UINT64_C(2) << depth) - 1);
    same(fli_load_acq(&freed), 1);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_seen_by_init_step_and_handlers_and_by_children),
        cmocka_unit_test(the_nearest_value_wins_and_options_override_what_is_inherited),
        cmocka_unit_test(an_upgraded_process_keeps_its_values),
        cmocka_unit_test(a_chain_is_freed_with_its_last_holder),
        cmocka_unit_test(values_are_inherited_on_all_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
