/* atomic.h - the explorer's atomics: the same names as in src/port/atomic.h. Each operation is simulated by the rules
 * for the memory order in its name (sim/weak.h). */
#ifndef FLI_PORT_ATOMIC_H
#define FLI_PORT_ATOMIC_H

#include <stdint.h>

#include "sim/weak.h"

#define FLI_ATOMIC(T) T
#define FLI_LINE 128

#define FLI_WEAK_TEXT_(x) #x
#define FLI_WEAK_TEXT(x) FLI_WEAK_TEXT_(x)
/* the last two arguments of each operation: `where` and `function` */
#define FLI_WEAK_HERE(name, at) __FILE__ ":" FLI_WEAK_TEXT(__LINE__) "  " name "(" #at ")", __func__
#define FLI_WEAK_BITS(value) ((uint64_t)(uintptr_t)(value))
#define FLI_WEAK_AS(at, bits) ((__typeof__(*(at)))(uintptr_t)(bits))

#define fli_atomic_init(at, value) fli_weak_init((at), sizeof *(at), FLI_WEAK_BITS(value))

#define FLI_WEAK_LOAD(name, at, order) \
    FLI_WEAK_AS(at, fli_weak_load((at), sizeof *(at), FLI_WEAK_##order, FLI_WEAK_HERE(name, at)))
#define fli_load_rlx(at) FLI_WEAK_LOAD("load_rlx", at, RLX)
#define fli_load_acq(at) FLI_WEAK_LOAD("load_acq", at, ACQ)

#define FLI_WEAK_STORE(name, at, value, order) \
    fli_weak_store((at), sizeof *(at), FLI_WEAK_BITS(value), FLI_WEAK_##order, FLI_WEAK_HERE(name, at))
#define fli_store_rlx(at, value) FLI_WEAK_STORE("store_rlx", at, value, RLX)
#define fli_store_rel(at, value) FLI_WEAK_STORE("store_rel", at, value, REL)

#define FLI_WEAK_RMW(name, at, what, value, order)                                                            \
    FLI_WEAK_AS(at, fli_weak_rmw((at), sizeof *(at), FLI_WEAK_##what, FLI_WEAK_BITS(value), FLI_WEAK_##order, \
                                 FLI_WEAK_HERE(name, at)))
#define fli_add_rlx(at, value) FLI_WEAK_RMW("add_rlx", at, ADD, value, RLX)
#define fli_add_rel(at, value) FLI_WEAK_RMW("add_rel", at, ADD, value, REL)
#define fli_add_acqrel(at, value) FLI_WEAK_RMW("add_acqrel", at, ADD, value, ACQREL)
#define fli_sub_acqrel(at, value) FLI_WEAK_RMW("sub_acqrel", at, SUB, value, ACQREL)
#define fli_and_acqrel(at, value) FLI_WEAK_RMW("and_acqrel", at, AND, value, ACQREL)
#define fli_swap_rlx(at, value) FLI_WEAK_RMW("swap_rlx", at, SWAP, value, RLX)
#define fli_swap_acq(at, value) FLI_WEAK_RMW("swap_acq", at, SWAP, value, ACQ)
#define fli_swap_rel(at, value) FLI_WEAK_RMW("swap_rel", at, SWAP, value, REL)
#define fli_swap_acqrel(at, value) FLI_WEAK_RMW("swap_acqrel", at, SWAP, value, ACQREL)

#define FLI_WEAK_CAS(name, at, expected, wanted, order, fail_order, may_fail)                                    \
    fli_weak_cas((at), sizeof *(at), (expected), FLI_WEAK_BITS(wanted), FLI_WEAK_##order, FLI_WEAK_##fail_order, \
                 may_fail, FLI_WEAK_HERE(name, at))
#define fli_cas_acq(at, expected, wanted) FLI_WEAK_CAS("cas_acq", at, expected, wanted, ACQ, RLX, false)
#define fli_cas_rel(at, expected, wanted) FLI_WEAK_CAS("cas_rel", at, expected, wanted, REL, RLX, false)
#define fli_cas_acqrel(at, expected, wanted) FLI_WEAK_CAS("cas_acqrel", at, expected, wanted, ACQREL, RLX, false)
#define fli_cas_acqrel_acq(at, expected, wanted) \
    FLI_WEAK_CAS("cas_acqrel_acq", at, expected, wanted, ACQREL, ACQ, false)
#define fli_cas_weak_acqrel(at, expected, wanted) \
    FLI_WEAK_CAS("cas_weak_acqrel", at, expected, wanted, ACQREL, RLX, true)
#define fli_cas_weak_rlx(at, expected, wanted) FLI_WEAK_CAS("cas_weak_rlx", at, expected, wanted, RLX, RLX, true)
#define fli_cas_weak_rel(at, expected, wanted) FLI_WEAK_CAS("cas_weak_rel", at, expected, wanted, REL, RLX, true)

/* Used only by mutants (code with a bug planted by a test): operations with a weaker memory order than the code uses,
 * for example only acquire instead of acquire and release. */
#define fli_cas_weak_acq(at, expected, wanted) FLI_WEAK_CAS("cas_weak_acq", at, expected, wanted, ACQ, RLX, true)
#define fli_add_acq(at, value) FLI_WEAK_RMW("add_acq", at, ADD, value, ACQ)
#define fli_sub_acq(at, value) FLI_WEAK_RMW("sub_acq", at, SUB, value, ACQ)
#define fli_sub_rel(at, value) FLI_WEAK_RMW("sub_rel", at, SUB, value, REL)
#define fli_sub_rlx(at, value) FLI_WEAK_RMW("sub_rlx", at, SUB, value, RLX)
#define fli_and_acq(at, value) FLI_WEAK_RMW("and_acq", at, AND, value, ACQ)
#define fli_and_rel(at, value) FLI_WEAK_RMW("and_rel", at, AND, value, REL)
#define fli_and_rlx(at, value) FLI_WEAK_RMW("and_rlx", at, AND, value, RLX)

#define fli_count(at, value) fli_store_rlx((at), fli_load_rlx(at) + (value))
#define fli_count_rel(at, value) fli_store_rel((at), fli_load_rlx(at) + (value))

#endif
