/* io_parts.c - the state word of a stream (io/stream_state.h): a process that reads, workers that receive readiness
 * reports, a timeout, and a thread that closes. Every reported byte must be read, an operation must be completed once,
 * and the descriptor must be closed once, while no thread uses it.
 *
 * The simulated socket is a number of bytes. The system adds bytes before it reports; the number is read relaxed, so
 * that only the state word orders report and read. The descriptor and the operation are non-atomic memory: a race on
 * them is a violation.
 */
#include "io/stream_state.h"
#include "parts.h"

enum { GEN = 3, OPERATION = 7 };

static struct {
    fli_stream_state     state;
    FLI_ATOMIC(uint32_t) bytes[2];         /* indexed by direction */
    uint32_t             fd, operation[2]; /* not atomic, so that the explorer detects a race on these fields */
    uint32_t             got[FLI_WEAK_THREADS + 1], stopped[FLI_WEAK_THREADS + 1], gone[FLI_WEAK_THREADS + 1];
} * s;

static void setup(void)
{
    s = fli_weak_new(sizeof *s);
    fli_atomic_init(&s->state, (uint64_t)GEN << FLI_STREAM_GEN_SHIFT);
    fli_stream_state_open(&s->state);
    s->fd = 5;
}

static uint32_t sum(const uint32_t *counts)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) n += counts[i];
    return n;
}

static void end_op(fli_direction direction)
{
    if (!fli_stream_state_end_op(&s->state, direction, false)) return;
    s->fd = 0;
    s->gone[fli_weak_self]++;
}

/* Stands for the system call of an operation: returns true if the socket has bytes in this direction. */
static bool try_it(fli_direction direction)
{
    must(s->fd == 5, "the descriptor is open while a thread uses it");
    return fli_load_rlx(&s->bytes[direction]) > 0;
}

/* Completes the operation of a direction, counts it in `counts`, and releases the direction. Called by the thread that
 * holds the direction. */
static void complete_op(fli_direction direction, uint32_t *counts)
{
    must(s->operation[direction] == OPERATION, "the holder of a direction sees the whole operation");
    s->operation[direction] = 0;
    counts[fli_weak_self]++;
    end_op(direction);
}

/* Does what the loop in fli_op_run() does. */
static void run(fli_direction direction)
{
    for (;;) {
        if (try_it(direction)) {
            complete_op(direction, s->got);
            return;
        }
        fli_arm arm = fli_stream_state_arm_op(&s->state, direction);
        if (arm == FLI_ARM_DONE) return;
        if (arm == FLI_ARM_AGAIN) continue;
        complete_op(direction, s->stopped);
        return;
    }
}

static void begin(fli_direction direction)
{
    fli_begin what = fli_stream_state_begin_op(&s->state, GEN, direction);
    if (what == FLI_BEGIN_GONE) {
        s->stopped[fli_weak_self]++;
        return;
    }
    must(what == FLI_BEGIN_TRY, "no other operation is outstanding in this direction");
    s->operation[direction] = OPERATION;
    run(direction);
}

static void read_it(void)
{
    begin(FLI_READING);
}

static void write_it(void)
{
    begin(FLI_WRITING);
}

static void deliver_report(bool in, bool out)
{
    unsigned ours = fli_stream_state_report(&s->state, GEN, in, out, false);
    if ((ours & 1u << FLI_READING) != 0) run(FLI_READING);
    if ((ours & 1u << FLI_WRITING) != 0) run(FLI_WRITING);
}

static void arrive(void)
{
    fli_store_rlx(&s->bytes[FLI_READING], 1);
    deliver_report(true, false);
}

static void arrive_both(void)
{
    fli_store_rlx(&s->bytes[FLI_READING], 1);
    fli_store_rlx(&s->bytes[FLI_WRITING], 1);
    deliver_report(true, true);
}

/* Reports the socket as readable and writable although no bytes were added. */
static void false_report(void)
{
    deliver_report(true, true);
}

static void expire(void)
{
    if (!fli_stream_state_stop_op(&s->state, GEN, FLI_READING, FLI_OP_EXPIRED)) return;
    complete_op(FLI_READING, s->stopped);
}

static void close_it(void)
{
    unsigned ours;
    if (!fli_stream_state_begin_close(&s->state, GEN, &ours)) return;
    for (int direction = FLI_READING; direction <= FLI_WRITING; direction++) {
        if ((ours & 1u << direction) != 0) complete_op((fli_direction)direction, s->stopped);
    }
    if (!fli_stream_state_end_close(&s->state)) return;
    s->fd = 0;
    s->gone[fli_weak_self]++;
}

static void check_read(void)
{
    must(sum(s->got) == 1, "the reported bytes are read, once");
    must(s->fd == 5, "the descriptor stays open");
}

static void check_read_or_late(void)
{
    must(sum(s->got) + sum(s->stopped) == 1, "the operation is completed, once");
    fli_weak_outcome(sum(s->got));
}

static void check_closed(void)
{
    must(sum(s->gone) == 1 && s->fd == 0, "the descriptor is closed, once");
    must(sum(s->got) + sum(s->stopped) == 1, "the operation is completed, once");
    fli_weak_outcome(sum(s->got));
}

static void check_closed_both(void)
{
    must(sum(s->gone) == 1 && s->fd == 0, "the descriptor is closed, once");
    must(sum(s->got) + sum(s->stopped) == 2, "each operation is completed, once");
    fli_weak_outcome(sum(s->got));
}

const fli_weak_program parts_io[] = {
    { .name = "io_report",
      .promise = "a report between the try and the wait",
      .setup = setup,
      .threads = { read_it, arrive },
      .check = check_read },
    { .name = "io_reports",
      .promise = "two threads receive reports, one of them false",
      .setup = setup,
      .threads = { read_it, arrive, false_report },
      .check = check_read },
    { .name = "io_timeout",
      .promise = "a report against the timeout",
      .setup = setup,
      .threads = { read_it, arrive, expire },
      .check = check_read_or_late },
    { .name = "io_close",
      .promise = "a report against a close",
      .setup = setup,
      .threads = { read_it, arrive, close_it },
      .check = check_closed },
    { .name = "io_close_twice",
      .promise = "two threads that close, and a false report",
      .setup = setup,
      .threads = { read_it, close_it, close_it, false_report },
      .check = check_closed,
      .bound = 1 },
    { .name = "io_close_last",
      .promise = "a reader, a writer and a close: the last holder closes the descriptor",
      .setup = setup,
      .threads = { read_it, write_it, close_it },
      .check = check_closed_both },
    { .name = "io_close_both",
      .promise = "a reader and a writer, a report for both, and a close",
      .setup = setup,
      .threads = { read_it, write_it, arrive_both, close_it },
      .check = check_closed_both,
      .bound = FLI_WEAK_NO_PREEMPTION },
    { 0 },
};
