/* atomic.h - the atomics of the counting build. In the include path this file comes before src/port/atomic.h. It
 * replaces the operations of <stdatomic.h> by macros that count first, and then includes src/port/atomic.h. So every
 * read-modify-write of src/port/atomic.h is counted, whatever its name. The macros evaluate the address twice, so it
 * must have no side effects; in Filch it is always the address of a field. */
#ifndef COUNTING_PORT_ATOMIC_H
#define COUNTING_PORT_ATOMIC_H

#include <stdatomic.h>

#include "counting/counted.h"

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_xor_explicit

/* The compiler's own atomic operations. Calls of the macros COUNTED_* are not counted. */
#if defined(__clang__)
#define COUNTED_LOAD __c11_atomic_load
#define COUNTED_STORE __c11_atomic_store
#define COUNTED_SWAP __c11_atomic_exchange
#define COUNTED_ADD __c11_atomic_fetch_add
#define COUNTED_SUB __c11_atomic_fetch_sub
#define COUNTED_AND __c11_atomic_fetch_and
#define COUNTED_OR __c11_atomic_fetch_or
#define COUNTED_XOR __c11_atomic_fetch_xor
#define COUNTED_CAS(at, expected, wanted, weak, yes, no) \
    __c11_atomic_compare_exchange_strong(at, expected, wanted, yes, no)
#else
#define COUNTED_LOAD __atomic_load_n
#define COUNTED_STORE __atomic_store_n
#define COUNTED_SWAP __atomic_exchange_n
#define COUNTED_ADD __atomic_fetch_add
#define COUNTED_SUB __atomic_fetch_sub
#define COUNTED_AND __atomic_fetch_and
#define COUNTED_OR __atomic_fetch_or
#define COUNTED_XOR __atomic_fetch_xor
#define COUNTED_CAS(at, expected, wanted, weak, yes, no) \
    __atomic_compare_exchange_n(at, expected, wanted, weak, yes, no)
#endif

#define atomic_load_explicit(at, order) (counted_load(at), COUNTED_LOAD((at), (order)))
#define atomic_store_explicit(at, value, order) (counted_store(at), COUNTED_STORE((at), (value), (order)))
#define atomic_exchange_explicit(at, value, order) (counted_rmw(at), COUNTED_SWAP((at), (value), (order)))
#define atomic_fetch_add_explicit(at, value, order) (counted_rmw(at), COUNTED_ADD((at), (value), (order)))
#define atomic_fetch_sub_explicit(at, value, order) (counted_rmw(at), COUNTED_SUB((at), (value), (order)))
#define atomic_fetch_and_explicit(at, value, order) (counted_rmw(at), COUNTED_AND((at), (value), (order)))
#define atomic_fetch_or_explicit(at, value, order) (counted_rmw(at), COUNTED_OR((at), (value), (order)))
#define atomic_fetch_xor_explicit(at, value, order) (counted_rmw(at), COUNTED_XOR((at), (value), (order)))
#define atomic_compare_exchange_strong_explicit(at, expected, wanted, yes, no) \
    (counted_rmw(at), COUNTED_CAS((at), (expected), (wanted), 0, (yes), (no)))
#define atomic_compare_exchange_weak_explicit(at, expected, wanted, yes, no) \
    (counted_rmw(at), COUNTED_CAS((at), (expected), (wanted), 1, (yes), (no)))

#include "../../../src/port/atomic.h"

#endif
