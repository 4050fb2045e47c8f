/* bench_outside.c - a thread that is no scheduler thread of Erlang, for the wake benchmark: the thread sleeps, sends
 * the time to a process, and waits until the process has read it. */
#include <erl_nif.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct job {
    ErlNifPid    to;
    ErlNifUInt64 count;
    ErlNifUInt64 span_ns;
};

static _Atomic(ErlNifUInt64) seen_count;

static void sleep_ns(ErlNifUInt64 ns)
{
    struct timespec span = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
    while (nanosleep(&span, &span) != 0) {}
}

/* Does not use enif_monotonic_time, which works only on Erlang's own threads. */
static ErlNifSInt64 now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (ErlNifSInt64)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *send_all(void *argument)
{
    struct job job = *(struct job *)argument;
    enif_free(argument);
    ErlNifEnv *env = enif_alloc_env();
    for (ErlNifUInt64 i = 0; i < job.count; i++) {
        sleep_ns(job.span_ns);
        ERL_NIF_TERM now = enif_make_int64(env, now_ns());
        /* the process `to` does not exist, so nothing can be measured */
        if (!enif_send(NULL, &job.to, env, now)) abort();
        enif_clear_env(env);
        while (atomic_load(&seen_count) == i) sleep_ns(50000);
    }
    enif_free_env(env);
    return NULL;
}

static ERL_NIF_TERM send_later(ErlNifEnv *env, int count, const ERL_NIF_TERM arguments[])
{
    static ErlNifTid thread;
    struct job      *job = enif_alloc(sizeof *job);
    (void)count;
    if (!enif_get_local_pid(env, arguments[0], &job->to) || !enif_get_uint64(env, arguments[1], &job->count) ||
        !enif_get_uint64(env, arguments[2], &job->span_ns) ||
        enif_thread_create("outside", &thread, send_all, job, NULL) != 0) {
        enif_free(job);
        return enif_make_badarg(env);
    }
    return enif_make_atom(env, "ok");
}

/* Returns the time in ns since the message was sent, and lets the thread that sent the message continue. */
static ERL_NIF_TERM seen(ErlNifEnv *env, int count, const ERL_NIF_TERM arguments[])
{
    ErlNifSInt64 now = now_ns(), sent;
    (void)count;
    if (!enif_get_int64(env, arguments[0], &sent)) return enif_make_badarg(env);
    atomic_fetch_add(&seen_count, 1);
    return enif_make_int64(env, now - sent);
}

static ErlNifFunc functions[] = { { "send_later", 3, send_later, 0 }, { "seen", 1, seen, 0 } };

ERL_NIF_INIT(bench_outside, functions, NULL, NULL, NULL, NULL)
