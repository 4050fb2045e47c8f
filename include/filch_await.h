/* filch_await.h - steps that read from top to bottom. Optional: filch.h knows nothing of it, and it is only macros and
 * inline functions over filch.h.
 *
 * A step is called again and again; a state machine remembers by hand where it was. Here the state has a filch_await in
 * it, and the step *awaits*: it returns to the scheduler there, and the next call goes on behind it.
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
 * After an await, at->error, at->data and at->event tell what came. They are lent until the next await: filch_keep
 * what must stay. at->data may be NULL, which reads as an empty payload.
 *
 * It is a `switch` over the line number of the await the step stands at (at->line, for debuggers), so:
 *   - local variables do not survive an await, as they do not survive any return: keep them in the state. Set those that
 *     are needed on both sides again, above FILCH_BEGIN, as `g` and `at` above. (C++ also wants them declared there.)
 *   - one await per line, and none inside a `switch` of your own. Loops and ifs are fine.
 *   - return filch_done(...) or an error from anywhere; falling off the end is filch_done with an empty result.
 *
 * Events that the step does not await are held, in order, until it awaits them. While a yield is awaited, messages stay
 * in the mailbox, with its limits; at most those of the current batch are held. Only held events take memory (malloc):
 * that is why the type needs filch_await_close, or a close of its own that calls filch_await_drop.
 *
 * A cancel ends the process wherever it stands, with the cancel's error; or, with FILCH_FINALLY, goes on there.
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

/* Where a step stands, and what its last await brought. Part of the state; all zero to begin with. Make it the first
 * member, for filch_await_close. You read the first five; the others are Filch's own. */
typedef struct filch_await {
    uint32_t           line;  /* of the await it stands at; 0: at the beginning */
    filch_err          error; /* FILCH_OK, or why the yield failed, or could not be made */
    uint64_t           tag;   /* for the yield being awaited: a fresh one each time, from 2^63 up */
    const filch_data  *data;  /* of the event, or NULL */
    const filch_event *event; /* the whole event; NULL when the yield could not be made */
    const filch_event *next;  /* of the batch, and how many follow: */
    uint16_t           left;
    uint16_t           tidying; /* FILCH_FINALLY has been reached */
    filch_err          reason;  /* of the cancel */
    filch_out         *out;
    filch_event       *held; /* [0] is what was awaited last, if it came from here; the others wait in order */
    uint32_t           held_count, held_room;
} filch_await;

/* Begins the part that awaits, once in a step, with the step's own arguments. */
#define FILCH_BEGIN(at, events, count, out)              \
    filch_await_begin((at), (events), (count), (out));   \
    switch ((at)->line) {                                \
    case 0:

/* Ends it. Falling through to here ends the process with filch_done(out, filch_none()); after a cancel, with its error. */
#define FILCH_END(at)                       \
        (at)->line = FILCH_AWAIT_LINE_END;  \
        break;                              \
    default: break;                         \
    }                                       \
    return filch_await_end(at)

/* Makes a yield, `call`, with the tag at->tag, and continues when its completion is there. */
#define FILCH_AWAIT(at, call)                                                                       \
    do {                                                                                            \
        (at)->line = __LINE__;                                                                      \
        (at)->tag = ((at)->tag + 1) | FILCH_AWAIT_TAGS;                                             \
        (at)->error = (call);                                                                       \
        filch_await_forget(at);                                                                     \
        if ((at)->error == FILCH_OK) {                                                              \
            while (!filch_await_take((at), FILCH_AWAIT_WANT_TAG, (at)->tag)) {                      \
                return filch_await_rest((at), filch_wait);                                          \
            case __LINE__:;                                                                         \
            }                                                                                       \
        }                                                                                           \
    } while (0)

/* The answer to a yield made before, with a tag of your own (below 2^63): several can be outstanding at a time. */
#define FILCH_AWAIT_TAG(at, the_tag) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_TAG, the_tag, filch_wait)

/* The next answer to any yield: at->event->tag says which. With none outstanding the process ends: FILCH_ENOYIELD. */
#define FILCH_AWAIT_YIELD(at) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_YIELD, 0, filch_wait)

/* The next message; the next event of any kind (at->event->type), in the order they came. */
#define FILCH_AWAIT_MESSAGE(at) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_MESSAGE, 0, filch_idle)
#define FILCH_AWAIT_EVENT(at) FILCH_AWAIT_WHAT(at, FILCH_AWAIT_WANT_EVENT, 0, filch_idle)

/* What stands between here and FILCH_END is done in the end: when the body arrives here, or as soon as the process is
 * asked to end (at->reason is why then, otherwise FILCH_OK). It may await; further cancels are ignored. A `return` in
 * the body skips it: memory is for the type's close. */
#define FILCH_FINALLY(at)                  \
    do {                                   \
        while (0) {                        \
        case FILCH_AWAIT_LINE_FINALLY:;    \
        }                                  \
        (at)->tidying = 1;                 \
    } while (0)

/* ---- Filch's own from here on ------------------------------------------------------------------------------- */

#define FILCH_AWAIT_TAGS (UINT64_C(1) << 63)
#define FILCH_AWAIT_LINE_FINALLY 0xfffffffeu
#define FILCH_AWAIT_LINE_END 0xffffffffu

enum { FILCH_AWAIT_WANT_TAG, FILCH_AWAIT_WANT_YIELD, FILCH_AWAIT_WANT_MESSAGE, FILCH_AWAIT_WANT_EVENT };

#define FILCH_AWAIT_WHAT(at, what, the_tag, status)            \
    do {                                                       \
        (at)->line = __LINE__;                                 \
        filch_await_forget(at);                                \
        while (!filch_await_take((at), (what), (the_tag))) {   \
            return filch_await_rest((at), (status));           \
        case __LINE__:;                                        \
        }                                                      \
    } while (0)

static inline void filch_await_begin(filch_await *at, const filch_event *events, size_t count, filch_out *out)
{
    at->next = events;
    at->left = (uint16_t)count; /* option batch_max is 1024 at most */
    at->out = out;
    if (count == 0 || events[0].type != FILCH_EVENT_CANCEL) return; /* cancels come first */
    at->next++;
    at->left--;
    if (at->tidying) return;
    at->reason = events[0].error != FILCH_OK ? events[0].error : FILCH_ECANCELLED;
    at->line = FILCH_AWAIT_LINE_FINALLY; /* without a FILCH_FINALLY: FILCH_END's default */
}

static inline filch_err filch_await_end(filch_await *at)
{
    if (at->reason != FILCH_OK) return at->reason;
    /* A line at which no await is: the state was not zeroed, or has been overwritten. */
    return at->line == FILCH_AWAIT_LINE_END ? filch_done(at->out, filch_none()) : FILCH_ESTATE;
}

/* What the last await brought is no longer lent. */
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

/* Puts one aside for later. 0: no memory. */
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

/* Takes the first of those held that is wanted. */
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

/* Takes the awaited event from those held, then from the batch; holds the other events of the batch. Returns 0 if it
 * has not come. */
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

/* How the step returns that has to wait. Something of the batch is left only if there was no memory to hold it. */
static inline filch_err filch_await_rest(filch_await *at, filch_err (*status)(filch_out *out))
{
    return at->left == 0 ? status(at->out) : FILCH_ENOMEM;
}

/* Frees what is held. For the close of a type with more to release in its state. */
static inline void filch_await_drop(filch_await *at)
{
    if (at->held == NULL) return;
    for (uint32_t i = 0; i <= at->held_count; i++) filch_drop(&at->held[i].data);
    free(at->held);
    at->held = NULL;
    at->held_count = at->held_room = 0;
}

/* A close for types with a state that begins with its filch_await and has nothing else to release. */
static inline void filch_await_close(void *self)
{
    filch_await_drop((filch_await *)self);
}

#ifdef __cplusplus
}
#endif

#endif
