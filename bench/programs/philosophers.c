/* philosophers.c - 20 philosophers and 20 forks, all of them processes. A philosopher asks for its fork with the lower
 * number, then for the other one, eats, and puts both down: six messages a meal. --size is the number of meals of
 * each. */
#include "programs.h"

enum { SEATS = 20, TAKE = 1, PUT = 2, GRANTED = 3 };

struct fork {
    bool      taken, wanted;
    filch_pid next; /* the philosopher that waits for this fork; valid if `wanted` is true */
};

static filch_err fork_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct fork *fork = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        filch_pid to = events[i].from;
        if (filch_as_int(&events[i].data) == TAKE && fork->taken) {
            fork->wanted = true;
            fork->next = to;
            continue;
        }
        if (filch_as_int(&events[i].data) == PUT) {
            fork->taken = fork->wanted;
            if (!fork->wanted) continue;
            fork->wanted = false;
            to = fork->next;
        }
        fork->taken = true;
        filch_err err = send_to(out, to, filch_int(GRANTED));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

struct philosopher {
    filch_pid forks[2];
    uint64_t  meals;
    int       holds;
};

static filch_err philosopher_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct philosopher *philosopher = self;
    filch_err           err = FILCH_OK;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        philosopher->holds++;
    }
    if (philosopher->holds == 2) {
        philosopher->holds = 0;
        philosopher->meals++;
        for (int i = 0; i < 2 && err == FILCH_OK; i++) err = send_to(out, philosopher->forks[i], filch_int(PUT));
        if (err == FILCH_OK && philosopher->meals == run.size) {
            report((int64_t)philosopher->meals);
            return filch_done(out, filch_none());
        }
    }
    if (err == FILCH_OK) err = send_to(out, philosopher->forks[philosopher->holds], filch_int(TAKE));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type fork_type = {
    .name = "fork", .size = sizeof(struct fork), .init = copy_state, .step = fork_step
};
static const filch_type philosopher_type = {
    .name = "philosopher", .size = sizeof(struct philosopher), .init = copy_state, .step = philosopher_step
};

bool philosophers(uint64_t variant)
{
    (void)variant;
    filch_pid forks[SEATS];
    bench_start(&run, NULL);
    for (int i = 0; i < SEATS; i++) forks[i] = start(&fork_type, &(struct fork){ .taken = false });
    bench_quiet(&run);
    expect_results(SEATS);
    bench_begin(&run);
    for (int i = 0; i < SEATS; i++) {
        int low = i + 1 < SEATS ? i : 0, high = i + 1 < SEATS ? i + 1 : i;
        start(&philosopher_type, &(struct philosopher){ .forks = { forks[low], forks[high] } });
    }
    int64_t meals = wait_for_results();
    bench_end(&run, SEATS * run.size);
    return meals == SEATS * (int64_t)run.size;
}
