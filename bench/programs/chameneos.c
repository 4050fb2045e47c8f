/* chameneos.c - 100 creatures meet in pairs at a mall and change colour. --size is the number of meetings. A meeting
 * is four messages: two creatures come to the mall, and each is told the colour of the other. */
#include "programs.h"

enum { CREATURES = 100, COLOURS = 3, OVER = -1 };

struct mall {
    uint64_t  left, gone;
    filch_pid waiting;
    int64_t   colour; /* colour of the creature in `waiting` */
    bool      occupied;
};

static filch_err mall_visit(struct mall *mall, const filch_event *event, filch_out *out)
{
    if (mall->left == 0) {
        mall->gone++;
        return send_to(out, event->from, filch_int(OVER));
    }
    mall->occupied = !mall->occupied;
    if (mall->occupied) {
        mall->waiting = event->from;
        mall->colour = filch_as_int(&event->data);
        return FILCH_OK;
    }
    mall->left--;
    filch_err err = send_to(out, mall->waiting, event->data);
    return err != FILCH_OK ? err : send_to(out, event->from, filch_int(mall->colour));
}

static filch_err mall_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct mall *mall = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        filch_err err = mall_visit(mall, &events[i], out);
        if (err != FILCH_OK) return err;
    }
    return mall->gone == CREATURES ? filch_done(out, filch_none()) : filch_idle(out);
}

struct creature {
    filch_pid mall;
    int64_t   colour, met;
};

static filch_err creature_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct creature *creature = self;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        int64_t other = filch_as_int(&events[0].data);
        if (other == OVER) {
            report(creature->met);
            return filch_done(out, filch_none());
        }
        creature->met++;
        /* creatures of equal colours keep their colour; creatures of two different colours take the third colour */
        if (other != creature->colour) creature->colour = COLOURS - creature->colour - other;
    }
    filch_err err = send_to(out, creature->mall, filch_int(creature->colour));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type mall_type = {
    .name = "mall", .size = sizeof(struct mall), .init = copy_state, .step = mall_step
};
static const filch_type creature_type = {
    .name = "creature", .size = sizeof(struct creature), .init = copy_state, .step = creature_step
};

bool chameneos(uint64_t variant)
{
    (void)variant;
    bench_start(&run, NULL);
    filch_pid mall = start(&mall_type, &(struct mall){ .left = run.size });
    bench_quiet(&run);
    expect_results(CREATURES);
    bench_begin(&run);
    for (int i = 0; i < CREATURES; i++) start(&creature_type, &(struct creature){ mall, i % COLOURS, 0 });
    int64_t met = wait_for_results();
    bench_end(&run, run.size);
    return met == 2 * (int64_t)run.size;
}
