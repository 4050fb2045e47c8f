/* filch_await.h - steps that are written from top to bottom. Optional: filch.h does not depend on this file, which
 * has only macros and inline functions over filch.h.
 *
 * A step is called repeatedly, so a state machine must store where it was. Here the state contains a filch_await,
 * and the step *awaits*: at an await it returns to the scheduler, and the next call continues after that await.
 *
 *     struct greeter { filch_await at; filch_stream stream; };
 *
 *     static filch_err greeter_step(void *self, const filch_event *events, size_t count, filch_out *out)
 *     {
 *         struct greeter *g = (struct greeter *)self;
 *         filch_await    *at = &g->at;
 *         FILCH_BEGIN(at, events, count, out);
 *         FILCH_AWAIT(at, filch_yield_connect(out, at->tag, "127.0.0.1:7000", NULL));
 *         if (at->error != FILCH_OK) return at->error;
 *         g->stream = filch_as_stream(at->data);
 *         FILCH_AWAIT(at, filch_yield_write(out, at->tag, g->stream, filch_str("hello\n"), FILCH_SECONDS(1)));
 *         FILCH_END(at);
 *     }
 *
 *     static const filch_type greeter = {
 *         .name = "greeter", .size = sizeof(struct greeter), .step = greeter_step, .close = filch_await_close
 *     };
 *
 * After an await, at->error, at->data and at->event describe the event that arrived. They are valid until the next
 * await: use filch_keep for data that you need longer. at->data may be NULL, which reads as an empty payload.
 *
 * The macros form a `switch` over at->line, the source line of the await at which the step waits, so:
 *   - local variables do not survive an await, as they do not survive any return: keep them in the state. Set
 *     variables that are needed before and after an await above FILCH_BEGIN, as `g` and `at` in the example; in C++
 *     they must also be declared there.
 *   - one await per line, and none inside a `switch` of your own. Loops and ifs are fine.
 *   - return filch_done(...) or an error from anywhere; falling off the end is filch_done with an empty result.
 *
 * Events that the step does not await are held, in order, until it awaits them. While a yield is awaited, messages stay
 * in the mailbox, with its limits; at most those of the current batch are held. Only held events take memory (malloc):
 * that is why the type needs filch_await_close, or a close of its own that calls filch_await_drop.
 *
 * A cancel ends the process at any await, with the cancel's error; or, if the step has a FILCH_FINALLY, the process
 * continues after FILCH_FINALLY.
 *
 * Compiles as C99, C11 and C++.
 */
#ifndef FILCH_AWAIT_H
#define FILCH_AWAIT_H

#include <stdlib.h>
#include <string.h>

#include <filch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The position of a step, and the event of its last await. Part of the process's state; all zero at first. Make it
 * the first member, for filch_await_close. You may read the first five fields; the others are private. */
typedef struct filch_await {
    uint32_t           line;  /* source line of the await at which the step waits; 0: at the beginning */
    filch_err          error; /* FILCH_OK, or why the yield failed or could not be made */
    uint64_t           tag;   /* tag for the yield in FILCH_AWAIT: each await has a new one, from 2^63 up */
    const filch_data  *data;  /* data of the event of the last await; NULL: no event */
    const filch_event *event; /* the whole event of the last await; NULL when the yield could not be made */
    const filch_event *next;  /* first event of this step that no await has looked at; `left`: number of events from
                                 `next` on */
    uint16_t     left;
    uint16_t     tidying; /* 1: FILCH_FINALLY has been reached */
    filch_err    reason;  /* reason of the cancel; FILCH_OK: not cancelled */
    filch_out   *out;
    filch_event *held; /* events held for later awaits, in order of arrival, from held[1] on; held[0] is the event of
                          the last await, if that event was held */
    uint32_t held_count, held_room;
} filch_await;

/* Begins the part of a step that awaits. Used once in a step, with the step's own arguments. */
#define FILCH_BEGIN(at, events, count, out)            \
    filch_await_begin((at), (events), (count), (out)); \
    switch ((at)->line) {                              \
    case 0:

/* Ends the part of a step that awaits. A step that reaches FILCH_END ends its process with filch_done(out,
 * filch_none()); after a cancel, with the reason of the cancel as the error. */
#define FILCH_END(at)                  \
    (at)->line = FILCH_AWAIT_LINE_END; \
    break;                             \
    default: break;                    \
        }                              \
        return filch_await_end(at)

/* Makes a yield with `call`, which must pass at->tag as the tag. The step continues here when the completion has
 * arrived. */
#define FILCH_AWAIT(at, call)                                                  \
    do {                                                                       \
        (at)->line = __LINE__;                                                 \
        (at)->tag = ((at)->tag + 1) | FILCH_AWAIT_TAGS;                        \
        (at)->error = (call);                                                  \
        filch_await_forget(at);                                                \
        if ((at)->error == FILCH_OK) {                                         \
            while (!filch_await_take((at), FILCH_AWAIT_WANT_TAG, (at)->tag)) { \
                return filch_await_rest((at), filch_wait);                     \
            case __LINE__:;                                                    \
            }                                                                  \
        }                                                                      \
    } while (0)

/* Awaits the completion of the yield with the tag `the_tag`, which the step has made before. The tag is one of your
 * own, below 2^63; several such yields can be outstanding. */
#define FILCH_AWAIT_TAG(at, the_tag) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_TAG, the_tag, filch_wait)

/* Awaits the next completion of any yield: at->event->tag says which. If no yield is outstanding, the process ends
 * with FILCH_ENOYIELD. */
#define FILCH_AWAIT_YIELD(at) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_YIELD, 0, filch_wait)

/* FILCH_AWAIT_MESSAGE awaits the next message, FILCH_AWAIT_EVENT the next event of any kind (at->event->type), in
 * order of arrival. */
#define FILCH_AWAIT_MESSAGE(at) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_MESSAGE, 0, filch_idle)
#define FILCH_AWAIT_EVENT(at) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_EVENT, 0, filch_idle)

/* The code between FILCH_FINALLY and FILCH_END runs when the code before it has finished, or as soon as the process is
 * cancelled (at->reason is then the reason, otherwise FILCH_OK). The code after FILCH_FINALLY may await; further
 * cancels are ignored. A `return` before FILCH_FINALLY skips that code, so free memory in the type's close. */
#define FILCH_FINALLY(at)               \
    do {                                \
        while (0) {                     \
        case FILCH_AWAIT_LINE_FINALLY:; \
        }                               \
        (at)->tidying = 1;              \
    } while (0)

/* ---- Filch's own from here on ------------------------------------------------------------------------------- */

#define FILCH_AWAIT_TAGS (UINT64_C(1) << 63)
#define FILCH_AWAIT_LINE_FINALLY 0xfffffffeu
#define FILCH_AWAIT_LINE_END 0xffffffffu

enum { FILCH_AWAIT_WANT_TAG, FILCH_AWAIT_WANT_YIELD, FILCH_AWAIT_WANT_MESSAGE, FILCH_AWAIT_WANT_EVENT };

#define FILCH_AWAIT_WHAT(at, what, the_tag, status)          \
    do {                                                     \
        (at)->line = __LINE__;                               \
        filch_await_forget(at);                              \
        while (!filch_await_take((at), (what), (the_tag))) { \
            return filch_await_rest((at), (status));         \
        case __LINE__:;                                      \
        }                                                    \
    } while (0)

static inline void filch_await_begin(filch_await *at, const filch_event *events, size_t count, filch_out *out)
{
    at->next = events;
    at->left = (uint16_t)count; /* `count` fits, because option batch_max is at most 1024 */
    at->out = out;
    if (count == 0 || events[0].type != FILCH_EVENT_CANCEL) return; /* cancels come first; there may be several */
    do {
        at->next++;
        at->left--;
    } while (at->left > 0 && at->next->type == FILCH_EVENT_CANCEL);
    if (at->tidying) return;
    at->reason = events[0].error != FILCH_OK ? events[0].error : FILCH_ECANCELLED;
    at->line = FILCH_AWAIT_LINE_FINALLY; /* with this value, a step without FILCH_FINALLY jumps to the `default` label
                                            of FILCH_END */
}

static inline filch_err filch_await_end(filch_await *at)
{
    if (at->reason != FILCH_OK) return at->reason;
    /* FILCH_ESTATE: no await is at at->line, because the state was not zeroed or has been overwritten. */
    return at->line == FILCH_AWAIT_LINE_END ? filch_done(at->out, filch_none()) : FILCH_ESTATE;
}

/* Releases the event of the last await: at->event and at->data are no longer valid. */
static inline void filch_await_forget(filch_await *at)
{
    at->data = NULL;
    at->event = NULL;
    if (at->held != NULL) filch_drop(&at->held[0].data);
}

static inline int filch_await_is(const filch_event *event, int what, uint64_t tag)
{
    switch (what) {
    case FILCH_AWAIT_WANT_TAG: return event->type == FILCH_EVENT_YIELD && event->tag == tag;
    case FILCH_AWAIT_WANT_YIELD: return event->type == FILCH_EVENT_YIELD;
    case FILCH_AWAIT_WANT_MESSAGE: return event->type == FILCH_EVENT_MESSAGE;
    default: return 1;
    }
}

static inline int filch_await_got(filch_await *at, const filch_event *event)
{
    at->event = event;
    at->data = &event->data;
    at->error = event->error;
    return 1;
}

/* Holds one event for a later await. Returns 0 if there is no memory. */
static inline int filch_await_hold(filch_await *at, const filch_event *event)
{
    if (at->held_count + 1 >= at->held_room) {
        uint32_t     room = at->held_room == 0 ? 8 : at->held_room * 2;
        filch_event *more = (filch_event *)realloc(at->held, room * sizeof *more);
        if (more == NULL) return 0;
        if (at->held == NULL) memset(more, 0, sizeof *more);
        at->held = more;
        at->held_room = room;
    }
    filch_event *slot = &at->held[at->held_count + 1];
    *slot = *event;
    if (filch_keep(&event->data, &slot->data) != FILCH_OK) return 0;
    at->held_count++;
    return 1;
}

/* Takes the first held event that matches `what` and `tag`. Returns 0 if no held event matches. */
static inline int filch_await_take_held(filch_await *at, int what, uint64_t tag)
{
    for (uint32_t i = 1; i <= at->held_count; i++) {
        if (!filch_await_is(&at->held[i], what, tag)) continue;
        at->held[0] = at->held[i];
        memmove(&at->held[i], &at->held[i + 1], (at->held_count - i) * sizeof *at->held);
        at->held_count--;
        return filch_await_got(at, &at->held[0]);
    }
    return 0;
}

/* Takes the awaited event from the held events, or otherwise from the events of this step; holds the events of this
 * step that come before it. Returns 0 if the awaited event has not arrived. */
static inline int filch_await_take(filch_await *at, int what, uint64_t tag)
{
    if (at->held_count > 0 && filch_await_take_held(at, what, tag)) return 1;
    while (at->left > 0) {
        const filch_event *event = at->next;
        int                wanted = filch_await_is(event, what, tag);
        if (!wanted && !filch_await_hold(at, event)) return 0;
        at->next++;
        at->left--;
        if (wanted) return filch_await_got(at, event);
    }
    return 0;
}

/* Returns the status of a step that has to wait; or FILCH_ENOMEM, if there was no memory to hold the other events of
 * this step. */
static inline filch_err filch_await_rest(filch_await *at, filch_err (*status)(filch_out *out))
{
    return at->left == 0 ? status(at->out) : FILCH_ENOMEM;
}

/* Frees the held events. For the close of a type that has more to release in its state. */
static inline void filch_await_drop(filch_await *at)
{
    if (at->held == NULL) return;
    for (uint32_t i = 0; i <= at->held_count; i++) filch_drop(&at->held[i].data);
    free(at->held);
    at->held = NULL;
    at->held_count = at->held_room = 0;
}

/* A close function, for a type that has its filch_await at the start of its state and nothing else to release. */
static inline void filch_await_close(void *self)
{
    filch_await_drop((filch_await *)self);
}

#ifdef __cplusplus
}
#endif

#endif
