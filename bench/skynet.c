/* skynet.c - a tree of processes with ten children each and a million leaves. A leaf sends its number to its parent, a
 * node the sum of its children. The result of the root must be 499999500000. The value is the time for the whole tree;
 * an operation is a process. */
#include "bench.h"

static bench   b;
static int64_t total;

/* The args of a new process. The struct may be on the parent's stack, because the child's init runs inside the parent's
 * filch_spawn(). */
struct birth {
    filch_pid parent;
    int64_t   first; /* smallest number in the subtree of the new process */
    int64_t   count; /* how many numbers the subtree has */
};

static filch_err report(filch_out *out, uint64_t parent, int64_t sum)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    if (parent == 0) {
        total = sum;
        bench_over(&b);
        return FILCH_OK;
    }
    return filch_send(filch_ctx_sched(ctx), (filch_pid){ filch_ctx_self(ctx).node, parent }, filch_int(sum));
}

/* `parent` is only the serial of the parent's pid, so that the state fits into the 16 bytes that cost no extra
 * memory. */
struct leaf {
    uint64_t parent;
    int64_t  number;
};

static filch_err leaf_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    const struct birth *birth = filch_as_ptr(args);
    (void)ctx;
    (void)method;
    *(struct leaf *)self = (struct leaf){ .parent = birth->parent.serial, .number = birth->first };
    return FILCH_OK;
}

static filch_err leaf_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct leaf *leaf = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    filch_err err = report(out, leaf->parent, leaf->number);
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

static const filch_type leaf = { .name = "leaf", .size = sizeof(struct leaf), .init = leaf_init, .step = leaf_step };

struct node {
    uint64_t parent;
    int64_t  first, count, sum;
    int      missing; /* number of children that have not reported */
};

static filch_err node_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    const struct birth *birth = filch_as_ptr(args);
    (void)ctx;
    (void)method;
    *(struct node *)self = (struct node){ birth->parent.serial, birth->first, birth->count, 0, 0 };
    return FILCH_OK;
}

static filch_err node_step(void *self, const filch_event *events, size_t count, filch_out *out);

static const filch_type node = { .name = "node", .size = sizeof(struct node), .init = node_init, .step = node_step };

static filch_err branch(struct node *n, filch_out *out)
{
    struct birth        birth = { filch_ctx_self(filch_out_ctx(out)), n->first, n->count / 10 };
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_ptr(&birth);
    for (n->missing = 0; n->missing < 10; n->missing++, birth.first += birth.count) {
        filch_err err = filch_spawn(filch_out_sched(out), birth.count == 1 ? &leaf : &node, &options, NULL);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static filch_err node_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct node *n = self;
    if (count == 0) return branch(n, out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        n->sum += filch_as_int(&events[i].data);
        n->missing--;
    }
    if (n->missing > 0) return filch_idle(out);
    filch_err err = report(out, n->parent, n->sum);
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

int main(int argc, char **argv)
{
    bench_open(&b, "skynet", 1000000, argc, argv);
    struct birth birth = { { 0, 0 }, 0, (int64_t)b.size };
    uint64_t     processes = 1;
    for (uint64_t level = b.size; level > 1; level /= 10) processes += b.size * 10 / level;
    /* the two numbers of processes differ if --size is not a power of ten */
    if (b.size < 10 || processes != (b.size * 10 - 1) / 9) return bench_close(&b, false);
    bench_start(&b, NULL);
    bench_quiet(&b);
    bench_begin(&b);
    bench_spawn(&b, &node, filch_ptr(&birth));
    bench_wait(&b);
    bench_end(&b, processes);
    bench_value(&b, (double)b.took_ns / 1e6, "ms");
    return bench_close(&b, total == birth.count * (birth.count - 1) / 2);
}
