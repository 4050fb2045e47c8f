/* kids_test.c - the lists and indexes of a supervisor's children, against looking at all of them. */
#include "supervise/kids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/until.h"

enum { NAMES = 200 };

static int    blocks;
static size_t most = SIZE_MAX; /* larger ones are refused */

static void *count_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user, (void)old_size;
    if (size > most) return NULL;
    if (old == NULL && size > 0) blocks++;
    if (old != NULL && size == 0) blocks--;
    if (size > 0) return realloc(old, size);
    free(old);
    return NULL;
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool belongs(const fli_kid *k, int list)
{
    switch (list) {
    case FLI_KIDS_ALL: return true;
    case FLI_KIDS_OWED: return k->wanted && k->state == FLI_KID_DOWN && !k->held;
    case FLI_KIDS_UNREADY: return k->state == FLI_KID_UP && !k->ready;
    case FLI_KIDS_MUST_STOP: return k->must_stop;
    default: return k->leaves;
    }
}

/* Each list holds exactly those that belong there, in order, both ways. */
static void check_lists(const fli_kids *kids)
{
    size_t missing = 0;
    for (const fli_kid *k = kids->first[FLI_KIDS_ALL]; k != NULL; k = k->next[FLI_KIDS_ALL]) {
        missing += k->wanted && !(k->state == FLI_KID_UP && k->ready);
    }
    same(kids->missing, missing);
    for (int list = 0; list < FLI_KIDS_LISTS; list++) {
        const fli_kid *at = kids->first[list], *before = NULL;
        size_t         count = 0;
        for (const fli_kid *k = kids->first[FLI_KIDS_ALL]; k != NULL; k = k->next[FLI_KIDS_ALL]) {
            if (!belongs(k, list)) continue;
            assert_ptr_equal(at, k);
            assert_ptr_equal(at->prev[list], before);
            before = at;
            at = at->next[list];
            count++;
        }
        assert_null(at);
        assert_ptr_equal(kids->last[list], before);
        if (list == FLI_KIDS_ALL) same(kids->count, count);
    }
}

static void check_finds(const fli_kids *kids, char names[NAMES][8], const bool *there)
{
    for (int i = 0; i < NAMES; i++) {
        const fli_kid *k = fli_kids_named(kids, names[i]);
        assert_int_equal(k != NULL, there[i]);
        if (k == NULL) continue;
        assert_ptr_equal(fli_kids_numbered(kids, k->id), k);
        if (k->begun) assert_ptr_equal(fli_kids_with(kids, k->pid), k);
    }
    assert_null(fli_kids_named(kids, "nobody"));
    assert_null(fli_kids_numbered(kids, 0));
    assert_null(fli_kids_with(kids, (filch_pid){ 1, 0 }));
}

TEST(lists_and_indexes_say_what_the_children_say)
{
    char     names[NAMES][8];
    bool     there[NAMES] = { false };
    uint64_t seed = 42, serial = 0, turns = scaled(20000);
    fli_kids kids;
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "kid%d", i);
    fli_kids_init(&kids, (filch_memory){ .alloc = count_alloc });
    for (uint32_t turn = 0; turn < turns; turn++) {
        uint64_t drawn = draw(&seed);
        int      which = (int)(drawn % NAMES);
        fli_kid *k = fli_kids_named(&kids, names[which]);
        if (k == NULL) {
            filch_child spec = { .id = names[which] };
            ok(fli_kids_add(&kids, &spec, &k));
            same(fli_kids_add(&kids, &spec, NULL), FILCH_EEXISTS);
            there[which] = true;
        } else if (drawn >> 32 & 7) {
            uint64_t bits = drawn >> 40;
            k->state = kids.stopping == NULL || kids.stopping == k ? (uint8_t)(bits % 3) : (uint8_t)(bits % 2);
            k->wanted = bits >> 2 & 1;
            k->held = bits >> 3 & 1;
            k->ready = bits >> 4 & 1;
            k->leaves = bits >> 5 & 1;
            k->must_stop = bits >> 6 & 1;
            if (bits >> 7 & 1) fli_kids_born(&kids, k, (filch_pid){ 1, ++serial });
            fli_kids_note(&kids, k);
            if (k->state == FLI_KID_STOPPING) assert_ptr_equal(kids.stopping, k);
            else assert_ptr_not_equal(kids.stopping, k);
        } else {
            fli_kids_drop(&kids, k);
            there[which] = false;
        }
        if (turn % 16 == 0) check_lists(&kids);
        if (turn % 64 == 0) check_finds(&kids, names, there);
    }
    fli_kids_fini(&kids);
    same(blocks, 0);
}

/* The indexes stay short, and still find everybody. */
TEST(without_memory_to_grow_everybody_is_still_found)
{
    static char names[64][8];
    fli_kids    kids;
    fli_kids_init(&kids, (filch_memory){ .alloc = count_alloc });
    most = 0;
    filch_child first = { .id = "first" };
    same(fli_kids_add(&kids, &first, NULL), FILCH_ENOMEM);
    same(kids.count, 0);
    most = sizeof(fli_kid); /* not for many heads */
    for (int i = 0; i < 64; i++) {
        filch_child spec = { .id = names[i] };
        snprintf(names[i], sizeof names[i], "k%d", i);
        ok(fli_kids_add(&kids, &spec, NULL));
    }
    most = SIZE_MAX;
    assert_true(kids.room < 16);
    for (int i = 0; i < 64; i++) assert_non_null(fli_kids_named(&kids, names[i]));
    check_lists(&kids);
    fli_kids_fini(&kids);
    same(blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_indexes_say_what_the_children_say),
        cmocka_unit_test(without_memory_to_grow_everybody_is_still_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
