/* alloc_test.c - a scheduler or node is not created with an allocator that returns misaligned blocks. */
#include <stdalign.h>
#include <stddef.h>

#include "api/fixture.h"

static int64_t live;
static size_t  shift_from;      /* blocks of at least this size are misaligned by 8 bytes */
static int     fail_after = -1; /* number of blocks until the allocator fails; -1: it does not fail */

/* An allocator that puts 16 bytes in front of each block, or only 8 bytes if the block is to be misaligned. */
static void *crooked(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    size_t before = old != NULL && old_size >= shift_from ? 8 : 16;
    char  *raw = old != NULL ? (char *)old - before : NULL;
    if (size == 0) {
        live--;
        free(raw);
        return NULL;
    }
    if (fail_after == 0) return NULL;
    if (fail_after > 0) fail_after--;
    char *made = malloc(size + 16);
    if (made == NULL) return NULL;
    made += size >= shift_from ? 8 : 16;
    if (old != NULL) {
        memcpy(made, old, old_size < size ? old_size : size);
        free(raw);
    } else {
        live++;
    }
    return made;
}

/* An arena in which a block begins at a multiple of `round` bytes, or of `round_resized` bytes if it was resized, plus
 * `front` bytes. Only the newest block returns its memory to the arena when it is freed. */
static struct {
    size_t round, round_resized, front, top, blocks;
    char  *newest;
    alignas(16) char memory[8 << 20];
} arena;

static void *arena_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    if (size == 0) {
        arena.blocks--;
        if (old == arena.newest) arena.top = (size_t)(arena.newest - arena.memory) - arena.front;
        return NULL;
    }
    size_t round = old != NULL ? arena.round_resized : arena.round;
    size_t at = (arena.top + round - 1) / round * round + arena.front;
    if (at + size > sizeof arena.memory) return NULL;
    arena.top = at + size;
    arena.newest = &arena.memory[at];
    if (old != NULL) memcpy(arena.newest, old, old_size < size ? old_size : size);
    else arena.blocks++;
    return arena.newest;
}

TEST(a_misaligned_allocator_is_refused_when_a_scheduler_is_created)
{
    static const size_t from[] = { 0, 30, 100, 4000 };
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        filch_sched  *sched = NULL;
        opt.workers = FILCH_NO_WORKERS;
        opt.alloc = crooked;
        shift_from = from[i];
        same(filch_sched_create(&sched, &opt), FILCH_EINVAL);
        assert_null(sched);
        same(live, 0);
    }
}

/* In each of these arenas a block is aligned if no other block is held when it is allocated. */
TEST(an_arena_that_rounds_to_less_than_an_alignment_is_refused)
{
    static const struct {
        size_t round, round_resized, front;
        bool   sound;
    } arenas[] = {
        { 8, 8, 0, false },  { 8, 8, 8, false },   { 8, 8, 16, false }, { 4, 4, 0, false },   { 1, 1, 0, false },
        { 16, 8, 0, false }, { 16, 8, 16, false }, { 16, 16, 0, true }, { 16, 16, 16, true },
    };
    for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        filch_sched  *sched = NULL;
        arena.round = arenas[i].round;
        arena.round_resized = arenas[i].round_resized;
        arena.front = arenas[i].front;
        arena.top = (16 - arena.front) % 16; /* so that the first block is aligned */
        opt.workers = FILCH_NO_WORKERS;
        opt.max_processes = 10;
        opt.alloc = arena_alloc;
        same(filch_sched_create(&sched, &opt), arenas[i].sound ? FILCH_OK : FILCH_EINVAL);
        if (arenas[i].sound) ok(filch_sched_stop(sched, 0, NULL));
        same(arena.blocks, 0);
    }
}

TEST(an_allocator_that_fails_gets_all_blocks_back)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched = NULL;
    filch_err     err = FILCH_ENOMEM;
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = crooked;
    shift_from = SIZE_MAX;
    for (int i = 0; err != FILCH_OK; i++) {
        fail_after = i;
        err = filch_sched_create(&sched, &opt);
        if (err == FILCH_OK) continue;
        same(err, FILCH_ENOMEM);
        assert_null(sched);
        same(live, 0);
    }
    fail_after = -1;
    ok(filch_sched_stop(sched, 0, NULL));
    same(live, 0);
}

TEST(a_misaligned_allocator_is_refused_when_a_node_is_created)
{
    filch_node_options opt = FILCH_NODE_OPTIONS_INIT;
    filch_node        *node = NULL;
    opt.alloc = crooked;
    shift_from = 0;
    same(filch_node_create(&node, &opt), FILCH_EINVAL);
    assert_null(node);
    same(live, 0);
}

TEST(an_aligned_allocator_is_accepted)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched = NULL;
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = crooked;
    shift_from = SIZE_MAX;
    ok(filch_sched_create(&sched, &opt));
    ok(filch_sched_stop(sched, 0, NULL));
    same(live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misaligned_allocator_is_refused_when_a_scheduler_is_created),
        cmocka_unit_test(an_arena_that_rounds_to_less_than_an_alignment_is_refused),
        cmocka_unit_test(an_allocator_that_fails_gets_all_blocks_back),
        cmocka_unit_test(a_misaligned_allocator_is_refused_when_a_node_is_created),
        cmocka_unit_test(an_aligned_allocator_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
