/* tree.c - a small supervision tree that repairs itself: a store, and two workers that use it. The program makes the
 * store fail; rest-for-one restarts the store and then the workers, in order. */
#include <filch.h>
#include <stdio.h>
#include <stdlib.h>

/* Number of processes that have been started. Each process prints a line when it starts. All processes run on this
 * thread (filch_tick), so the counter need not be atomic. */
static int starts;

static filch_err part_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)ctx;
    (void)args;
    printf("  %s starts\n", method);
    starts++;
    return FILCH_OK;
}

static filch_err part_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) return FILCH_EUSER; /* a message makes the store fail */
    }
    return filch_idle(out);
}

static const filch_type part = { .name = "part", .init = part_init, .step = part_step };

#define PART(text)                                                        \
    {                                                                     \
        .size = sizeof(filch_spawn_options), .method = text, .name = text \
    }
static const filch_spawn_options how[] = { PART("store"), PART("reader"), PART("writer") };

static const filch_child children[] = {
    { .id = "store", .type = &part, .options = &how[0] },
    { .id = "reader", .type = &part, .options = &how[1] },
    { .id = "writer", .type = &part, .options = &how[2] },
};
static const filch_supervisor tree = { .strategy = FILCH_REST_FOR_ONE, .children = children, .child_count = 3 };

static void run(filch_sched *sched)
{
    uint32_t ran;
    do {
        if (filch_tick(sched, 0, &ran) != FILCH_OK) exit(1);
    } while (ran > 0);
}

int main(void)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    options.workers = FILCH_NO_WORKERS;
    if (filch_sched_create(&sched, &options) != FILCH_OK) return 1;
    if (filch_supervise(sched, &tree, NULL, &pid) != FILCH_OK) return 1;
    printf("the tree:\n");
    run(sched);
    printf("the reader fails:\n");
    if (filch_send_name(sched, "reader", filch_none()) != FILCH_OK) return 1;
    run(sched);
    printf("the store fails:\n");
    if (filch_send_name(sched, "store", filch_none()) != FILCH_OK) return 1;
    run(sched);
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL) == FILCH_OK && starts == 3 + 2 + 3 ? 0 : 1;
}
