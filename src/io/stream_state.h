/* stream_state.h - whose turn it is with a stream: one word, and every move of it. Nobody else touches the word.
 *
 *   62        32 19    18     17      16   15..8           7..0
 *   generation   ENDED CLOSER CLOSING OPEN writing         reading
 *
 * Each direction is a byte:  phase:2 | READY | EXPIRED | CANCELLED
 *   QUIET  no operation. Only the owner's worker may begin one.                -> BUSY, by that worker.
 *   BUSY   somebody is making system calls for the operation, or settles it.   -> ARMED or QUIET, by him.
 *   ARMED  the operation waits. Whoever moves it to BUSY has it: a worker that heard that the descriptor is ready, the
 *          alarm, a cancel, a close.
 *   READY  something has been reported since the last try. Cleared by the try that follows.
 *   EXPIRED, CANCELLED  came while somebody was BUSY; he sees it when he wants to arm.
 *
 * No report is lost: READY is cleared *before* the system is asked, and arming succeeds only while it is clear, in the
 * same CAS. So a report comes before the question, which then sees what was reported; or after, and then it finds the
 * operation ARMED and takes it, or BUSY and leaves READY, and arming fails.
 *
 * ENDED says that the other side has ended what it writes. A report tells that once, maybe together with the last
 * bytes: from then on there is always something to read, if only the end.
 *
 * A descriptor is closed by the last one who lets go after CLOSING: nobody is inside a system call with it.
 * Design: docs/design/io.md.
 */
#ifndef FLI_IO_STREAM_STATE_H
#define FLI_IO_STREAM_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"

typedef FLI_ATOMIC(uint64_t) fli_stream_state;

typedef enum fli_direction { FLI_READING, FLI_WRITING } fli_direction;

enum { FLI_OP_NONE, FLI_OP_ARMED, FLI_OP_BUSY, FLI_OP_PHASE = 3 };
#define FLI_OP_READY 4u
#define FLI_OP_EXPIRED 8u
#define FLI_OP_CANCELLED 16u
#define FLI_STREAM_OPEN (UINT64_C(1) << 16)
#define FLI_STREAM_CLOSING (UINT64_C(1) << 17)
#define FLI_STREAM_CLOSE_OWNER (UINT64_C(1) << 18)
#define FLI_STREAM_ENDED (UINT64_C(1) << 19)
#define FLI_STREAM_GEN_SHIFT 32
#define FLI_STREAM_GEN_LAST INT32_MAX

static inline uint32_t fli_stream_state_gen(uint64_t word)
{
    return (uint32_t)(word >> FLI_STREAM_GEN_SHIFT);
}

static inline uint64_t fli_stream_state_bits(fli_direction direction, unsigned bits)
{
    return (uint64_t)bits << (direction * 8);
}

static inline unsigned fli_stream_state_phase(uint64_t word, fli_direction direction)
{
    return (unsigned)(word >> (direction * 8)) & FLI_OP_PHASE;
}

/* Returns true if an operation of either direction is BUSY. */
static inline bool fli_stream_state_any_busy(uint64_t word)
{
    return fli_stream_state_phase(word, FLI_READING) == FLI_OP_BUSY ||
           fli_stream_state_phase(word, FLI_WRITING) == FLI_OP_BUSY;
}

static inline uint64_t fli_stream_state_with(uint64_t word, fli_direction direction, unsigned phase)
{
    return (word & ~fli_stream_state_bits(direction, FLI_OP_PHASE)) | fli_stream_state_bits(direction, phase);
}

/* Is this the word of an open stream of that generation? */
static inline bool fli_stream_state_is_open(uint64_t word, uint32_t gen)
{
    return fli_stream_state_gen(word) == gen && (word & (FLI_STREAM_OPEN | FLI_STREAM_CLOSING)) == FLI_STREAM_OPEN;
}

static inline uint64_t fli_stream_state_load(fli_stream_state *state)
{
    return fli_load_acq(state); /* PAIR io.state, acquire half */
}

/* A new stream, both ways READY: the first operation tries. Thread: whoever took the slot. */
static inline void fli_stream_state_open(fli_stream_state *state)
{
    uint64_t gen = fli_load_rlx(state) >> FLI_STREAM_GEN_SHIFT;
    /* PAIR io.state, release half: whoever finds it open finds it complete. */
    fli_store_rel(state, gen << FLI_STREAM_GEN_SHIFT | FLI_STREAM_OPEN |
                             fli_stream_state_bits(FLI_READING, FLI_OP_READY) |
                             fli_stream_state_bits(FLI_WRITING, FLI_OP_READY));
}

typedef enum fli_begin {
    FLI_BEGIN_GONE, /* closed */
    FLI_BEGIN_BUSY, /* another operation is out */
    FLI_BEGIN_TRY,  /* yours; the system may have something */
    FLI_BEGIN_WAIT  /* yours; nothing has changed since it last said "not now" */
} fli_begin;

/* QUIET -> BUSY. Thread: the owner's worker. */
FILCH_MUST_USE static inline fli_begin fli_stream_state_begin_op(fli_stream_state *state, uint32_t gen,
                                                                 fli_direction direction)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_stream_state_is_open(word, gen)) return FLI_BEGIN_GONE;
        if (fli_stream_state_phase(word, direction) != FLI_OP_NONE) return FLI_BEGIN_BUSY;
        bool     ready = (word & fli_stream_state_bits(direction, FLI_OP_READY)) != 0;
        uint64_t wanted = fli_stream_state_with(word & ~fli_stream_state_bits(direction, 0xff), direction, FLI_OP_BUSY);
        /* PAIR io.state, both halves: what the last operation left is ours. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return ready ? FLI_BEGIN_TRY : FLI_BEGIN_WAIT;
    }
}

typedef enum fli_arm {
    FLI_ARM_DONE,    /* ARMED: hands off */
    FLI_ARM_AGAIN,   /* a report came meanwhile: still yours, try again */
    FLI_ARM_EXPIRED, /* still yours: settle it with an error */
    FLI_ARM_CANCELLED,
    FLI_ARM_CLOSING
} fli_arm;

/* BUSY -> ARMED, unless something has come. EXPIRED is cleared by looking at it: it may be of an older alarm. */
FILCH_MUST_USE static inline fli_arm fli_stream_state_arm_op(fli_stream_state *state, fli_direction direction)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        fli_arm  what = FLI_ARM_DONE;
        uint64_t wanted = fli_stream_state_with(word, direction, FLI_OP_ARMED);
        if ((word & FLI_STREAM_CLOSING) != 0) return FLI_ARM_CLOSING;
        if ((word & fli_stream_state_bits(direction, FLI_OP_CANCELLED)) != 0) return FLI_ARM_CANCELLED;
        if ((word & fli_stream_state_bits(direction, FLI_OP_EXPIRED)) != 0) {
            what = FLI_ARM_EXPIRED;
            wanted = word & ~fli_stream_state_bits(direction, FLI_OP_EXPIRED);
        } else if ((word & fli_stream_state_bits(direction, FLI_OP_READY)) != 0) {
            what = FLI_ARM_AGAIN;
            wanted = word & ~fli_stream_state_bits(direction, FLI_OP_READY);
        }
        /* PAIR io.state, both halves: the operation is complete for whoever takes it. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return what;
    }
}

/* BUSY -> QUIET. `ready`: worth a try next time. True: it is closing, and we were the last: finish it off. */
FILCH_MUST_USE static inline bool fli_stream_state_end_op(fli_stream_state *state, fli_direction direction, bool ready)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        uint64_t wanted = fli_stream_state_with(word, direction, FLI_OP_NONE) &
                          ~fli_stream_state_bits(direction, FLI_OP_EXPIRED | FLI_OP_CANCELLED);
        bool ended = direction == FLI_READING && (word & FLI_STREAM_ENDED) != 0;
        if (ready || ended) wanted |= fli_stream_state_bits(direction, FLI_OP_READY);
        /* PAIR io.state, both halves. */
        if (!fli_cas_weak_acqrel(state, &word, wanted)) continue;
        if ((wanted & FLI_STREAM_CLOSING) == 0 || (wanted & FLI_STREAM_CLOSE_OWNER) != 0) return false;
        return !fli_stream_state_any_busy(wanted);
    }
}

/* The descriptor may be ready. Returns the ways (1 << direction) that are now BUSY and ours to try; 0 also if it is
 * old. */
FILCH_MUST_USE static inline unsigned fli_stream_state_report(fli_stream_state *state, uint32_t gen, bool in, bool out,
                                                              bool ended)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_stream_state_is_open(word, gen)) return 0;
        uint64_t wanted = ended ? word | FLI_STREAM_ENDED : word;
        unsigned ours = 0;
        for (int direction = FLI_READING; direction <= FLI_WRITING; direction++) {
            if (!(direction == FLI_READING ? in : out)) continue;
            if (fli_stream_state_phase(word, (fli_direction)direction) == FLI_OP_ARMED) {
                wanted = fli_stream_state_with(wanted, (fli_direction)direction, FLI_OP_BUSY);
                ours |= 1u << direction;
            } else {
                wanted |= fli_stream_state_bits((fli_direction)direction, FLI_OP_READY);
            }
        }
        if (fli_cas_weak_acqrel(state, &word, wanted)) return ours; /* PAIR io.state, both halves */
    }
}

/* Ends a wait: `why` is EXPIRED or CANCELLED. True: the operation was ARMED and is now BUSY and ours. */
FILCH_MUST_USE static inline bool fli_stream_state_stop_op(fli_stream_state *state, uint32_t gen,
                                                           fli_direction direction, unsigned why)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_stream_state_is_open(word, gen)) return false;
        unsigned phase = fli_stream_state_phase(word, direction);
        if (phase == FLI_OP_NONE) return false;
        bool     ours = phase == FLI_OP_ARMED;
        uint64_t wanted =
            ours ? fli_stream_state_with(word, direction, FLI_OP_BUSY) : word | fli_stream_state_bits(direction, why);
        if (fli_cas_weak_acqrel(state, &word, wanted)) return ours; /* PAIR io.state, both halves */
    }
}

/* Begins to close, as its one CLOSER. Ways that were ARMED are BUSY and ours to settle: *ours. False: somebody else is
 * closing it, or has. */
FILCH_MUST_USE static inline bool fli_stream_state_begin_close(fli_stream_state *state, uint32_t gen, unsigned *ours)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_stream_state_is_open(word, gen)) return false;
        uint64_t wanted = word | FLI_STREAM_CLOSING | FLI_STREAM_CLOSE_OWNER;
        *ours = 0;
        for (int direction = FLI_READING; direction <= FLI_WRITING; direction++) {
            if (fli_stream_state_phase(word, (fli_direction)direction) != FLI_OP_ARMED) continue;
            wanted = fli_stream_state_with(wanted, (fli_direction)direction, FLI_OP_BUSY);
            *ours |= 1u << direction;
        }
        if (fli_cas_weak_acqrel(state, &word, wanted)) return true; /* PAIR io.state, both halves */
    }
}

/* The CLOSER lets go. True: nobody else is busy with it, finish it off. */
FILCH_MUST_USE static inline bool fli_stream_state_end_close(fli_stream_state *state)
{
    uint64_t word = fli_and_acqrel(state, ~FLI_STREAM_CLOSE_OWNER); /* PAIR io.state, both halves */
    return !fli_stream_state_any_busy(word);
}

/* Gone: nobody else can be here. The next generation; false: there is none, the slot must not be used again. */
FILCH_MUST_USE static inline bool fli_stream_state_retire(fli_stream_state *state)
{
    uint32_t gen = fli_stream_state_gen(fli_load_rlx(state));
    bool     more = gen < FLI_STREAM_GEN_LAST;
    fli_store_rel(state, (uint64_t)(more ? gen + 1 : gen) << FLI_STREAM_GEN_SHIFT); /* PAIR io.state, release half */
    return more;
}

#endif
