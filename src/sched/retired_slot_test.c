/* retired_slot_test.c - slots that have used up their generations are replaced: a scheduler with a small max_processes
 * never stops spawning. Each test ages all free slots to their last generation before each spawn, which stands for 2^24
 * spawns. */
#include "sched/sched.h"

#include "support/alloc.h"
#include "support/check.h"

/* Values of option max_processes. With FEW, no spawn inside a step takes the fast path, because the first batch of
 * slots in a magazine is larger than FEW. */
enum { FEW = 10, MANY = 1000 };

typedef struct scene {
    test_alloc   alloc;
    filch_sched *sched;
    uint32_t     max, spawns; /* `max`: option max_processes. `spawns`: number of spawns in a test, three times the
                                 number of slots */
} scene;

static filch_err init_result;

static filch_err on_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method, (void)args;
    return init_result;
}

static filch_err brief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static filch_err idle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type brief = { .name = "brief", .init = on_init, .step = brief_step };
static const filch_type idle = { .name = "idle", .init = on_init, .step = idle_step };

static void begin(scene *s, uint32_t max)
{
    filch_options options = FILCH_OPTIONS_INIT;
    *s = (scene){ .max = max, .spawns = 3 * (max + FLI_MAGAZINE) };
    init_result = FILCH_OK;
    options.workers = FILCH_NO_WORKERS;
    options.max_processes = max;
    options.alloc = test_alloc_fn;
    options.alloc_user = &s->alloc;
    ok(filch_sched_create(&s->sched, &options));
}

static void end(scene *s)
{
    ok(filch_sched_stop(s->sched, FILCH_SECONDS(60), NULL));
    test_alloc_balanced(&s->alloc);
}

/* Gives every free slot its last generation. */
static void age(filch_sched *sched)
{
    uint32_t fresh = fli_load_rlx(&sched->rt.procs.fresh);
    for (uint32_t slot = 1; slot < fresh; slot++) {
        fli_proc *p = fli_slab_at(&sched->rt.procs, slot);
        uint64_t  word = fli_state_peek(&p->state);
        bool      is_free = word == fli_word_make(fli_word_gen(word), FLI_FREE, 0);
        if (is_free) fli_store_rlx(&p->state, fli_word_make(FLI_GEN_LAST, FLI_FREE, 0));
    }
}

/* Checks that exactly `max` processes can live at a time. `alive`: number of processes that live already. */
static void limit_is_kept(scene *s, uint32_t alive)
{
    filch_pid pid;
    init_result = FILCH_OK;
    for (uint32_t i = alive; i < s->max; i++) ok(filch_spawn(s->sched, &idle, NULL, &pid));
    same(filch_spawn(s->sched, &idle, NULL, &pid), FILCH_ELIMIT);
}

TEST(spawning_goes_on_when_all_slots_have_used_up_their_generations)
{
    scene     s;
    filch_pid pid;
    begin(&s, FEW);
    for (uint32_t i = 0; i < s.spawns; i++) {
        age(s.sched);
        ok(filch_spawn(s.sched, &brief, NULL, &pid));
        age(s.sched);
        ok(filch_tick(s.sched, 0, NULL));
        same(filch_send(s.sched, pid, filch_none()), FILCH_EDEAD);
    }
    limit_is_kept(&s, 0);
    end(&s);
}

TEST(slots_of_killed_processes_are_replaced_too)
{
    scene     s;
    filch_pid pid;
    begin(&s, FEW);
    for (uint32_t i = 0; i < s.spawns; i++) {
        age(s.sched);
        ok(filch_spawn(s.sched, &idle, NULL, &pid));
        ok(filch_terminate(s.sched, pid));
        ok(filch_tick(s.sched, 0, NULL));
    }
    limit_is_kept(&s, 0);
    end(&s);
}

TEST(slots_of_failed_spawns_are_replaced_too)
{
    scene     s;
    filch_pid pid;
    begin(&s, FEW);
    init_result = FILCH_EUSER;
    for (uint32_t i = 0; i < s.spawns; i++) {
        age(s.sched);
        same(filch_spawn(s.sched, &idle, NULL, &pid), FILCH_EUSER);
    }
    limit_is_kept(&s, 0);
    end(&s);
}

static filch_err spawn_result;
static uint32_t  spawned, spawns;

/* Spawns one child in each step. */
static filch_err parent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    age(filch_out_sched(out));
    spawn_result = filch_spawn(filch_out_sched(out), &brief, NULL, NULL);
    return spawn_result == init_result && ++spawned < spawns ? filch_continue(out) : filch_idle(out);
}

static void spawn_in_steps(filch_err init, uint32_t max)
{
    static const filch_type parent = { .name = "parent", .step = parent_step };
    scene                   s;
    filch_pid               pid;
    uint32_t                ran = 0;
    begin(&s, max);
    ok(filch_spawn(s.sched, &parent, NULL, &pid));
    init_result = init;
    spawned = 0;
    spawns = s.spawns;
    do ok(filch_tick(s.sched, 0, &ran));
    while (ran > 0);
    same(spawn_result, init);
    same(spawned, spawns);
    limit_is_kept(&s, 1);
    end(&s);
}

TEST(spawns_inside_steps_go_on_after_slots_are_retired)
{
    spawn_in_steps(FILCH_OK, FEW);
    spawn_in_steps(FILCH_OK, MANY);
}

TEST(failed_spawns_inside_steps_go_on_after_slots_are_retired)
{
    spawn_in_steps(FILCH_EUSER, FEW);
    spawn_in_steps(FILCH_EUSER, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spawning_goes_on_when_all_slots_have_used_up_their_generations),
        cmocka_unit_test(slots_of_killed_processes_are_replaced_too),
        cmocka_unit_test(slots_of_failed_spawns_are_replaced_too),
        cmocka_unit_test(spawns_inside_steps_go_on_after_slots_are_retired),
        cmocka_unit_test(failed_spawns_inside_steps_go_on_after_slots_are_retired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
