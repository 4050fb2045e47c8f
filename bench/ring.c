/* ring.c - 1,000 processes in a circle, one token. An operation is one hop. */
#include "bench.h"

#define PROCESSES 1000

static bench    b;
static uint64_t rounds; /* number of completed rounds of the token */

struct member {
    filch_pid next;
};

static filch_err member_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct member *)self)->next = filch_as_pid(args);
    return FILCH_OK;
}

/* A message with an int is the token; the int is the number of hops left. A message with a pid names the next process
 * of the ring; only the last process gets a message with a pid, which closes the ring. */
static filch_err member_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct member *member = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        if (filch_kind_of(&events[i].data) == FILCH_KIND_PID) {
            member->next = filch_as_pid(&events[i].data);
            continue;
        }
        int64_t left = filch_as_int(&events[i].data);
        if (left % PROCESSES == 0) rounds++;
        if (left == 0) {
            bench_over(&b);
            continue;
        }
        filch_err err = filch_send(filch_out_sched(out), member->next, filch_int(left - 1));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type member = {
    .name = "member", .size = sizeof(struct member), .init = member_init, .step = member_step
};

int main(int argc, char **argv)
{
    bench_open(&b, "ring", 2000000, argc, argv);
    bench_start(&b, NULL);
    filch_pid last = bench_spawn(&b, &member, filch_none()), next = last;
    for (int i = 1; i < PROCESSES; i++) next = bench_spawn(&b, &member, filch_of_pid(next));
    bench_send(&b, last, filch_of_pid(next));
    bench_quiet(&b);
    bench_begin(&b);
    bench_send(&b, next, filch_int((int64_t)b.size));
    bench_wait(&b);
    bench_end(&b, b.size);
    return bench_close(&b, rounds == b.size / PROCESSES + 1);
}
