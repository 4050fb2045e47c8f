/* safepoint_test.c - the owner does not pass a safepoint that is held; an object that the holder finds marked is not
 * destroyed before the release. */
#include "lua/memory/safepoint.h"

#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

static fli_lua_safepoint    safepoint;
static FLI_ATOMIC(uint32_t) go, done, passed, mark;
static uint32_t             rounds;

/* ---- a held safepoint ------------------------------------------------------------------------------------------ */

static void pass_once(void *arg)
{
    (void)arg;
    fli_lua_safepoint_pass(&safepoint);
    fli_store_rel(&passed, 1); /* PAIR safepoint_test.passed, release half */
}

static void not_passed_while_held(bool strict)
{
    fli_thread thread;
    fli_lua_safepoint_init(&safepoint, strict);
    fli_store_rlx(&passed, 0);
    fli_lua_safepoint_pass(&safepoint); /* the safepoint is not held: returns at once */
    fli_lua_safepoint_hold(&safepoint);
    ok(fli_thread_start(&thread, "owner", pass_once, NULL));
    for (int i = 0; i < 1000; i++) {
        same(fli_load_acq(&passed), 0); /* PAIR safepoint_test.passed, acquire half */
        yield_slice();
    }
    fli_lua_safepoint_release(&safepoint);
    fli_thread_join(&thread);
    same(fli_load_acq(&passed), 1); /* PAIR safepoint_test.passed, acquire half */
}

TEST(a_held_safepoint_is_not_passed)
{
    not_passed_while_held(true);
    if (fli_barrier_ready()) not_passed_while_held(false);
}

/* ---- owner and holder at the same time ------------------------------------------------------------------------- */

/* The owner clears `mark`, passes the safepoint, and destroys `thing` by setting it to 0. A holder that still finds
 * `mark` set must find `thing` unchanged until it releases the safepoint. */
static FLI_ATOMIC(uint32_t) thing;

static void own(void *arg)
{
    (void)arg;
    for (uint32_t i = 1; i <= rounds; i++) {
        while (fli_load_acq(&go) < i) yield_slice(); /* PAIR safepoint_test.go, acquire half */
        fli_store_rlx(&mark, 0);
        fli_lua_safepoint_pass(&safepoint);
        fli_store_rlx(&thing, 0);
        fli_store_rel(&done, i); /* PAIR safepoint_test.done, release half */
    }
}

static void holder_finds_no_destroyed_object(bool strict)
{
    fli_thread thread;
    fli_lua_safepoint_init(&safepoint, strict);
    fli_store_rlx(&go, 0);
    fli_store_rlx(&done, 0);
    rounds = (uint32_t)scaled(5000);
    ok(fli_thread_start(&thread, "owner", own, NULL));
    for (uint32_t i = 1; i <= rounds; i++) {
        fli_store_rlx(&mark, 1);
        fli_store_rlx(&thing, i);
        fli_store_rel(&go, i); /* PAIR safepoint_test.go, release half */
        fli_lua_safepoint_hold(&safepoint);
        if (fli_load_rlx(&mark) == 1) {
            for (int k = 0; k < 10; k++) same(fli_load_rlx(&thing), i);
        }
        fli_lua_safepoint_release(&safepoint);
        while (fli_load_acq(&done) < i) yield_slice(); /* PAIR safepoint_test.done, acquire half */
    }
    fli_thread_join(&thread);
}

TEST(an_object_found_by_the_holder_stays_until_the_release)
{
    holder_finds_no_destroyed_object(true);
    if (fli_barrier_ready()) holder_finds_no_destroyed_object(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_safepoint_is_not_passed),
        cmocka_unit_test(an_object_found_by_the_holder_stays_until_the_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
