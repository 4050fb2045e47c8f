/* alloc_test.c - a scheduler or node is not created with an allocator that returns misaligned blocks. */
#include <stdalign.h>
#include <stddef.h>

#include "api/fixture.h"

static int64_t live;
static size_t  shift_from; /* blocks of at least this size are misaligned by 8 bytes */

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
        cmocka_unit_test(a_misaligned_allocator_is_refused_when_a_node_is_created),
        cmocka_unit_test(an_aligned_allocator_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
