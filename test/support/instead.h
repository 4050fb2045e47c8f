/* instead.h - system calls that a test can make fail. INSTEAD(type, NAME, parameters, arguments) defines the function
 * that the linker puts in place of NAME in this test program (filch_instead in test/CMakeLists.txt). It calls the real
 * function, unless the test has called refuse(NAME, ...). Safe from any thread. */
#ifndef FILCH_TEST_INSTEAD_H
#define FILCH_TEST_INSTEAD_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct fault {
    atomic_int passes; /* number of calls that still succeed before calls fail */
    atomic_int times;  /* number of calls that fail after the `passes` calls */
    atomic_int error;
    atomic_int struck; /* number of calls that have failed */
} fault;

/* Decrements *count, which is `passes` or `times` of a fault, if it is positive. Returns true if it was positive. */
static inline bool fault_take(atomic_int *count)
{
    int n = atomic_load(count);
    while (n > 0) {
        if (atomic_compare_exchange_weak(count, &n, n - 1)) return true;
    }
    return false;
}

/* Returns true and sets errno if the present call of the replaced function must fail. */
static inline bool fault_strikes(fault *f)
{
    if (atomic_load(&f->times) == 0 || fault_take(&f->passes) || !fault_take(&f->times)) return false;
    atomic_fetch_add(&f->struck, 1);
    errno = atomic_load(&f->error);
    return true;
}

static inline void fault_set(fault *f, int passes, int times, int error)
{
    atomic_store(&f->times, 0);
    atomic_store(&f->struck, 0);
    atomic_store(&f->passes, passes);
    atomic_store(&f->error, error);
    atomic_store(&f->times, times);
}

/* Lets `passes` more calls of the function succeed, then makes `count` calls fail with errno `why`. */
#define refuse_after(name, passes, count, why) fault_set(&fault_of_##name, (passes), (count), (why))
#define refuse(name, count, why) refuse_after(name, 0, count, why)
#define refuse_no_more(name) fault_set(&fault_of_##name, 0, 0, 0)
/* Returns the number of calls that have failed since the last refuse macro for `name`. */
#define refused(name) atomic_load(&fault_of_##name.struck)

#define INSTEAD_BEGIN(type, name, parameters) \
    static fault fault_of_##name;             \
    type __real_##name parameters;            \
    type __wrap_##name parameters;            \
    type __wrap_##name parameters

/* Defines the replacement of the function `name`, which reports an error by returning -1 and setting errno. */
#define INSTEAD(type, name, parameters, arguments)                                   \
    INSTEAD_BEGIN(type, name, parameters)                                            \
    {                                                                                \
        return fault_strikes(&fault_of_##name) ? (type)-1 : __real_##name arguments; \
    }

/* Defines the replacement of the function `name`, which reports an error by returning an error number. */
#define INSTEAD_CODE(name, parameters, arguments)                                 \
    INSTEAD_BEGIN(int, name, parameters)                                          \
    {                                                                             \
        return fault_strikes(&fault_of_##name) ? errno : __real_##name arguments; \
    }

#endif
