/* tasks_model.c - see tasks_model.h. Written for simplicity: everything is copied, searched and tried in all orders. */
#include "lua/tasks_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATES_MAX = 256, SETTLES = 2, ORDER = MODEL_BATCH + SETTLES };

/* SERVED: the outcome of the operation is known, but the task of the operation has not run since then */
typedef enum slot_state { FREE, WAITS, SERVED, OVER } slot_state;

typedef struct slot {
    slot_state state;
    bool       cancelled; /* a cancel of the task was requested, and the task has not seen the cancel yet */
    int        until_ms;  /* 0: no deadline */
    model_op   op;
    char       outcome[MODEL_TEXT];
} slot;

/* An entry in the queue of a channel: case `at` of the operation in slot `slot` waits for this channel. */
typedef struct place {
    int slot, at;
} place;

typedef struct line {
    int   capacity, count, sender_count, receiver_count;
    bool  closed;
    int   values[MODEL_QUEUE];
    place senders[MODEL_QUEUE], receivers[MODEL_QUEUE];
} line;

typedef struct state {
    line lines[MODEL_CHANNELS];
    slot slots[MODEL_SLOTS];
    int  inbox[MODEL_QUEUE];
    int  inbox_count;
    int  now_ms;
} state;

struct model {
    uint64_t random;
    int      next_value;
    int      state_count;
    state    states[STATES_MAX];
};

/* ---- drawing ---------------------------------------------------------------------------------------------------- */

static int draw(model *m, int below)
{
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((m->random >> 33) % (uint64_t)below);
}

model *model_create(uint64_t seed, const int capacity[MODEL_CHANNELS])
{
    model *m = calloc(1, sizeof *m);
    if (m == NULL) abort();
    m->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    m->state_count = 1;
    for (int i = 0; i < MODEL_CHANNELS; i++) m->states[0].lines[i].capacity = capacity[i];
    return m;
}

void model_destroy(model *m)
{
    free(m);
}

static bool uses_inbox(const model_op *op)
{
    for (int i = 0; i < op->case_count; i++) {
        if (op->cases[i].channel < 0) return true;
    }
    return false;
}

/* Draws a case for an operation. `inbox`: the case may wait for a message of the process. At most one task waits for
 * messages at a time, because it is not specified which of several tasks gets a message. */
static model_case draw_case(model *m, int kind, bool inbox)
{
    model_case c = { draw(m, MODEL_CHANNELS), 0 };
    if (kind == MODEL_SEND || (kind == MODEL_SELECT && draw(m, 2) == 0)) c.value = ++m->next_value;
    if (kind == MODEL_SELECT && inbox && draw(m, 3) == 0) c = (model_case){ -1, 0 };
    return c;
}

/* Draws an operation for slot `slot_number`. Returns false if the drawn operation is not possible. Looks only at the
 * first of the possible states of the model, because the same slots are free in all of them. */
static bool draw_op(model *m, model_op *op, int slot_number, bool inbox, int batch_left)
{
    const state *s = &m->states[0];
    int          dice = draw(m, 40);
    *op = (model_op){ .slot = slot_number, .case_count = 1, .target = draw(m, MODEL_SLOTS) };
    op->kind = dice < 10   ? MODEL_SEND
               : dice < 18 ? MODEL_RECEIVE
               : dice < 21 ? MODEL_ITERATE
               : dice < 29 ? MODEL_SELECT
               : dice < 31 ? MODEL_SLEEP
               : dice < 33 ? MODEL_AWAIT
               : dice < 34 ? MODEL_CLOSE
               : dice < 37 ? MODEL_CANCEL
                           : MODEL_POST;
    if (draw(m, 2) == 0 || op->kind == MODEL_SLEEP) op->timeout_ms = 1000 * (1 + draw(m, 3));
    if (op->kind == MODEL_ITERATE || op->kind == MODEL_CLOSE || op->kind == MODEL_CANCEL || op->kind == MODEL_POST)
        op->timeout_ms = 0;
    if (op->kind == MODEL_SELECT) op->case_count = 1 + draw(m, MODEL_CASES);
    for (int i = 0; i < op->case_count; i++) {
        op->cases[i] =
            draw_case(m, (int)op->kind,
                      inbox && !uses_inbox(&(model_op){ .case_count = i, .cases = { op->cases[0], op->cases[1] } }));
    }
    if (op->kind == MODEL_POST) op->cases[0] = (model_case){ 0, ++m->next_value };
    /* only the first channel may be closed, and only in one of three draws */
    if (op->kind == MODEL_CLOSE && (op->cases[0].channel > 0 || draw(m, 3) != 0)) return false;
    if (op->kind == MODEL_AWAIT || op->kind == MODEL_CANCEL) {
        const slot *target = &s->slots[op->target];
        if (target->state != WAITS || op->target == slot_number) return false;
        /* It is not specified in which order other tasks see the ends of two tasks. So no operation awaits or cancels a
         * task that itself awaits a task. */
        if (target->op.kind == MODEL_AWAIT && (op->kind == MODEL_AWAIT || batch_left > 1)) return false;
        if (op->kind == MODEL_CANCEL && target->op.kind == MODEL_AWAIT) return false;
    }
    return true;
}

int model_draw(model *m, model_op batch[MODEL_BATCH])
{
    int  want = draw(m, MODEL_BATCH + 1), count = 0;
    bool inbox = true;
    for (int i = 0; i < MODEL_SLOTS; i++) {
        const slot *at = &m->states[0].slots[i];
        if (at->state == WAITS && uses_inbox(&at->op)) inbox = false;
    }
    bool cancels = false, awaits = false;
    for (int i = 0; i < MODEL_SLOTS && count < want; i++) {
        model_op op;
        if (m->states[0].slots[i].state != FREE) continue;
        if (!draw_op(m, &op, i, inbox, want)) continue;
        /* If one batch cancels a task and another task of the batch awaits it, the order in which tasks see the end is
         * not specified. So a batch contains either cancels or awaits. */
        if ((op.kind == MODEL_CANCEL && awaits) || (op.kind == MODEL_AWAIT && cancels)) continue;
        cancels = cancels || op.kind == MODEL_CANCEL;
        awaits = awaits || op.kind == MODEL_AWAIT;
        if (uses_inbox(&op)) inbox = false;
        batch[count++] = op;
    }
    return count;
}

/* ---- what operations do -------------------------------------------------------------------------------------------
 */

static void remove_place(place *places, int *count, int slot_number)
{
    int kept = 0;
    for (int i = 0; i < *count; i++) {
        if (places[i].slot != slot_number) places[kept++] = places[i];
    }
    for (int i = kept; i < *count; i++) places[i] = (place){ 0, 0 };
    *count = kept;
}

static void leave(state *s, int slot_number)
{
    for (int i = 0; i < MODEL_CHANNELS; i++) {
        remove_place(s->lines[i].senders, &s->lines[i].sender_count, slot_number);
        remove_place(s->lines[i].receivers, &s->lines[i].receiver_count, slot_number);
    }
}

/* Records that case `at` of the operation in this slot has happened. `value`: the received value, 0 if none; `passed`
 * is false if the channel was closed. */
static void serve(state *s, int slot_number, int at, int value, bool passed)
{
    slot       *to = &s->slots[slot_number];
    bool        sends = to->op.cases[at].value != 0;
    char        word[16] = "nil";
    const char *fine = passed ? "true" : "false";
    leave(s, slot_number);
    to->state = SERVED;
    if (value != 0 && !sends) snprintf(word, sizeof word, "%d", value);
    if (sends && !passed) snprintf(to->outcome, MODEL_TEXT, "false,closed");
    else if (to->op.kind == MODEL_SEND) snprintf(to->outcome, MODEL_TEXT, "true,true");
    else if (to->op.kind == MODEL_ITERATE) snprintf(to->outcome, MODEL_TEXT, "true,%s", word);
    else if (to->op.kind == MODEL_RECEIVE) snprintf(to->outcome, MODEL_TEXT, "true,%s,%s", word, fine);
    else snprintf(to->outcome, MODEL_TEXT, "true,%d,%s,%s", at + 1, word, to->op.cases[at].channel < 0 ? "mail" : fine);
}

static int take_value(line *l)
{
    int value = l->values[0];
    l->count--;
    for (int i = 0; i < l->count; i++) l->values[i] = l->values[i + 1];
    l->values[l->count] = 0;
    return value;
}

/* Tries case `at` of the operation. Returns true if the case could proceed at once. */
static bool try_channel(state *s, int slot_number, int at)
{
    model_case c = s->slots[slot_number].op.cases[at];
    line      *l = &s->lines[c.channel];
    if (c.value != 0) {
        if (l->closed) return serve(s, slot_number, at, 0, false), true;
        if (l->receiver_count > 0) {
            serve(s, l->receivers[0].slot, l->receivers[0].at, c.value, true);
        } else if (l->count < l->capacity) {
            l->values[l->count++] = c.value;
        } else {
            return false;
        }
        return serve(s, slot_number, at, 0, true), true;
    }
    if (l->count > 0) {
        int value = take_value(l);
        if (l->sender_count > 0) {
            place p = l->senders[0];
            l->values[l->count++] = s->slots[p.slot].op.cases[p.at].value;
            serve(s, p.slot, p.at, 0, true);
        }
        return serve(s, slot_number, at, value, true), true;
    }
    if (l->sender_count > 0) {
        place p = l->senders[0];
        serve(s, slot_number, at, s->slots[p.slot].op.cases[p.at].value, true);
        serve(s, p.slot, p.at, 0, true);
        return true;
    }
    if (l->closed) return serve(s, slot_number, at, 0, false), true;
    return false;
}

static bool take_message(state *s, int slot_number, int at)
{
    if (s->inbox_count == 0) return false;
    serve(s, slot_number, at, s->inbox[0], true);
    s->inbox_count--;
    for (int i = 0; i < s->inbox_count; i++) s->inbox[i] = s->inbox[i + 1];
    s->inbox[s->inbox_count] = 0;
    return true;
}

static void ends(state *s, int slot_number, const char *outcome)
{
    leave(s, slot_number);
    snprintf(s->slots[slot_number].outcome, MODEL_TEXT, "%s", outcome);
    s->slots[slot_number].state = SERVED;
}

static void begin_wait(state *s, int slot_number)
{
    slot *me = &s->slots[slot_number];
    if (me->cancelled) {
        ends(s, slot_number, "false,cancelled");
        return;
    }
    me->state = WAITS;
    me->until_ms = me->op.timeout_ms != 0 ? s->now_ms + me->op.timeout_ms : 0;
    if (me->op.kind == MODEL_SLEEP || me->op.kind == MODEL_AWAIT) return;
    for (int i = 0; i < me->op.case_count; i++) {
        model_case c = me->op.cases[i];
        if (c.channel < 0) continue;
        line *l = &s->lines[c.channel];
        if (c.value != 0) l->senders[l->sender_count++] = (place){ slot_number, i };
        else l->receivers[l->receiver_count++] = (place){ slot_number, i };
    }
}

static void close_line(state *s, int number)
{
    line *l = &s->lines[number];
    l->closed = true;
    while (l->receiver_count > 0) serve(s, l->receivers[0].slot, l->receivers[0].at, 0, false);
    while (l->sender_count > 0) serve(s, l->senders[0].slot, l->senders[0].at, 0, false);
}

/* Applies an operation to the state. `blind`: the operation finds no messages, because they have not arrived yet. The
 * model allows both outcomes, with and without the messages. */
static void apply(state *s, const model_op *op, bool blind)
{
    slot *me = &s->slots[op->slot];
    me->op = *op;
    switch (op->kind) {
    case MODEL_CLOSE: close_line(s, op->cases[0].channel), ends(s, op->slot, "true"); return;
    case MODEL_CANCEL:
        if (s->slots[op->target].state == WAITS) s->slots[op->target].cancelled = true;
        ends(s, op->slot, "true");
        return;
    case MODEL_POST: s->inbox[s->inbox_count++] = op->cases[0].value, ends(s, op->slot, "true"); return;
    case MODEL_AWAIT:
        if (s->slots[op->target].state == OVER) {
            char text[MODEL_TEXT];
            snprintf(text, sizeof text, "true,%.50s", s->slots[op->target].outcome);
            ends(s, op->slot, text);
            return;
        }
        break;
    case MODEL_SLEEP: break;
    default:
        for (int i = 0; i < op->case_count; i++) {
            if (op->cases[i].channel < 0 ? !blind && take_message(s, op->slot, i) : try_channel(s, op->slot, i)) return;
        }
    }
    begin_wait(s, op->slot);
}

static int inbox_case(const model_op *op)
{
    for (int i = 0; i < op->case_count; i++) {
        if (op->cases[i].channel < 0) return i;
    }
    return -1;
}

/* Runs all tasks that can run: tasks with a known outcome end, tasks that await an ended task get its outcome,
 * cancelled tasks fail, and a task that waits for messages takes one. */
static void settle(state *s)
{
    for (int round = 0; round < MODEL_SLOTS; round++) {
        for (int i = 0; i < MODEL_SLOTS; i++) {
            slot *me = &s->slots[i];
            if (me->state == SERVED) me->state = OVER;
            if (me->state != WAITS) continue;
            int at = me->op.kind == MODEL_SELECT ? inbox_case(&me->op) : -1;
            if (me->op.kind == MODEL_AWAIT && s->slots[me->op.target].state == OVER) {
                char text[MODEL_TEXT];
                snprintf(text, sizeof text, "true,%.50s", s->slots[me->op.target].outcome);
                ends(s, i, text);
            } else if (me->cancelled) {
                ends(s, i, "false,cancelled");
            } else if (at >= 0) {
                (void)take_message(s, i, at);
            }
        }
    }
}

/* Lets `ms` milliseconds pass without other events. */
static void pass(state *s, int ms)
{
    s->now_ms += ms;
    for (;;) {
        int first = -1;
        for (int i = 0; i < MODEL_SLOTS; i++) {
            const slot *me = &s->slots[i];
            if (me->state != WAITS || me->until_ms == 0 || me->until_ms > s->now_ms) continue;
            if (first < 0 || me->until_ms < s->slots[first].until_ms) first = i;
        }
        if (first < 0) return;
        ends(s, first, s->slots[first].op.kind == MODEL_SLEEP ? "true" : "true,nil,timeout");
        settle(s);
    }
}

/* ---- all orders ------------------------------------------------------------------------------------------------- */

static bool agrees(const state *s, const model_view *view)
{
    for (int i = 0; i < MODEL_SLOTS; i++) {
        if (strcmp(s->slots[i].state == OVER ? s->slots[i].outcome : "", view->outcome[i]) != 0) return false;
    }
    for (int i = 0; i < MODEL_CHANNELS; i++) {
        const line *l = &s->lines[i];
        if (l->count != view->length[i] || l->sender_count != view->senders[i] ||
            l->receiver_count != view->receivers[i])
            return false;
    }
    return true;
}

typedef struct search {
    const model_op   *batch;
    int               count, ms;
    const model_view *view;
    state            *found;
    int               found_count;
    state last; /* the last state that the model allows and that does not agree with *view, for the error text */
} search;

static void keep(search *f, const state *s)
{
    state copy = *s;
    if (!agrees(s, f->view)) {
        f->last = *s;
        return;
    }
    for (int i = 0; i < MODEL_SLOTS; i++) {
        if (copy.slots[i].state == OVER) memset(&copy.slots[i], 0, sizeof copy.slots[i]);
    }
    for (int i = 0; i < f->found_count; i++) {
        if (memcmp(&f->found[i], &copy, sizeof copy) == 0) return;
    }
    if (f->found_count < STATES_MAX) f->found[f->found_count++] = copy;
}

/* Tries all orders in which the operations of the batch may be applied. `left`: one bit for each operation that has not
 * been applied; `settles`: how many more times tasks may run between two operations. */
static void try_orders(search *f, const state *s, unsigned left, int settles)
{
    if (left == 0) {
        state end = *s;
        settle(&end);
        pass(&end, f->ms);
        keep(f, &end);
        return;
    }
    for (int i = 0; i < f->count; i++) {
        if ((left & 1u << i) == 0) continue;
        int ways = s->inbox_count > 0 && uses_inbox(&f->batch[i]) ? 2 : 1;
        for (int blind = 0; blind < ways; blind++) {
            state next = *s;
            apply(&next, &f->batch[i], blind == 1);
            try_orders(f, &next, left & ~(1u << i), settles);
            if (settles == 0 || left == 1u << i) continue;
            settle(&next);
            try_orders(f, &next, left & ~(1u << i), settles - 1);
        }
    }
}

static void describe_state(const state *s, char *why, int size)
{
    int at = 0;
    for (int i = 0; i < MODEL_SLOTS && at < size; i++) {
        if (s->slots[i].state == FREE) continue;
        at += snprintf(why + at, (size_t)(size - at), " %d:%s", i,
                       s->slots[i].state == OVER ? s->slots[i].outcome : "waits");
    }
    for (int i = 0; i < MODEL_CHANNELS && at < size; i++) {
        at += snprintf(why + at, (size_t)(size - at), " ch%d:%d/%d/%d", i, s->lines[i].count, s->lines[i].sender_count,
                       s->lines[i].receiver_count);
    }
}

bool model_check(model *m, const model_op *batch, int count, int ms, const model_view *view, char *why, int why_size)
{
    state *found = calloc(STATES_MAX, sizeof *found);
    if (found == NULL) abort();
    search f = { .batch = batch, .count = count, .ms = ms, .view = view, .found = found };
    for (int i = 0; i < m->state_count; i++) try_orders(&f, &m->states[i], (1u << count) - 1, SETTLES);
    bool fine = f.found_count > 0;
    if (!fine) describe_state(&f.last, why, why_size);
    memcpy(m->states, found, (size_t)f.found_count * sizeof *found);
    m->state_count = f.found_count;
    free(found);
    return fine;
}
