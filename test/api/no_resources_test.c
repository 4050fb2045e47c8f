/* no_resources_test.c - system calls fail: locks, conditions, threads, descriptors, malloc, entropy. Each failure is
 * reported by an error code and leaves nothing behind, whichever call fails first.
 *
 * The linker puts the functions below in place of the system's (--wrap in test/CMakeLists.txt). These functions count
 * the resources in use, and fail the n-th request for one kind of resource.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <filch.h>

#include "port/cpu.h"
#include "port/random.h"
#include "port/wakefd.h"
#include "support/check.h"
#include "support/until.h"

/* ---- replaced system functions, which count resources and can be made to fail ---- */

typedef enum thing {
    LOCK,
    CONDITION,
    ATTRIBUTE,
    THREAD,
    DESCRIPTOR,
    MEMORY,
    MASK,
    ENTROPY,
    CPUS,
    CALL,
    CONDITION_CLOCK,
    THINGS
} thing;

static struct {
    atomic_int  held[THINGS];
    atomic_int  what;    /* the kind of resource that fails */
    atomic_long left;    /* request number `left` from now fails; 0: no request fails */
    atomic_int  refused; /* number of requests that failed */
} sys;

static bool refuses(thing t)
{
    if (atomic_load(&sys.what) != (int)t || atomic_load(&sys.left) <= 0) return false;
    if (atomic_fetch_sub(&sys.left, 1) != 1) return false;
    atomic_fetch_add(&sys.refused, 1);
    return true;
}

static bool gets(thing t)
{
    if (refuses(t)) return false;
    atomic_fetch_add(&sys.held[t], 1);
    return true;
}

static void gives_back(thing t)
{
    atomic_fetch_sub(&sys.held[t], 1);
}

/* Makes request number `nth` for resource `t` fail. */
static void refuse(thing t, long nth)
{
    atomic_store(&sys.refused, 0);
    atomic_store(&sys.what, (int)t);
    atomic_store(&sys.left, nth);
}

/* Lets all requests for resources succeed again. Returns true if a request had failed. */
static bool was_refused(void)
{
    atomic_store(&sys.left, 0);
    return atomic_load(&sys.refused) > 0;
}

/* Declares the real system function and begins the function that replaces it. */
#define INSTEAD(type, name, ...)     \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

INSTEAD(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    return gets(LOCK) ? __real_pthread_mutex_init(mutex, attr) : ENOMEM;
}

INSTEAD(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    gives_back(LOCK);
    return __real_pthread_mutex_destroy(mutex);
}

INSTEAD(int, pthread_cond_init, pthread_cond_t *cond, const pthread_condattr_t *attr)
{
    return gets(CONDITION) ? __real_pthread_cond_init(cond, attr) : ENOMEM;
}

INSTEAD(int, pthread_cond_destroy, pthread_cond_t *cond)
{
    gives_back(CONDITION);
    return __real_pthread_cond_destroy(cond);
}

INSTEAD(int, pthread_condattr_init, pthread_condattr_t *attr)
{
    return gets(ATTRIBUTE) ? __real_pthread_condattr_init(attr) : ENOMEM;
}

INSTEAD(int, pthread_condattr_destroy, pthread_condattr_t *attr)
{
    gives_back(ATTRIBUTE);
    return __real_pthread_condattr_destroy(attr);
}

/* Replaces pthread_condattr_setclock(). The call can be made to fail; it does not change the count of resources. */
INSTEAD(int, pthread_condattr_setclock, pthread_condattr_t *attr, clockid_t clock)
{
    return refuses(CONDITION_CLOCK) ? EINVAL : __real_pthread_condattr_setclock(attr, clock);
}

INSTEAD(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return gets(THREAD) ? __real_pthread_create(thread, attr, run, arg) : EAGAIN;
}

INSTEAD(int, pthread_join, pthread_t thread, void **result)
{
    gives_back(THREAD);
    return __real_pthread_join(thread, result);
}

INSTEAD(int, eventfd, unsigned count, int flags)
{
    if (gets(DESCRIPTOR)) return __real_eventfd(count, flags);
    errno = EMFILE;
    return -1;
}

INSTEAD(int, epoll_create1, int flags)
{
    if (gets(DESCRIPTOR)) return __real_epoll_create1(flags);
    errno = EMFILE;
    return -1;
}

INSTEAD(int, timerfd_create, int clock, int flags)
{
    if (gets(DESCRIPTOR)) return __real_timerfd_create(clock, flags);
    errno = EMFILE;
    return -1;
}

INSTEAD(int, close, int fd)
{
    gives_back(DESCRIPTOR);
    return __real_close(fd);
}

INSTEAD(void *, malloc, size_t size)
{
    return gets(MEMORY) ? __real_malloc(size) : NULL;
}

/* Replaced because a compiler may combine malloc and memset into calloc. */
INSTEAD(void *, calloc, size_t count, size_t size)
{
    return gets(MEMORY) ? __real_calloc(count, size) : NULL;
}

INSTEAD(void *, realloc, void *old, size_t size)
{
    if (old == NULL) return __wrap_malloc(size);
    return refuses(MEMORY) ? NULL : __real_realloc(old, size);
}

INSTEAD(void, free, void *old)
{
    if (old != NULL) gives_back(MEMORY);
    __real_free(old);
}

INSTEAD(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *before)
{
    return refuses(MASK) ? EINVAL : __real_pthread_sigmask(how, set, before);
}

static bool only_zeros;

INSTEAD(ssize_t, getrandom, void *bytes, size_t size, unsigned flags)
{
    if (only_zeros) return memset(bytes, 0, size), (ssize_t)size;
    if (!refuses(ENTROPY)) return __real_getrandom(bytes, size, flags);
    errno = EAGAIN;
    return -1;
}

static bool no_cpus;

INSTEAD(int, sched_getaffinity, pid_t pid, size_t size, cpu_set_t *mask)
{
    if (no_cpus) return memset(mask, 0, size), 0;
    if (!refuses(CPUS)) return __real_sched_getaffinity(pid, size, mask);
    errno = EINVAL;
    return -1;
}

INSTEAD(ssize_t, write, int fd, const void *bytes, size_t size)
{
    if (!refuses(CALL)) return __real_write(fd, bytes, size);
    errno = EINTR;
    return -1;
}

INSTEAD(ssize_t, read, int fd, void *bytes, size_t size)
{
    if (!refuses(CALL)) return __real_read(fd, bytes, size);
    errno = EINTR;
    return -1;
}

/* ---- books: checks that all resources were returned ---- */

typedef struct books {
    int held[THINGS];
} books;

static books now(void)
{
    books b;
    for (int i = 0; i < THINGS; i++) b.held[i] = atomic_load(&sys.held[i]);
    return b;
}

static void same_books(books before)
{
    books after = now();
    for (int i = 0; i < THINGS; i++) same(after.held[i], before.held[i]);
}

/* ---- creating schedulers ---- */

/* Creates a scheduler while request number `nth` for `t` fails. Returns true if there was such a request and the call
 * reported the failure. */
static bool create_without(int32_t workers, thing t, long nth)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched = NULL;
    books         before = now();
    opt.workers = workers;
    refuse(t, nth);
    filch_err err = filch_sched_create(&sched, &opt);
    bool      refused = was_refused();
    if (refused) {
        assert_null(sched);
        assert_true(err == FILCH_ESYS || err == FILCH_ENOMEM);
        same(err == FILCH_ENOMEM, t == MEMORY);
    } else {
        ok(err);
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    }
    same_books(before);
    return refused;
}

static void create_sweep(int32_t workers, thing t, long least)
{
    long nth = 1;
    while (create_without(workers, t, nth)) nth++;
    assert_true(nth > least);
}

TEST(a_scheduler_without_locks_or_conditions_is_not_created_and_leaves_nothing)
{
    create_sweep(2, LOCK, 5);
    create_sweep(2, CONDITION, 3);
    create_sweep(2, ATTRIBUTE, 3);
    create_sweep(2, CONDITION_CLOCK, 3);
    create_sweep(FILCH_NO_WORKERS, LOCK, 5);
    create_sweep(FILCH_NO_WORKERS, CONDITION, 3);
}

TEST(a_scheduler_without_its_threads_is_not_created_and_leaves_none)
{
    create_sweep(1, THREAD, 1);
    create_sweep(4, THREAD, 4);
}

TEST(a_scheduler_without_workers_and_without_descriptors_is_not_created)
{
    create_sweep(FILCH_NO_WORKERS, DESCRIPTOR, 1);
}

TEST(a_scheduler_without_memory_of_malloc_is_not_created_and_leaves_nothing)
{
    create_sweep(2, MEMORY, 10);
    create_sweep(FILCH_NO_WORKERS, MEMORY, 10);
}

TEST(threads_start_even_if_signals_cannot_be_blocked)
{
    books         before = now();
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched = NULL;
    opt.workers = 1;
    refuse(MASK, 1);
    ok(filch_sched_create(&sched, &opt));
    assert_true(was_refused());
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    same_books(before);
}

/* ---- no memory for registries and values, which are allocated by malloc ---- */

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

TEST(a_registry_without_memory_returns_enomem_and_keeps_its_handlers)
{
    enum { FIRST = 1000, MANY = 100 };
    bool refused = true;
    for (long nth = 1; refused; nth++) {
        books           before = now();
        filch_registry *registry = NULL;
        refuse(MEMORY, nth);
        filch_err err = filch_registry_create(&registry);
        for (uint32_t i = 0; i < MANY && err == FILCH_OK; i++) {
            err = filch_registry_add(registry, FIRST + i, handle, NULL);
            if (err != FILCH_ENOMEM) continue;
            /* The handlers that were added before the failure are still registered. The handler that could not be added
             * is not registered, and can be added now. */
            if (i > 0) same(filch_registry_add(registry, FIRST + i - 1, handle, NULL), FILCH_EEXISTS);
            err = filch_registry_add(registry, FIRST + i, handle, NULL);
        }
        refused = was_refused();
        if (registry == NULL) same(err, FILCH_ENOMEM);
        else ok(err);
        filch_registry_destroy(registry);
        same_books(before);
    }
}

TEST(values_without_memory_return_enomem)
{
    static const char large[100] = "more than fits in an event";
    bool              refused = true;
    for (long nth = 1; refused; nth++) {
        books         before = now();
        filch_values *values = NULL;
        refuse(MEMORY, nth);
        filch_err err = filch_values_create(NULL, "key", filch_bytes(large, sizeof large), &values);
        refused = was_refused();
        same(err, refused ? FILCH_ENOMEM : FILCH_OK);
        same(values == NULL, refused);
        filch_values_drop(values);
        same_books(before);
    }
}

/* ---- replaying ---- */

#define BROKEN (FILCH_EUSER + 3)

static struct {
    void  *bytes;
    size_t size;
} box;

/* ---- no locks or memory for relations: monitors, links, names, groups, supervisors, scopes ---- */

static filch_err resting_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type resting = { .name = "resting", .step = resting_step };

static filch_err relate_everything(filch_sched *sched, filch_pid a, filch_pid b)
{
    static const filch_child      child = { .id = "child", .type = &resting };
    static const filch_supervisor tree = { .children = &child, .child_count = 1 };
    static const filch_child      late = { .id = "late", .type = &resting };
    filch_node                   *node = NULL;
    filch_values                 *scope = NULL;
    filch_pid                     pid;
    filch_err                     err = filch_monitor(sched, a, b, 1, NULL);
    if (err == FILCH_OK) err = filch_node_create(&node, NULL);
    if (err == FILCH_OK) err = filch_values_scope(NULL, &scope);
    if (err == FILCH_OK) err = filch_supervise(sched, &tree, NULL, &pid);
    if (err == FILCH_OK) err = filch_child_start(sched, pid, &late);
    if (err == FILCH_OK) err = filch_child_list(sched, pid);
    filch_values_drop(scope);
    filch_node_destroy(node);
    return err;
}

/* Makes relations while request number `nth` for `t` fails. Returns true if there was such a request and the call
 * reported the failure. */
static bool relate_without(thing t, long nth)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     a, b;
    uint32_t      ran;
    books         before = now();
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &opt));
    ok(filch_spawn(sched, &resting, NULL, &a));
    ok(filch_spawn(sched, &resting, NULL, &b));
    /* These spawns make the ring of the global queue grow (with FLI_SMALL to its maximum). If the ring had to grow
     * later and could not, no error code would report it. */
    for (int i = 0; i < 8; i++) ok(filch_spawn(sched, &resting, NULL, NULL));
    refuse(t, nth);
    filch_err err = relate_everything(sched, a, b);
    bool      refused = was_refused();
    refuse(t, 0);
    if (refused) assert_true(err == FILCH_ESYS || err == FILCH_ENOMEM);
    else ok(err);
    ok(filch_monitor(sched, a, b, 1, NULL)); /* succeeds now */
    do ok(filch_tick(sched, 0, &ran));
    while (ran > 0);
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    same_books(before);
    return refused;
}

TEST(relations_without_locks_or_memory_fail_and_leak_nothing)
{
    static const thing things[] = { LOCK, MEMORY };
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++) {
        long nth = 1;
        while (relate_without(things[i], nth)) nth++;
        assert_true(nth > 5);
    }
}

static void on_blackbox(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    (void)user, (void)pid, (void)error;
    box.bytes = bytes != NULL ? malloc(size) : NULL;
    box.size = size;
    if (box.bytes != NULL) memcpy(box.bytes, bytes, size);
}

static const char page[200] = "a page that needs memory wherever it goes";

static filch_err brief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static const filch_type brief_type = { .name = "brief", .step = brief_step };

static filch_err busy_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    bool whole = filch_size(args) == sizeof page && filch_size(filch_ctx_value(ctx, "a")) == sizeof page;
    return method == NULL && whole ? FILCH_OK : FILCH_EINVAL;
}

/* In a step with at least 10 events the process makes a send, a yielded send and a spawn, and ignores the results. It
 * fails at the message "break". */
static filch_err busy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    (void)self;
    if (count > 0 && strcmp(filch_text(&events[count - 1].data), "break") == 0) return BROKEN;
    if (count < 10) return filch_idle(out); /* so few events come from earlier calls of this function */
    (void)!filch_send(sched, filch_ctx_self(ctx), filch_bytes(page, sizeof page));
    (void)!filch_yield_send(out, 1, filch_ctx_self(ctx), filch_bytes(page, sizeof page));
    (void)!filch_spawn(sched, &brief_type, NULL, NULL);
    return filch_idle(out);
}

static const filch_type busy_type = { .name = "busy", .size = 64, .init = busy_init, .step = busy_step };

/* Records a process with `many` inherited values and `many` events in one step. */
static void record(uint32_t many)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched = NULL;
    filch_pid           pid;
    opt.workers = FILCH_NO_WORKERS;
    opt.batch_max = 2 * many;
    opt.blackbox = FILCH_BLACKBOX_STEPS;
    opt.on_blackbox = on_blackbox;
    ok(filch_sched_create(&sched, &opt));
    for (uint32_t i = 0; i < many; i++) {
        filch_values *longer = NULL;
        char          key[2] = { (char)('a' + i % 20), '\0' };
        ok(filch_values_create(how.values, key, filch_bytes(page, sizeof page), &longer));
        filch_values_drop(how.values);
        how.values = longer;
    }
    how.args = filch_bytes(page, sizeof page);
    ok(filch_spawn(sched, &busy_type, &how, &pid));
    filch_values_drop(how.values);
    ok(filch_tick(sched, 1, NULL));
    for (uint32_t i = 0; i < many; i++) ok(filch_send(sched, pid, filch_bytes(page, sizeof page)));
    until(filch_tick(sched, 0, NULL) == FILCH_OK && filch_next_timeout(sched) == FILCH_FOREVER);
    ok(filch_send(sched, pid, filch_str("break")));
    until(filch_tick(sched, 0, NULL) == FILCH_OK && filch_next_timeout(sched) == FILCH_FOREVER);
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    assert_non_null(box.bytes);
}

/* Replays while request number `nth` for `t` fails. Returns true if there was such a request. The replay must report
 * the failure, or a difference. */
static bool replay_without(thing t, long nth)
{
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    books                 before = now();
    refuse(t, nth);
    filch_err err = filch_blackbox_replay(box.bytes, box.size, &busy_type, &report);
    bool      refused = was_refused();
    if (!refused) {
        ok(err);
        assert_string_equal(report.text, "");
        same(report.again, 1);
    } else if (err == FILCH_OK) {
        assert_true(report.again || report.text[0] != '\0');
    } else {
        same(err, t == MEMORY ? FILCH_ENOMEM : FILCH_ESYS);
        same(report.again, 0);
    }
    same_books(before);
    return refused;
}

TEST(a_replay_without_memory_or_locks_fails_and_leaks_nothing)
{
    record(70); /* 70 events and values are more than the initial capacity of the replay's arrays */
    for (thing t = LOCK; t <= MEMORY; t++) {
        long nth = 1, stride = t == MEMORY && scaled(100) < 10 ? 7 : 1;
        while (replay_without(t, nth)) nth += stride;
        assert_true(nth > 1 || t == THREAD);
    }
    free(box.bytes);
}

/* ---- single functions ---- */

TEST(a_seed_is_made_without_entropy_and_is_never_zero)
{
    refuse(ENTROPY, 1);
    assert_true(fli_random_u64() != 0);
    assert_true(was_refused());
    only_zeros = true;
    assert_true(fli_random_u64() != 0);
    only_zeros = false;
}

TEST(the_cpu_count_is_1_if_the_system_reports_none)
{
    refuse(CPUS, 1);
    same(fli_cpu_count(), 1);
    assert_true(was_refused());
    no_cpus = true;
    same(fli_cpu_count(), 1);
    no_cpus = false;
}

TEST(a_wake_descriptor_write_interrupted_by_a_signal_is_repeated)
{
    int      fd;
    uint64_t rings = 0;
    ok(fli_wakefd_open(&fd));
    refuse(CALL, 1);
    fli_wakefd_signal(fd);
    assert_true(was_refused());
    same(__real_read(fd, &rings, sizeof rings), sizeof rings);
    same(rings, 1);
    fli_wakefd_signal(fd);
    refuse(CALL, 1);
    fli_wakefd_clear(fd);
    assert_true(was_refused());
    same(__real_read(fd, &rings, sizeof rings), -1);
    same(errno, EAGAIN);
    fli_wakefd_close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scheduler_without_locks_or_conditions_is_not_created_and_leaves_nothing),
        cmocka_unit_test(a_scheduler_without_its_threads_is_not_created_and_leaves_none),
        cmocka_unit_test(a_scheduler_without_workers_and_without_descriptors_is_not_created),
        cmocka_unit_test(a_scheduler_without_memory_of_malloc_is_not_created_and_leaves_nothing),
        cmocka_unit_test(threads_start_even_if_signals_cannot_be_blocked),
        cmocka_unit_test(a_registry_without_memory_returns_enomem_and_keeps_its_handlers),
        cmocka_unit_test(values_without_memory_return_enomem),
        cmocka_unit_test(relations_without_locks_or_memory_fail_and_leak_nothing),
        cmocka_unit_test(a_replay_without_memory_or_locks_fails_and_leaks_nothing),
        cmocka_unit_test(a_seed_is_made_without_entropy_and_is_never_zero),
        cmocka_unit_test(the_cpu_count_is_1_if_the_system_reports_none),
        cmocka_unit_test(a_wake_descriptor_write_interrupted_by_a_signal_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
