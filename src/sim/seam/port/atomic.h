/* atomic.h - the simulator's atomics: the same names as in src/port/atomic.h, and each operation is a point. All
 * virtual threads run on one real thread, so the operations themselves need not be atomic. The memory order in a name
 * has no effect here: the explorer (sim/weak.h) checks memory orders, see docs/PROOF.md. */
#ifndef FLI_PORT_ATOMIC_H
#define FLI_PORT_ATOMIC_H

#include <stdatomic.h>

#include "sim/engine.h"

#define FLI_ATOMIC(T) _Atomic(T)
#define FLI_LINE 128

#define fli_atomic_init(at, value) atomic_init((at), (value))

#define FLI_R memory_order_relaxed
#define FLI_AT(name) (fli_sim_point(name))

#define fli_load_rlx(at) (FLI_AT("load_rlx"), atomic_load_explicit((at), FLI_R))
#define fli_load_acq(at) (FLI_AT("load_acq"), atomic_load_explicit((at), FLI_R))
#define fli_store_rlx(at, value) (FLI_AT("store_rlx"), atomic_store_explicit((at), (value), FLI_R))
#define fli_store_rel(at, value) (FLI_AT("store_rel"), atomic_store_explicit((at), (value), FLI_R))
#define fli_add_rlx(at, value) (FLI_AT("add_rlx"), atomic_fetch_add_explicit((at), (value), FLI_R))
#define fli_add_rel(at, value) (FLI_AT("add_rel"), atomic_fetch_add_explicit((at), (value), FLI_R))
#define fli_add_acqrel(at, value) (FLI_AT("add_acqrel"), atomic_fetch_add_explicit((at), (value), FLI_R))
#define fli_sub_acqrel(at, value) (FLI_AT("sub_acqrel"), atomic_fetch_sub_explicit((at), (value), FLI_R))
#define fli_and_acqrel(at, value) (FLI_AT("and_acqrel"), atomic_fetch_and_explicit((at), (value), FLI_R))
#define fli_swap_rlx(at, value) (FLI_AT("swap_rlx"), atomic_exchange_explicit((at), (value), FLI_R))
#define fli_swap_acq(at, value) (FLI_AT("swap_acq"), atomic_exchange_explicit((at), (value), FLI_R))
#define fli_swap_rel(at, value) (FLI_AT("swap_rel"), atomic_exchange_explicit((at), (value), FLI_R))
#define fli_swap_acqrel(at, value) (FLI_AT("swap_acqrel"), atomic_exchange_explicit((at), (value), FLI_R))

#define fli_cas_acq(at, expected, wanted) \
    (FLI_AT("cas_acq"), atomic_compare_exchange_strong_explicit((at), (expected), (wanted), FLI_R, FLI_R))
#define fli_cas_rel(at, expected, wanted) \
    (FLI_AT("cas_rel"), atomic_compare_exchange_strong_explicit((at), (expected), (wanted), FLI_R, FLI_R))
#define fli_cas_acqrel(at, expected, wanted) \
    (FLI_AT("cas_acqrel"), atomic_compare_exchange_strong_explicit((at), (expected), (wanted), FLI_R, FLI_R))
#define fli_cas_acqrel_acq(at, expected, wanted) \
    (FLI_AT("cas_acqrel_acq"), atomic_compare_exchange_strong_explicit((at), (expected), (wanted), FLI_R, FLI_R))

/* A weak compare-and-swap may fail spuriously. Here it fails as often as the simulation's config says (weak_fail), and
 * *expected then gets the value in memory, as on a real machine. */
#define FLI_WEAK(name, at, expected, wanted)                                  \
    (FLI_AT(name), fli_sim_weak_fails()                                       \
                       ? (*(expected) = atomic_load_explicit((at), FLI_R), 0) \
                       : atomic_compare_exchange_strong_explicit((at), (expected), (wanted), FLI_R, FLI_R))
#define fli_cas_weak_acqrel(at, expected, wanted) FLI_WEAK("cas_weak_acqrel", at, expected, wanted)
#define fli_cas_weak_rlx(at, expected, wanted) FLI_WEAK("cas_weak_rlx", at, expected, wanted)
#define fli_cas_weak_rel(at, expected, wanted) FLI_WEAK("cas_weak_rel", at, expected, wanted)

#define fli_count(at, value) fli_store_rlx((at), fli_load_rlx(at) + (value))
#define fli_count_rel(at, value) fli_store_rel((at), fli_load_rlx(at) + (value))

#endif
