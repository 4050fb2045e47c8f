/* children_test.c - tests the lists and indexes of a supervisor's children against a search of all children. */
#include "supervise/children.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/until.h"

enum { NAMES = 200 };

static int    blocks;
static size_t most = SIZE_MAX; /* larger allocations fail */

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

static bool belongs(const fli_child *c, int list)
{
    switch (list) {
    case FLI_CHILDREN_ALL: return true;
    case FLI_CHILDREN_TO_START: return c->wanted && c->state == FLI_CHILD_DOWN && !c->held;
    case FLI_CHILDREN_UNTIMED: return c->wanted && c->held && c->untimed;
    case FLI_CHILDREN_UNREADY: return c->state == FLI_CHILD_UP && !c->ready;
    case FLI_CHILDREN_MUST_STOP: return c->must_stop;
    default: return c->leaves;
    }
}

/* Checks that each list contains exactly the children that belong there, in start order, and that the links are right
 * in both directions. */
static void check_lists(const fli_children *children)
{
    size_t missing = 0;
    for (const fli_child *c = children->first[FLI_CHILDREN_ALL]; c != NULL; c = c->next[FLI_CHILDREN_ALL]) {
        missing += c->wanted && !(c->state == FLI_CHILD_UP && c->ready);
    }
    same(children->missing, missing);
    for (int list = 0; list < FLI_CHILDREN_LISTS; list++) {
        const fli_child *at = children->first[list], *before = NULL;
        size_t           count = 0;
        for (const fli_child *c = children->first[FLI_CHILDREN_ALL]; c != NULL; c = c->next[FLI_CHILDREN_ALL]) {
            if (!belongs(c, list)) continue;
            assert_ptr_equal(at, c);
            assert_ptr_equal(at->prev[list], before);
            before = at;
            at = at->next[list];
            count++;
        }
        assert_null(at);
        assert_ptr_equal(children->last[list], before);
        if (list == FLI_CHILDREN_ALL) same(children->count, count);
    }
}

static void check_finds(const fli_children *children, char names[NAMES][8], const bool *there)
{
    for (int i = 0; i < NAMES; i++) {
        const fli_child *c = fli_children_named(children, names[i]);
        assert_int_equal(c != NULL, there[i]);
        if (c == NULL) continue;
        assert_ptr_equal(fli_children_numbered(children, c->id), c);
        if (c->begun) assert_ptr_equal(fli_children_with(children, c->pid), c);
    }
    assert_null(fli_children_named(children, "unknown"));
    assert_null(fli_children_numbered(children, 0));
    assert_null(fli_children_with(children, (filch_pid){ 1, 0 }));
}

TEST(lists_and_indexes_agree_with_a_search_of_all_children)
{
    char         names[NAMES][8];
    bool         there[NAMES] = { false };
    uint64_t     seed = 42, serial = 0, turns = scaled(20000);
    fli_children children;
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "kid%d", i);
    fli_children_init(&children, (filch_memory){ .alloc = count_alloc });
    for (uint32_t turn = 0; turn < turns; turn++) {
        uint64_t   drawn = draw(&seed);
        int        which = (int)(drawn % NAMES);
        fli_child *c = fli_children_named(&children, names[which]);
        if (c == NULL) {
            filch_child spec = { .id = names[which] };
            ok(fli_children_add(&children, &spec, &c));
            same(fli_children_add(&children, &spec, NULL), FILCH_EEXISTS);
            there[which] = true;
        } else if (drawn >> 32 & 7) {
            uint64_t bits = drawn >> 40;
            c->state = children.stopping == NULL || children.stopping == c ? (uint8_t)(bits % 3) : (uint8_t)(bits % 2);
            c->wanted = bits >> 2 & 1;
            c->held = bits >> 3 & 1;
            c->ready = bits >> 4 & 1;
            c->leaves = bits >> 5 & 1;
            c->must_stop = bits >> 6 & 1;
            c->untimed = bits >> 8 & 1;
            if (bits >> 7 & 1) fli_children_started(&children, c, (filch_pid){ 1, ++serial });
            fli_children_update(&children, c);
            if (c->state == FLI_CHILD_STOPPING) assert_ptr_equal(children.stopping, c);
            else assert_ptr_not_equal(children.stopping, c);
        } else {
            fli_children_drop(&children, c);
            there[which] = false;
        }
        if (turn % 16 == 0) check_lists(&children);
        if (turn % 64 == 0) check_finds(&children, names, there);
    }
    fli_children_fini(&children);
    same(blocks, 0);
}

/* If the hash tables cannot grow, they still find every child. */
TEST(if_the_tables_cannot_grow_every_child_is_still_found)
{
    static char  names[64][8];
    fli_children children;
    fli_children_init(&children, (filch_memory){ .alloc = count_alloc });
    most = 0;
    filch_child first = { .id = "first" };
    same(fli_children_add(&children, &first, NULL), FILCH_ENOMEM);
    same(children.count, 0);
    most = sizeof(fli_child); /* a child can be allocated, but larger hash tables cannot */
    for (int i = 0; i < 64; i++) {
        filch_child spec = { .id = names[i] };
        snprintf(names[i], sizeof names[i], "c%d", i);
        ok(fli_children_add(&children, &spec, NULL));
    }
    most = SIZE_MAX;
    assert_true(children.room < 16);
    for (int i = 0; i < 64; i++) assert_non_null(fli_children_named(&children, names[i]));
    check_lists(&children);
    fli_children_fini(&children);
    same(blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_indexes_agree_with_a_search_of_all_children),
        cmocka_unit_test(if_the_tables_cannot_grow_every_child_is_still_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
