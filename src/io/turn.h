/* turn.h - whose turn it is with a stream: one word, and every move of it. Nobody else touches the word.
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
#ifndef FLI_IO_TURN_H
#define FLI_IO_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "port/atomic.h"

typedef FLI_ATOMIC(uint64_t) fli_turn;

typedef enum fli_way { FLI_READING, FLI_WRITING } fli_way;

enum { FLI_TURN_QUIET, FLI_TURN_ARMED, FLI_TURN_BUSY, FLI_TURN_PHASE = 3 };
#define FLI_TURN_READY 4u
#define FLI_TURN_EXPIRED 8u
#define FLI_TURN_CANCELLED 16u
#define FLI_TURN_OPEN (UINT64_C(1) << 16)
#define FLI_TURN_CLOSING (UINT64_C(1) << 17)
#define FLI_TURN_CLOSER (UINT64_C(1) << 18)
#define FLI_TURN_ENDED (UINT64_C(1) << 19)
#define FLI_TURN_GEN_SHIFT 32
#define FLI_TURN_GEN_LAST INT32_MAX

static inline uint32_t fli_turn_gen(uint64_t word)
{
    return (uint32_t)(word >> FLI_TURN_GEN_SHIFT);
}

static inline uint64_t fli_turn_bits(fli_way way, unsigned bits)
{
    return (uint64_t)bits << (way * 8);
}

static inline unsigned fli_turn_phase(uint64_t word, fli_way way)
{
    return (unsigned)(word >> (way * 8)) & FLI_TURN_PHASE;
}

static inline uint64_t fli_turn_with(uint64_t word, fli_way way, unsigned phase)
{
    return (word & ~fli_turn_bits(way, FLI_TURN_PHASE)) | fli_turn_bits(way, phase);
}

/* Is this the word of an open stream of that generation? */
static inline bool fli_turn_is_open(uint64_t word, uint32_t gen)
{
    return fli_turn_gen(word) == gen && (word & (FLI_TURN_OPEN | FLI_TURN_CLOSING)) == FLI_TURN_OPEN;
}

static inline uint64_t fli_turn_look(fli_turn *turn)
{
    return fli_load_acq(turn); /* PAIR io.turn, acquire half */
}

/* A new stream, both ways READY: the first operation tries. Thread: whoever took the slot. */
static inline void fli_turn_open(fli_turn *turn)
{
    uint64_t gen = fli_load_rlx(turn) >> FLI_TURN_GEN_SHIFT;
    /* PAIR io.turn, release half: whoever finds it open finds it complete. */
    fli_store_rel(turn, gen << FLI_TURN_GEN_SHIFT | FLI_TURN_OPEN | fli_turn_bits(FLI_READING, FLI_TURN_READY) |
                            fli_turn_bits(FLI_WRITING, FLI_TURN_READY));
}

typedef enum fli_begin {
    FLI_BEGIN_GONE, /* closed */
    FLI_BEGIN_BUSY, /* another operation is out */
    FLI_BEGIN_TRY,  /* yours; the system may have something */
    FLI_BEGIN_WAIT  /* yours; nothing has changed since it last said "not now" */
} fli_begin;

/* QUIET -> BUSY. Thread: the owner's worker. */
FILCH_MUST_USE static inline fli_begin fli_turn_begin(fli_turn *turn, uint32_t gen, fli_way way)
{
    uint64_t word = fli_load_rlx(turn);
    for (;;) {
        if (!fli_turn_is_open(word, gen)) return FLI_BEGIN_GONE;
        if (fli_turn_phase(word, way) != FLI_TURN_QUIET) return FLI_BEGIN_BUSY;
        bool     ready = (word & fli_turn_bits(way, FLI_TURN_READY)) != 0;
        uint64_t wanted = fli_turn_with(word & ~fli_turn_bits(way, 0xff), way, FLI_TURN_BUSY);
        /* PAIR io.turn, both halves: what the last operation left is ours. */
        if (fli_cas_weak_acqrel(turn, &word, wanted)) return ready ? FLI_BEGIN_TRY : FLI_BEGIN_WAIT;
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
FILCH_MUST_USE static inline fli_arm fli_turn_arm(fli_turn *turn, fli_way way)
{
    uint64_t word = fli_load_rlx(turn);
    for (;;) {
        fli_arm  what = FLI_ARM_DONE;
        uint64_t wanted = fli_turn_with(word, way, FLI_TURN_ARMED);
        if ((word & FLI_TURN_CLOSING) != 0) return FLI_ARM_CLOSING;
        if ((word & fli_turn_bits(way, FLI_TURN_CANCELLED)) != 0) return FLI_ARM_CANCELLED;
        if ((word & fli_turn_bits(way, FLI_TURN_EXPIRED)) != 0) {
            what = FLI_ARM_EXPIRED;
            wanted = word & ~fli_turn_bits(way, FLI_TURN_EXPIRED);
        } else if ((word & fli_turn_bits(way, FLI_TURN_READY)) != 0) {
            what = FLI_ARM_AGAIN;
            wanted = word & ~fli_turn_bits(way, FLI_TURN_READY);
        }
        /* PAIR io.turn, both halves: the operation is complete for whoever takes it. */
        if (fli_cas_weak_acqrel(turn, &word, wanted)) return what;
    }
}

/* BUSY -> QUIET. `ready`: worth a try next time. True: it is closing, and we were the last: finish it off. */
FILCH_MUST_USE static inline bool fli_turn_leave(fli_turn *turn, fli_way way, bool ready)
{
    uint64_t word = fli_load_rlx(turn);
    for (;;) {
        uint64_t wanted =
            fli_turn_with(word, way, FLI_TURN_QUIET) & ~fli_turn_bits(way, FLI_TURN_EXPIRED | FLI_TURN_CANCELLED);
        bool ended = way == FLI_READING && (word & FLI_TURN_ENDED) != 0;
        if (ready || ended) wanted |= fli_turn_bits(way, FLI_TURN_READY);
        /* PAIR io.turn, both halves. */
        if (!fli_cas_weak_acqrel(turn, &word, wanted)) continue;
        if ((wanted & FLI_TURN_CLOSING) == 0 || (wanted & FLI_TURN_CLOSER) != 0) return false;
        return fli_turn_phase(wanted, FLI_READING) != FLI_TURN_BUSY &&
               fli_turn_phase(wanted, FLI_WRITING) != FLI_TURN_BUSY;
    }
}

/* The descriptor may be ready. Returns the ways (1 << way) that are now BUSY and ours to try; 0 also if it is old. */
FILCH_MUST_USE static inline unsigned fli_turn_report(fli_turn *turn, uint32_t gen, bool in, bool out, bool ended)
{
    uint64_t word = fli_load_rlx(turn);
    for (;;) {
        if (!fli_turn_is_open(word, gen)) return 0;
        uint64_t wanted = ended ? word | FLI_TURN_ENDED : word;
        unsigned ours = 0;
        for (int way = FLI_READING; way <= FLI_WRITING; way++) {
            if (!(way == FLI_READING ? in : out)) continue;
            if (fli_turn_phase(word, (fli_way)way) == FLI_TURN_ARMED) {
                wanted = fli_turn_with(wanted, (fli_way)way, FLI_TURN_BUSY);
                ours |= 1u << way;
            } else {
                wanted |= fli_turn_bits((fli_way)way, FLI_TURN_READY);
            }
        }
        if (fli_cas_weak_acqrel(turn, &word, wanted)) return ours; /* PAIR io.turn, both halves */
    }
}

/* Ends a wait: `why` is EXPIRED or CANCELLED. True: the operation was ARMED and is now BUSY and ours. */
FILCH_MUST_USE static inline bool fli_turn_stop(fli_turn *turn, uint32_t gen, fli_way way, unsigned why)
{
    uint64_t word = fli_load_rlx(turn);
    for (;;) {
        if (!fli_turn_is_open(word, gen)) return false;
        unsigned phase = fli_turn_phase(word, way);
        if (phase == FLI_TURN_QUIET) return false;
        bool     ours = phase == FLI_TURN_ARMED;
        uint64_t wanted = ours ? fli_turn_with(word, way, FLI_TURN_BUSY) : word | fli_turn_bits(way, why);
        if (fli_cas_weak_acqrel(turn, &word, wanted)) return ours; /* PAIR io.turn, both halves */
    }
}

/* Begins to close, as its one CLOSER. Ways that were ARMED are BUSY and ours to settle: *ours. False: somebody else is
 * closing it, or has. */
FILCH_MUST_USE static inline bool fli_turn_close(fli_turn *turn, uint32_t gen, unsigned *ours)
{
    uint64_t word = fli_load_rlx(turn);
    for (;;) {
        if (!fli_turn_is_open(word, gen)) return false;
        uint64_t wanted = word | FLI_TURN_CLOSING | FLI_TURN_CLOSER;
        *ours = 0;
        for (int way = FLI_READING; way <= FLI_WRITING; way++) {
            if (fli_turn_phase(word, (fli_way)way) != FLI_TURN_ARMED) continue;
            wanted = fli_turn_with(wanted, (fli_way)way, FLI_TURN_BUSY);
            *ours |= 1u << way;
        }
        if (fli_cas_weak_acqrel(turn, &word, wanted)) return true; /* PAIR io.turn, both halves */
    }
}

/* The CLOSER lets go. True: nobody else is busy with it, finish it off. */
FILCH_MUST_USE static inline bool fli_turn_closed(fli_turn *turn)
{
    uint64_t word = fli_and_acqrel(turn, ~FLI_TURN_CLOSER); /* PAIR io.turn, both halves */
    return fli_turn_phase(word, FLI_READING) != FLI_TURN_BUSY && fli_turn_phase(word, FLI_WRITING) != FLI_TURN_BUSY;
}

/* Gone: nobody else can be here. The next generation; false: there is none, the slot must not be used again. */
FILCH_MUST_USE static inline bool fli_turn_free(fli_turn *turn)
{
    uint32_t gen = fli_turn_gen(fli_load_rlx(turn));
    bool     more = gen < FLI_TURN_GEN_LAST;
    fli_store_rel(turn, (uint64_t)(more ? gen + 1 : gen) << FLI_TURN_GEN_SHIFT); /* PAIR io.turn, release half */
    return more;
}

#endif
