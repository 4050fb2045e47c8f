/* bench.h - shared by the benchmarks: arguments, a scheduler, the measurement, one line of JSON.
 *
 *     static bench b;
 *     bench_open(&b, "pingpong", 1000000, argc, argv);   arguments; the number is the default of --size
 *     bench_start(&b, NULL);                             the scheduler
 *     ... spawn what is needed; bench_quiet(&b) to wait until all of it is idle ...
 *     bench_begin(&b);                                   starts the measurement
 *     ... bench_wait(&b) until a process calls bench_over(&b) ...
 *     bench_end(&b, operations);                         ends the measurement
 *     return bench_close(&b, was_it_right);              prints the line, or an error; the result of main
 *
 * With --workers 0 there is no worker: this thread ticks, so that the counts do not depend on the machine. The
 * gate uses these counts. A program linked against the counting library also prints read-modify-writes and moved
 * cache lines per operation; in the others they are null.
 * An error ends the program with a text and exit 1, a bad argument with exit 2.
 * Design: docs/design/benchmarking.md.
 */
#ifndef BENCH_H
#define BENCH_H

#include <filch.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bench {
    const char *system; /* printed as "system" in the line of results; always "filch" */
    const char *name;
    uint64_t    size; /* value of the option --size N */
    /* value of the option --workers N; 0: no workers, the main thread runs the processes in filch_tick() */
    uint32_t     workers;
    uint32_t     run; /* value of the option --run K, which is only printed */
    filch_sched *sched;
    /* the result: bench_end() sets it to the ns per operation; bench_value() replaces it by another number */
    double      value;
    const char *unit;
    /* the fields below are used by bench.c only */
    sem_t    over;
    bool     is_over;
    uint64_t began_ns, took_ns, began_cpu_ns, cpu_ns, operations;
    uint64_t rmws, lines;
    bool     counted; /* true: this program counts read-modify-writes (`rmws`) and moves of cache lines (`lines`) */
    char     extra[512];
} bench;

void bench_open(bench *b, const char *name, uint64_t size, int argc, char **argv);
/* Starts the scheduler. `options` may be NULL. The fields workers, node and seed of `options` are overwritten. */
void bench_start(bench *b, const filch_options *options);

/* Spawns a process. Ends the program on an error. */
filch_pid bench_spawn(bench *b, const filch_type *type, filch_data args);
/* Sends a message from the calling thread. Ends the program on an error. */
void bench_send(bench *b, filch_pid to, filch_data data);

/* Waits until no process is runnable and all workers are parked. */
void bench_quiet(bench *b);
void bench_begin(bench *b);
/* Waits until bench_over() has been called. */
void bench_wait(bench *b);
/* Waits until `count` processes have ended. */
void bench_wait_ended(bench *b, uint64_t count);
/* Makes bench_wait() return. Thread: any. */
void bench_over(bench *b);
void bench_end(bench *b, uint64_t operations);

void bench_value(bench *b, double value, const char *unit);
/* Adds a number to the line of results that bench_close() or bench_print() prints. */
void bench_extra(bench *b, const char *name, double value);
/* Adds p50, p99 and max of `count` samples in ns, printed in us under `prefix`. Returns the median in us. Sorts the
 * samples. */
double bench_percentiles(bench *b, const char *prefix, uint64_t *samples_ns, size_t count);
/* Stops the scheduler. If `right` is true (the benchmark computed the right results), prints the line of results,
 * otherwise an error message. Returns the exit code of the program. */
int bench_close(bench *b, bool right);
/* Prints the line of results. For programs that make several measurements and print one line for each. */
void bench_print(bench *b);

uint64_t bench_now_ns(void);
void     bench_sleep_ns(uint64_t ns);
/* Occupies the CPU for about `ns` nanoseconds: reads the clock until this time has passed. */
void bench_work_ns(uint64_t ns);
/* Returns the number in the environment variable `name`, or `otherwise` if it is not set. Ends the program if the
 * variable is not a number. */
uint64_t bench_setting(const char *name, uint64_t otherwise);
/* Returns the resident size of the program. */
uint64_t bench_rss_bytes(void);
void    *bench_alloc(size_t count, size_t size);
/* Ends the program unless `err` is FILCH_OK. */
void bench_must(filch_err err, const char *what);

/* Returns the next random number (xorshift64*). Equal seeds give equal numbers on every machine. */
static inline uint64_t bench_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

#endif
