/* safepoint_parts.c - the safepoint by which the watchdog of Lua keeps the owner of a Lua state from freeing it while
 * the watchdog reads it (lua/memory/safepoint.h): in the variant with a process-wide barrier, which the watchdog
 * executes, and in the strict variant without the barrier. The freed object is non-atomic memory: a read while it is
 * freed is a data race. */
#include "parts.h"

#define fli_thread_yield fli_weak_yield
#include "lua/memory/safepoint.c"

static struct {
    fli_lua_safepoint      safepoint;
    FLI_ATOMIC(uint32_t)   listed[2];
    FLI_ATOMIC(uint32_t *) runs; /* the object that the thread runs; stands for fli_lua_runner.proc */
    uint32_t               things[2];
    FLI_ATOMIC(uint32_t)   turn;
    fli_mutex              lock;
    fli_cond               wake;
} * g;

static void setup_safepoint(bool strict)
{
    g = fli_weak_new(sizeof *g);
    fli_lua_safepoint_init(&g->safepoint, strict);
    for (int i = 0; i < 2; i++) {
        fli_atomic_init(&g->listed[i], 1);
        g->things[i] = 7;
    }
    fli_atomic_init(&g->runs, &g->things[0]);
    (void)!fli_mutex_init(&g->lock);
    (void)!fli_cond_init(&g->wake);
}

static void setup(void)
{
    setup_safepoint(false);
}

static void setup_strict(void)
{
    setup_safepoint(true);
}

/* Removes object `i` from the list, passes the safepoint, then frees the object. */
static void free_thing(int i)
{
    fli_store_rlx(&g->listed[i], 0);
    fli_lua_safepoint_pass(&g->safepoint);
    g->things[i] = 0;
}

static void free_one(void)
{
    free_thing(0);
}

static void free_two(void)
{
    free_thing(0);
    free_thing(1);
}

/* Reads every object that is still in the list. */
static void look(void)
{
    fli_lua_safepoint_hold(&g->safepoint);
    for (int i = 0; i < 2; i++) {
        if (fli_load_rlx(&g->listed[i]) == 1) must(g->things[i] == 7, "a listed object is not freed");
    }
    fli_lua_safepoint_release(&g->safepoint);
}

static void look_twice(void)
{
    look();
    look();
}

/* Ends a step, as lua/preempt/preempt.c does: the thread no longer runs the object, so the object may be freed. */
static void end_step(void)
{
    fli_store_rel(&g->runs, NULL);
    fli_lua_safepoint_pass(&g->safepoint);
    g->things[0] = 0;
}

static void look_at_runner(void)
{
    fli_lua_safepoint_hold(&g->safepoint);
    const uint32_t *runs = fli_load_acq(&g->runs);
    if (runs != NULL) must(*runs == 7, "the object that a thread runs is not freed while the watchdog reads it");
    fli_lua_safepoint_release(&g->safepoint);
}

/* The watchdog goes to sleep, as in lua/preempt/preempt.c, while another thread begins a step. Either the watchdog sees
 * the step, or the step sees that the watchdog sleeps. */
static void sleep_until_step(void)
{
    fli_mutex_lock(&g->lock);
    fli_lua_safepoint_hold(&g->safepoint);
    while (fli_load_rlx(&g->safepoint.held) != 0 && fli_load_rlx(&g->turn) == 0) fli_cond_wait(&g->wake, &g->lock);
    fli_lua_safepoint_release(&g->safepoint);
    fli_mutex_unlock(&g->lock);
}

static void begin_step(void)
{
    fli_store_rlx(&g->turn, 1);
    if (fli_lua_safepoint_is_held(&g->safepoint) == 0) return;
    fli_mutex_lock(&g->lock);
    fli_lua_safepoint_release(&g->safepoint);
    fli_cond_signal(&g->wake);
    fli_mutex_unlock(&g->lock);
}

static void check_open(void)
{
    must(fli_load_rlx(&g->safepoint.held) == 0, "in the end the safepoint is not held");
}

const fli_weak_program parts_safepoint[] = {
    { .name = "safepoint_free",
      .promise = "no object is freed while the holder of the safepoint reads it",
      .setup = setup,
      .threads = { free_one, look },
      .check = check_open },
    { .name = "safepoint_free_twice",
      .promise = "two objects, read twice",
      .setup = setup,
      .threads = { free_two, look_twice },
      .check = check_open },
    { .name = "safepoint_free_strict",
      .promise = "two objects, read twice, without the process-wide barrier",
      .setup = setup_strict,
      .threads = { free_two, look_twice },
      .check = check_open },
    { .name = "safepoint_step_end",
      .promise = "a process is not freed while the watchdog reads it",
      .setup = setup,
      .threads = { end_step, look_at_runner },
      .check = check_open },
    { .name = "safepoint_sleep",
      .promise = "a step that begins while the watchdog goes to sleep is seen, or wakes it",
      .setup = setup,
      .threads = { sleep_until_step, begin_step },
      .check = check_open },
    { .name = "safepoint_sleep_2",
      .promise = "steps of two threads while the watchdog goes to sleep, without the process-wide barrier",
      .setup = setup_strict,
      .threads = { sleep_until_step, begin_step, begin_step },
      .check = check_open },
    { 0 },
};
