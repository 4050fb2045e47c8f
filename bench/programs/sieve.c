/* sieve.c - a chain of filters, one for each prime number below --size. The first number that reaches a filter is its
 * prime; the filter passes on what its prime does not divide, and starts the next filter for the first such number. */
#include "programs.h"

#include <stdlib.h>

struct filter {
    int64_t   prime, index;
    filch_pid next; /* {0, 0}: none yet */
};

static filch_err filter_step(void *self, const filch_event *events, size_t count, filch_out *out);

static const filch_type filter_type = {
    .name = "filter", .size = sizeof(struct filter), .init = copy_state, .step = filter_step
};

/* Step of a filter: passes on the numbers that are not multiples of the filter's prime. The message 0 marks the end of
 * the numbers. */
static filch_err filter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct filter *filter = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        int64_t   number = filch_as_int(&events[i].data);
        filch_err err = FILCH_OK;
        if (filter->prime == 0) {
            filter->prime = number;
            continue;
        }
        if (number != 0 && number % filter->prime == 0) continue;
        if (filter->next.serial == 0 && number != 0) {
            err = spawn_child(out, &filter_type, &(struct filter){ .index = filter->index + 1 }, &filter->next);
        }
        if (err == FILCH_OK && filter->next.serial != 0) err = send_to(out, filter->next, filch_int(number));
        if (err != FILCH_OK) return err;
        if (number == 0) {
            if (filter->next.serial == 0) report(filter->index);
            return filch_done(out, filch_none());
        }
    }
    return filch_idle(out);
}

struct source {
    filch_pid first;
    int64_t   number;
};

static filch_err source_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct source *source = self;
    if (count > 0) return events[0].type == FILCH_EVENT_CANCEL ? FILCH_ECANCELLED : FILCH_EUSER;
    while (source->number < (int64_t)run.size) {
        filch_err err = send_to(out, source->first, filch_int(source->number++));
        if (err != FILCH_OK) return err;
        if (filch_should_yield(out)) return filch_continue(out);
    }
    filch_err err = send_to(out, source->first, filch_int(0));
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

static const filch_type source_type = {
    .name = "source", .size = sizeof(struct source), .init = copy_state, .step = source_step
};

/* Returns the number of primes below `limit`; *passed is the number of messages that all filters together receive. */
static int64_t count_primes(int64_t limit, uint64_t *passed)
{
    int64_t *primes = bench_alloc((size_t)limit, sizeof *primes), found = 0;
    *passed = 0;
    for (int64_t number = 2; number < limit; number++) {
        int64_t i = 0;
        while (i < found && number % primes[i] != 0) i++;
        *passed += (uint64_t)i + 1;
        if (i == found) primes[found++] = number;
    }
    *passed += (uint64_t)found; /* the message 0, which marks the end, goes through every filter */
    free(primes);
    return found;
}

bool sieve(uint64_t variant)
{
    (void)variant;
    uint64_t passed;
    int64_t  primes = count_primes((int64_t)run.size, &passed);
    bench_start(&run, NULL);
    filch_pid first = start(&filter_type, &(struct filter){ .index = 1 });
    bench_quiet(&run);
    expect_results(1);
    bench_begin(&run);
    start(&source_type, &(struct source){ first, 2 });
    int64_t found = wait_for_results();
    bench_end(&run, passed);
    return found == primes;
}
