/* bench.h - what every benchmark here shares: arguments, a scheduler, a stopwatch, one line of JSON.
 *
 *     static bench b;
 *     bench_open(&b, "pingpong", 1000000, argc, argv);   arguments; `size` is how much to do unless --size says
 * otherwise bench_start(&b, NULL);                             the scheduler
 *     ... spawn what is needed; bench_quiet(&b) if it has to come to rest first ...
 *     bench_begin(&b);                                   the stopwatch runs
 *     ... bench_wait(&b) until a process calls bench_over(&b) ...
 *     bench_end(&b, operations);                         the stopwatch stops
 *     return bench_close(&b, was_it_right);              prints the line, or complains; main's result
 *
 * With --workers 0 there is no worker: this thread ticks, so that nothing depends on the machine's mood. That is what
 * the counts of the gate use. A program linked against the counting library also prints read-modify-writes and moved
 * cache lines per operation; in the others they are null.
 * A mistake ends the program with a sentence and exit 1, a bad argument with exit 2.
 */
#ifndef BENCH_H
#define BENCH_H

#include <filch.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bench {
    const char  *system; /* "filch" */
    const char  *name;
    uint64_t     size;    /* --size N */
    uint32_t     workers; /* --workers N; 0: this thread ticks */
    uint32_t     run;     /* --run K: only printed */
    filch_sched *sched;
    double       value; /* set by bench_end to ns per operation; bench_value changes it */
    const char  *unit;
    /* the rest is bench.c's */
    sem_t    over;
    bool     is_over;
    uint64_t began_ns, took_ns, began_cpu_ns, cpu_ns, operations;
    uint64_t rmws, lines;
    bool     counted; /* these two mean something */
    char     extra[512];
} bench;

void bench_open(bench *b, const char *name, uint64_t size, int argc, char **argv);
/* `options` may be NULL. workers, node and seed are set here. */
void bench_start(bench *b, const filch_options *options);

/* Spawns, or ends the program. */
filch_pid bench_spawn(bench *b, const filch_type *type, filch_data args);
/* Sends from outside, or ends the program. */
void bench_send(bench *b, filch_pid to, filch_data data);

/* Until nothing is ready any more and all workers sleep. */
void bench_quiet(bench *b);
void bench_begin(bench *b);
/* Until bench_over was called. */
void bench_wait(bench *b);
/* Until so many processes have ended. */
void bench_wait_ended(bench *b, uint64_t count);
/* Thread: any. */
void bench_over(bench *b);
void bench_end(bench *b, uint64_t operations);

void bench_value(bench *b, double value, const char *unit);
/* One more number for the line. */
void bench_extra(bench *b, const char *name, double value);
/* p50, p99 and max of `count` samples in ns, printed in us under `prefix`; gives the median in us. Sorts them. */
double bench_percentiles(bench *b, const char *prefix, uint64_t *samples_ns, size_t count);
/* Stops the scheduler and prints the line, if `right`. */
int bench_close(bench *b, bool right);
/* Prints the line with what is there now, for programs that measure several things. */
void bench_print(bench *b);

uint64_t bench_now_ns(void);
void     bench_sleep_ns(uint64_t ns);
/* What the program occupies now. */
uint64_t bench_rss_bytes(void);
void    *bench_alloc(size_t count, size_t size);
/* Ends the program unless `err` is FILCH_OK. */
void bench_must(filch_err err, const char *what);

/* xorshift64*: the same numbers on every machine. */
static inline uint64_t bench_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

#endif
