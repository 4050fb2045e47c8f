/* cancel_stress.c - two threads cancel the same processes at the same time; one of the threads writes a note before it
 * cancels.
 *
 *     cancel_stress CANCELS
 *
 * Each round has a number. The first thread writes it to the note of every process and cancels the process; the second
 * thread only cancels. The two cancels may reach a process as one event or as two. When both threads have finished,
 * each process gets a message, which arrives after the cancels: by then a step that received a cancel must have read
 * the note of this round.
 *
 * Exit: 0 no error found; 1 a note was missed; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>

#include <filch.h>

#include "port/atomic.h"
#include "support/stress.h"
#include "support/yield_slice.h"

enum { PROCS = 64 };

static struct {
    filch_sched *sched;
    filch_pid    pids[PROCS];
    struct {
        /* accessed with relaxed order: only the cancel may order the write of the note before its read */
        alignas(FLI_LINE) FLI_ATOMIC(uint64_t) note;
    } left[PROCS];
    /* the last note that each process has read. Not atomic: each element is used only by its process until the process
     * has acknowledged the round, then by the main thread */
    uint64_t             last_note[PROCS];
    FLI_ATOMIC(uint64_t) round, through, acknowledged;
    uint64_t             rounds;
} state;

typedef struct listener {
    uint64_t index;
} listener;

static filch_err listener_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((listener *)self)->index = (uint64_t)filch_as_int(args);
    return FILCH_OK;
}

static filch_err listener_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t index = ((listener *)self)->index;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) state.last_note[index] = fli_load_rlx(&state.left[index].note);
        if (events[i].type == FILCH_EVENT_MESSAGE) fli_add_rel(&state.acknowledged, 1);
    }
    return filch_idle(out);
}

static const filch_type listener_type = {
    .name = "listener", .size = sizeof(listener), .init = listener_init, .step = listener_step
};

static void wait_for(FLI_ATOMIC(uint64_t) *counter, uint64_t wanted)
{
    for (uint32_t spins = 0; fli_load_acq(counter) < wanted; spins++) {
        if (spins % 64 == 63) yield_slice();
        else fli_thread_pause();
    }
}

static void second(void *arg)
{
    (void)arg;
    for (uint64_t r = 1; r <= state.rounds; r++) {
        wait_for(&state.round, r);
        for (int i = 0; i < PROCS; i++) stress_must("cancel", filch_cancel(state.sched, state.pids[i]));
        fli_store_rel(&state.through, r);
    }
}

static bool play_round(uint64_t r)
{
    fli_store_rel(&state.round, r);
    for (int i = 0; i < PROCS; i++) {
        fli_store_rlx(&state.left[i].note, r);
        stress_must("cancel", filch_cancel(state.sched, state.pids[i]));
    }
    wait_for(&state.through, r);
    for (int i = 0; i < PROCS; i++) stress_must("send", filch_send(state.sched, state.pids[i], filch_int(1)));
    wait_for(&state.acknowledged, r * PROCS);
    for (int i = 0; i < PROCS; i++) {
        if (state.last_note[i] == r) continue;
        fprintf(stderr, "round %" PRIu64 ": process %d has read the note of round %" PRIu64 "\n", r, i,
                state.last_note[i]);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    uint64_t      cancels;
    filch_options opt = FILCH_OPTIONS_INIT;
    fli_thread    other;
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_C(1) << 40, &cancels)) {
        fprintf(stderr, "usage: cancel_stress CANCELS\n");
        return 2;
    }
    state.rounds = (cancels + PROCS - 1) / PROCS;
    opt.workers = 1;
    stress_must("scheduler", filch_sched_create(&state.sched, &opt));
    for (int i = 0; i < PROCS; i++) {
        filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
        spawn.args = filch_int(i);
        stress_must("spawn", filch_spawn(state.sched, &listener_type, &spawn, &state.pids[i]));
    }
    stress_must("thread", fli_thread_start(&other, "second", second, NULL));
    bool     fine = true;
    uint64_t r = 0;
    while (fine && r < state.rounds) fine = play_round(++r);
    if (!fine) return 1;
    fli_thread_join(&other);
    for (int i = 0; i < PROCS; i++) stress_must("terminate", filch_terminate(state.sched, state.pids[i]));
    stress_must("stop", filch_sched_stop(state.sched, FILCH_FOREVER, NULL));
    printf("%" PRIu64 " times two cancels and a note, none missed\n", state.rounds * PROCS);
    return 0;
}
