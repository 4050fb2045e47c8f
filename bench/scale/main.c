/* main.c - runs a benchmark in the scale model. The linker redirects main, so that the main function of the benchmark
 * runs as thread 0 of the engine. It also redirects bench_begin and bench_end, so that only the measured part is
 * counted.
 *
 *     build/bench/scale/fanin --workers 64 --size 5000 --seed 3 --top 10 --set far=130000
 *
 * --seed, --top and --set are arguments of the scale model, all others of the benchmark. After the line of the
 * benchmark the scale model prints a line of its own: what was counted, and the places in the code that waited longest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

#include "bench.h"
#include "scale/blame.h"
#include "scale/engine.h"

static scale_config config = { .seed = 1 };
static unsigned     top = 10;

/* ---- the measured part ---- */

static scale_totals at_begin, at_end;
static scale_ps     began, ended;
static uint64_t     operations;

void __real_bench_begin(bench *b);
void __wrap_bench_begin(bench *b);
void __wrap_bench_begin(bench *b)
{
    __real_bench_begin(b);
    at_begin = scale_totals_now();
    began = scale_now();
    scale_blame_clear();
}

void __real_bench_end(bench *b, uint64_t count);
void __wrap_bench_end(bench *b, uint64_t count);
void __wrap_bench_end(bench *b, uint64_t count)
{
    __real_bench_end(b, count);
    at_end = scale_totals_now();
    ended = scale_now();
    operations = count;
}

/* Replaces bench_work_ns(), the work of a step: advances the clock and accesses no memory. */
void __wrap_bench_work_ns(uint64_t ns);
void __wrap_bench_work_ns(uint64_t ns)
{
    scale_spend(ns * SCALE_NS);
    scale_sync();
}

static void print_per_op(const char *name, uint64_t after, uint64_t before, double unit)
{
    printf(",\"%s\":%.4f", name, (double)(after - before) / unit / (double)operations);
}

static void print_totals(void)
{
    const scale_counts *to = &at_end.counts, *from = &at_begin.counts;
    printf("{\"seed\":%llu,\"wall_us\":%.1f", (unsigned long long)config.seed, (double)(ended - began) / 1e6);
    print_per_op("accesses", to->accesses, from->accesses, 1);
    print_per_op("rmws", to->rmws, from->rmws, 1);
    print_per_op("l2", to->l2, from->l2, 1);
    print_per_op("l3", to->l3, from->l3, 1);
    print_per_op("pages", to->pages, from->pages, 1);
    print_per_op("transfers", to->transfers, from->transfers, 1);
    print_per_op("far", to->far, from->far, 1);
    print_per_op("stall_ns", to->stall, from->stall, 1000);
    print_per_op("lock_waits", at_end.lock_waits, at_begin.lock_waits, 1);
    print_per_op("lock_ns", at_end.locked, at_begin.locked, 1000);
    print_per_op("wakes", at_end.wakes, at_begin.wakes, 1);
    print_per_op("asleep_ns", at_end.asleep, at_begin.asleep, 1000);
    printf(",\"sites\":");
    scale_blame_print(stdout, top);
    printf("}\n");
}

/* ---- arguments ---- */

static void refuse(const char *text)
{
    fprintf(stderr, "scale: %s\n", text);
    exit(2);
}

/* Takes the scale model's arguments out of the list. Returns the number of arguments that are left. */
static int take_arguments(int argc, char **argv)
{
    int left = 1;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--seed") == 0 && has_value) config.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--top") == 0 && has_value) top = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--set") == 0 && has_value) {
            if (!scale_machine_set(&config.machine, argv[++i]))
                refuse("--set needs NAME=NUMBER, see bench/scale/machine.h");
        } else argv[left++] = argv[i];
    }
    argv[left] = NULL;
    return left;
}

/* Returns the number of cores of a socket. A machine has two sockets. If two sockets of the default size have fewer
 * cores than there are workers, each socket gets more cores. */
static uint32_t cores_for(int argc, char **argv)
{
    uint32_t workers = 0;
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--workers") == 0) workers = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    }
    uint32_t half = (workers + 1) / 2, cores = (uint32_t)config.machine.cores;
    return half > cores ? half : cores;
}

/* ---- main ---- */

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

static int    program_argc;
static char **program_argv;
static int    result;

static void run_program(void *arg)
{
    (void)arg;
    result = __real_main(program_argc, program_argv);
}

/* Starts the program again without address randomisation. Cache lines are numbered independently of addresses, but the
 * benchmark may order objects by address. If the system does not allow a program without randomisation, the program
 * continues with random addresses. */
static void fix_addresses(char **argv)
{
    int persona = personality(0xffffffff);
    if (persona == -1 || (persona & ADDR_NO_RANDOMIZE) != 0) return;
    if (personality((unsigned long)persona | ADDR_NO_RANDOMIZE) == -1) return;
    execv("/proc/self/exe", argv);
}

int __wrap_main(int argc, char **argv)
{
    fix_addresses(argv);
    config.machine = scale_machine_default;
    program_argc = take_arguments(argc, argv);
    program_argv = argv;
    config.cores = cores_for(program_argc, argv);
    scale_run(&config, run_program, NULL);
    if (result == 0 && operations > 0) print_totals();
    return result;
}
