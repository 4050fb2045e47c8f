/* hello.c - the first program: one process greets three times, then ends. */
#include <filch.h>
#include <stdio.h>

struct greeter {
    int greeted;
};

static filch_err greeter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct greeter *g = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        printf("hello, %s\n", filch_text(&events[i].data));
        g->greeted++;
    }
    return g->greeted < 3 ? filch_idle(out) : filch_done(out, filch_int(g->greeted));
}

static const filch_type greeter = { .name = "greeter", .size = sizeof(struct greeter), .step = greeter_step };

int main(void)
{
    const char  *names[] = { "world", "moon", "sun" };
    filch_sched *sched;
    filch_pid    pid;
    if (filch_sched_create(&sched, NULL) || filch_spawn(sched, &greeter, NULL, &pid)) return 1;
    for (int i = 0; i < 3; i++) {
        if (filch_send(sched, pid, filch_str(names[i]))) return 1;
    }
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL); /* waits until the greeter is done, then returns 0 */
}
