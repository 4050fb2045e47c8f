/* stream_state.h - the state word of a stream: which operations are outstanding, and which thread may use the
 * descriptor. All transitions are functions of this file; no other file writes the word.
 *
 *   62        32 19    18          17      16   15..8           7..0
 *   generation   ENDED CLOSE_OWNER CLOSING OPEN writing         reading
 *
 * The byte of a direction:  phase:2 | READY | EXPIRED | CANCELLED
 *   NONE   no operation is outstanding. Only the worker that runs the owner starts one.   -> BUSY, by that worker.
 *   BUSY   one thread, the holder, makes system calls for the operation or completes it.  -> ARMED or NONE, by it.
 *   ARMED  the operation waits, without a holder. The next holder is the thread that sets BUSY by CAS: a worker that
 *          delivers a report of the poller, the alarm of a timeout, a cancel, or a close.
 *   READY  the poller has reported the descriptor since the last attempt. Cleared before the next attempt.
 *   EXPIRED, CANCELLED  the alarm or a cancel came while the operation was BUSY. The holder sees it when it arms.
 *
 * No report is lost. READY is cleared *before* the system call, and arming succeeds only while READY is clear, in one
 * CAS. A report that comes before the system call describes what the call sees. A report that comes after it finds the
 * operation ARMED and makes it BUSY, or finds it BUSY and sets READY, and then arming fails.
 *
 * ENDED: the peer has ended its side of the connection. The poller reports this once, perhaps together with the last
 * bytes. From then on the reading direction stays READY: a read returns bytes or the end.
 *
 * A descriptor is closed by the last thread that gives up its hold after CLOSING was set, so no thread is inside a
 * system call with it.
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

/* Returns true if `word` belongs to an open stream of generation `gen` that is not closing. */
static inline bool fli_stream_state_is_open(uint64_t word, uint32_t gen)
{
    return fli_stream_state_gen(word) == gen && (word & (FLI_STREAM_OPEN | FLI_STREAM_CLOSING)) == FLI_STREAM_OPEN;
}

static inline uint64_t fli_stream_state_load(fli_stream_state *state)
{
    return fli_load_acq(state); /* PAIR io.state, acquire half */
}

/* Opens a new stream. Both directions are READY, so that the first operation makes a system call. Thread: the thread
 * that took the slot from the slab. */
static inline void fli_stream_state_open(fli_stream_state *state)
{
    uint64_t gen = fli_load_rlx(state) >> FLI_STREAM_GEN_SHIFT;
    /* PAIR io.state, release half: a thread that sees the stream open sees its fields. */
    fli_store_rel(state, gen << FLI_STREAM_GEN_SHIFT | FLI_STREAM_OPEN |
                             fli_stream_state_bits(FLI_READING, FLI_OP_READY) |
                             fli_stream_state_bits(FLI_WRITING, FLI_OP_READY));
}

typedef enum fli_begin {
    FLI_BEGIN_GONE, /* the stream is closed, or closing */
    FLI_BEGIN_BUSY, /* another operation of this direction is outstanding */
    FLI_BEGIN_TRY,  /* the direction is BUSY and held by the caller, which must make the system call */
    /* the direction is BUSY and held by the caller, which must wait: no report since the last call returned EAGAIN */
    FLI_BEGIN_WAIT
} fli_begin;

/* Starts an operation: NONE -> BUSY. Thread: the worker that runs the owner. */
FILCH_MUST_USE static inline fli_begin fli_stream_state_begin_op(fli_stream_state *state, uint32_t gen,
                                                                 fli_direction direction)
{
    uint64_t word = fli_load_rlx(state);
    for (;;) {
        if (!fli_stream_state_is_open(word, gen)) return FLI_BEGIN_GONE;
        if (fli_stream_state_phase(word, direction) != FLI_OP_NONE) return FLI_BEGIN_BUSY;
        bool     ready = (word & fli_stream_state_bits(direction, FLI_OP_READY)) != 0;
        uint64_t wanted = fli_stream_state_with(word & ~fli_stream_state_bits(direction, 0xff), direction, FLI_OP_BUSY);
        /* PAIR io.state, both halves: the caller sees what the previous operation wrote. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return ready ? FLI_BEGIN_TRY : FLI_BEGIN_WAIT;
    }
}

typedef enum fli_arm {
    /* the operation is now ARMED: the caller no longer holds it (another thread may set it BUSY at any time) and must
     * not access it any more */
    FLI_ARM_DONE,
    FLI_ARM_AGAIN, /* a report came during the attempt: the operation is still BUSY and must be attempted again */
    /* In these three cases the operation is still BUSY. EXPIRED: an alarm came; the caller attempts the operation again
     * or sets a new alarm. CANCELLED and CLOSING: the caller completes it with an error */
    FLI_ARM_EXPIRED,
    FLI_ARM_CANCELLED,
    FLI_ARM_CLOSING
} fli_arm;

/* Arms an operation: BUSY -> ARMED, unless a report, an alarm, a cancel or a close came since the attempt. With
 * FLI_ARM_EXPIRED the flag EXPIRED is cleared: the alarm may be one of an earlier operation, and then this operation
 * goes on. */
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
        /* PAIR io.state, both halves: the next holder of the operation sees all that this holder wrote to it. */
        if (fli_cas_weak_acqrel(state, &word, wanted)) return what;
    }
}

/* Ends an operation: BUSY -> NONE. `ready`: the next operation of this direction starts with an attempt. Returns true
 * if the stream is closing, the CLOSE_OWNER has finished, and no direction is BUSY any more: the caller must call
 * fli_stream_gone(), which frees the stream. */
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

/* Records a report of the poller. Returns the directions (1 << direction) that were ARMED and are now BUSY, held
 * by the caller, which must attempt them. Returns 0 if no direction was ARMED, or if the report is for an earlier
 * generation. */
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

/* Ends the wait of an operation. `why` is EXPIRED or CANCELLED. Returns true if the operation was ARMED and is now
 * BUSY, held by the caller. Returns false if the operation was BUSY (its holder will find `why`), or if no operation is
 * outstanding. */
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

/* Starts to close the stream; the caller becomes the CLOSE_OWNER. Directions that were ARMED become BUSY, held by the
 * caller; *ours lists them, and the caller must complete them. Returns false if the stream is closing or closed
 * already. */
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

/* Called by the CLOSE_OWNER as its last action. Returns true if no direction is BUSY: the caller must free the stream.
 * Returns false if one or both directions are BUSY: the thread that ends the last BUSY operation of the stream frees
 * the stream (fli_stream_state_end_op() returns true in that thread). */
FILCH_MUST_USE static inline bool fli_stream_state_end_close(fli_stream_state *state)
{
    uint64_t word = fli_and_acqrel(state, ~FLI_STREAM_CLOSE_OWNER); /* PAIR io.state, both halves */
    return !fli_stream_state_any_busy(word);
}

/* Sets the slot of a closed stream to its next generation. Returns false if all generations are used: the slot must not
 * be used again. Thread: the thread that frees the stream; no other thread can access it. */
FILCH_MUST_USE static inline bool fli_stream_state_retire(fli_stream_state *state)
{
    uint32_t gen = fli_stream_state_gen(fli_load_rlx(state));
    bool     more = gen < FLI_STREAM_GEN_LAST;
    fli_store_rel(state, (uint64_t)(more ? gen + 1 : gen) << FLI_STREAM_GEN_SHIFT); /* PAIR io.state, release half */
    return more;
}

#endif
