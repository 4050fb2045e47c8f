/* bench.c - see bench.h. */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef BENCH_COUNTED
#include "counting/counted.h"
#endif

/* ---- the machine ---- */

static uint64_t clock_of(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_now_ns(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

void bench_sleep_ns(uint64_t ns)
{
    struct timespec span = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
    while (nanosleep(&span, &span) != 0 && errno == EINTR) {}
}

void bench_work_ns(uint64_t ns)
{
    if (ns == 0) return;
    uint64_t until_ns = bench_now_ns() + ns;
    while (bench_now_ns() < until_ns) {}
}

uint64_t bench_rss_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE         *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL) return 0;
    if (fscanf(statm, "%lu %lu", &size, &resident) != 2) resident = 0;
    fclose(statm);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns the peak resident size of this program so far. (getrusage would also include the program that started this
 * one.) */
static double peak_mb(void)
{
    char   line[128];
    double kb = 0;
    FILE  *status = fopen("/proc/self/status", "r");
    if (status == NULL) return 0;
    while (fgets(line, sizeof line, status) != NULL && sscanf(line, "VmHWM: %lf", &kb) != 1) {}
    fclose(status);
    return kb / 1024;
}

void *bench_alloc(size_t count, size_t size)
{
    void *at = calloc(count, size);
    if (at == NULL) bench_must(FILCH_ENOMEM, "memory for the benchmark");
    return at;
}

void bench_must(filch_err err, const char *what)
{
    if (err == FILCH_OK) return;
    fprintf(stderr, "bench: %s: %s\n", what, filch_err_text(err));
    exit(1);
}

/* ---- arguments ---- */

static void usage(const bench *b)
{
    fprintf(stderr, "usage: %s [--workers N] [--size N] [--run K]\n", b->name);
    exit(2);
}

static uint64_t number(const bench *b, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0) usage(b);
    return value;
}

uint64_t bench_setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char       *end = NULL;
    if (text == NULL) return otherwise;
    uint64_t value = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == '\0') return value;
    fprintf(stderr, "bench: %s in the environment is not a number\n", name);
    exit(2);
}

void bench_open(bench *b, const char *name, uint64_t size, int argc, char **argv)
{
    *b = (bench){ .system = "filch", .name = name, .size = size, .workers = 2, .run = 1 };
#ifdef BENCH_COUNTED
    b->counted = true;
#endif
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) usage(b);
        uint64_t value = number(b, argv[i + 1]);
        if (strcmp(argv[i], "--size") == 0 && value > 0) b->size = value;
        else if (strcmp(argv[i], "--workers") == 0 && value <= 1024) b->workers = (uint32_t)value;
        else if (strcmp(argv[i], "--run") == 0) b->run = (uint32_t)value;
        else usage(b);
    }
    sem_init(&b->over, 0, 0);
}

/* ---- the scheduler ---- */

void bench_start(bench *b, const filch_options *options)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    if (options != NULL) opt = *options;
    opt.workers = b->workers == 0 ? FILCH_NO_WORKERS : (int32_t)b->workers;
    /* fixed values of `node` and `seed`, so that two runs differ only by the timing of their threads */
    opt.node = opt.seed = 1;
    bench_must(filch_sched_create(&b->sched, &opt), "create");
}

filch_pid bench_spawn(bench *b, const filch_type *type, filch_data args)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    options.args = args;
    bench_must(filch_spawn(b->sched, type, &options, &pid), "spawn");
    return pid;
}

void bench_send(bench *b, filch_pid to, filch_data data)
{
    bench_must(filch_send(b->sched, to, data), "send");
}

static filch_stats stats_of(bench *b)
{
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b->sched, &stats), "stats");
    return stats;
}

/* Calls filch_tick() once. If nothing ran, sleeps until the next timer is due, but at most 1 ms. */
static void tick(bench *b)
{
    uint32_t ran = 0;
    bench_must(filch_tick(b->sched, 0, &ran), "tick");
    if (ran > 0) return;
    uint64_t next_ns = filch_next_timeout(b->sched);
    bench_sleep_ns(next_ns < 1000000 ? next_ns : 1000000);
}

void bench_quiet(bench *b)
{
    if (b->workers > 0) {
        while (stats_of(b).asleep < b->workers) bench_sleep_ns(200000);
        return;
    }
    uint32_t ran = 1;
    while (ran > 0) bench_must(filch_tick(b->sched, 0, &ran), "tick");
}

void bench_wait(bench *b)
{
    if (b->workers == 0) {
        while (!b->is_over) tick(b);
        return;
    }
    while (sem_wait(&b->over) != 0) {}
}

/* Checks the number of ended processes twice per millisecond. Checking more often would take CPU time from the workers
 * on a machine with as many workers as CPUs. */
void bench_wait_ended(bench *b, uint64_t count)
{
    while (stats_of(b).ended < count) {
        if (b->workers == 0) tick(b);
        else bench_sleep_ns(500000);
    }
}

void bench_over(bench *b)
{
    /* without workers, processes run on the thread that calls bench_wait(), so `is_over` needs no synchronisation */
    if (b->workers == 0) b->is_over = true;
    sem_post(&b->over);
}

/* ---- the measurement ---- */

static void read_counts(uint64_t *rmws, uint64_t *lines)
{
    *rmws = *lines = 0;
#ifdef BENCH_COUNTED
    counted_read(rmws, lines);
#endif
}

void bench_begin(bench *b)
{
    read_counts(&b->rmws, &b->lines);
    b->is_over = false;
    b->began_cpu_ns = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    b->began_ns = bench_now_ns();
}

void bench_end(bench *b, uint64_t operations)
{
    uint64_t rmws, lines;
    b->took_ns = bench_now_ns() - b->began_ns;
    b->cpu_ns = clock_of(CLOCK_PROCESS_CPUTIME_ID) - b->began_cpu_ns;
    read_counts(&rmws, &lines);
    b->rmws = rmws - b->rmws;
    b->lines = lines - b->lines;
    b->operations = operations;
    bench_value(b, (double)b->took_ns / (double)operations, "ns/op");
}

void bench_value(bench *b, double value, const char *unit)
{
    b->value = value;
    b->unit = unit;
}

void bench_extra(bench *b, const char *name, double value)
{
    size_t used = strlen(b->extra);
    snprintf(b->extra + used, sizeof b->extra - used, ",\"%s\":%.3f", name, value);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

double bench_percentiles(bench *b, const char *prefix, uint64_t *samples_ns, size_t count)
{
    static const struct {
        const char *name;
        double      share;
    } points[] = { { "p50_us", 0.5 }, { "p99_us", 0.99 }, { "max_us", 1 } };
    qsort(samples_ns, count, sizeof *samples_ns, by_size);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s%s", prefix, points[i].name);
        bench_extra(b, name, (double)samples_ns[(size_t)(points[i].share * (double)(count - 1))] / 1000);
    }
    return (double)samples_ns[count / 2] / 1000;
}

/* ---- the printed line ---- */

static void print_count(const bench *b, const char *name, uint64_t count)
{
    if (b->counted && b->operations > 0) printf(",\"%s\":%.4f", name, (double)count / (double)b->operations);
    else printf(",\"%s\":null", name);
}

void bench_print(bench *b)
{
    printf("{\"system\":\"%s\",\"bench\":\"%s\",\"run\":%u,\"value\":%.3f,\"unit\":\"%s\"", b->system, b->name, b->run,
           b->value, b->unit);
    printf(",\"cpu_ms\":%.1f,\"rss_mb\":%.1f", (double)b->cpu_ns / 1e6, peak_mb());
    print_count(b, "rmw_per_op", b->rmws);
    print_count(b, "contended_per_op", b->lines);
    printf(",\"workers\":%u,\"size\":%llu,\"operations\":%llu%s}\n", b->workers, (unsigned long long)b->size,
           (unsigned long long)b->operations, b->extra);
    fflush(stdout);
    b->extra[0] = '\0';
}

int bench_close(bench *b, bool right)
{
    if (b->sched != NULL) (void)filch_sched_stop(b->sched, FILCH_SECONDS(60), NULL);
    if (!right) {
        fprintf(stderr, "bench: %s: the result is wrong\n", b->name);
        return 1;
    }
    if (b->unit != NULL) bench_print(b);
    return 0;
}
