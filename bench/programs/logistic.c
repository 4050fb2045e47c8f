/* logistic.c - ten series of the logistic map, x' = r x (1 - x). Each series is a process that keeps its term and
 * asks another process, which knows r, for the next one. --size is the number of terms of each series. */
#include "programs.h"

enum { SERIES = 10 };

static double last_terms[SERIES];

static double next_term(double rate, double term)
{
    return rate * term * (1 - term);
}

static double rate_of(int series)
{
    return 3.46 + 0.0025 * series;
}

struct computer {
    double rate;
};

static filch_err computer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct computer *computer = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        double    term = next_term(computer->rate, filch_as_num(&events[i].data));
        filch_err err = send_to(out, events[i].from, filch_num(term));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

struct series {
    filch_pid computer;
    int       index;
    uint64_t  terms;
    double    term;
};

static filch_err series_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct series *series = self;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        series->term = filch_as_num(&events[0].data);
        series->terms++;
    }
    if (series->terms == run.size) {
        last_terms[series->index] = series->term;
        report(1);
        return filch_done(out, filch_none());
    }
    filch_err err = send_to(out, series->computer, filch_num(series->term));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type computer_type = {
    .name = "computer", .size = sizeof(struct computer), .init = copy_state, .step = computer_step
};
static const filch_type series_type = {
    .name = "series", .size = sizeof(struct series), .init = copy_state, .step = series_step
};

static bool is_right(int series)
{
    double term = 0.5;
    for (uint64_t i = 0; i < run.size; i++) term = next_term(rate_of(series), term);
    return term - last_terms[series] < 1e-9 && last_terms[series] - term < 1e-9;
}

bool logistic(uint64_t variant)
{
    (void)variant;
    filch_pid computers[SERIES];
    bench_start(&run, NULL);
    for (int i = 0; i < SERIES; i++) computers[i] = start(&computer_type, &(struct computer){ rate_of(i) });
    bench_quiet(&run);
    expect_results(SERIES);
    bench_begin(&run);
    for (int i = 0; i < SERIES; i++) start(&series_type, &(struct series){ computers[i], i, 0, 0.5 });
    bool right = wait_for_results() == SERIES;
    bench_end(&run, SERIES * run.size);
    for (int i = 0; i < SERIES; i++) right = right && is_right(i);
    return right;
}
