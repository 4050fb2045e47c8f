/* node.h - one event on its way to a process: a message, or the answer to a yield. 64 bytes, from a slab, named by a
 * 32-bit handle so that a mailbox head fits beside the state in one word.
 *
 * A node has one owner at a time: the sender until it is pushed, then the receiving process, whose worker gives it
 * back after the step. A yield's node is made with the yield and waits for its answer: `stamp` decides who may fill it.
 *
 *   FREE     nobody's answer. Messages never look at the stamp.
 *   PENDING  the yield is out. Owner: whoever claims it first - a completion, or the process when it ends.
 *   CLAIMED  a completion fills it and pushes it. Owner: that completion, then the process.
 * The generation changes when a yield's node is given back, so a receiver kept for too long claims nothing. It is 30
 * bits: a receiver that slept through exactly 2^30 reuses of one node would be believed.
 */
#ifndef FLI_PROC_NODE_H
#define FLI_PROC_NODE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <filch.h>

#include "port/atomic.h"
#include "proc/data.h"

/* node->what: which list of the process it ends up in, and how to read it. 0, PLAIN: a value from a process of this
 * runtime, as most messages are. It has no `tag`. */
enum {
    FLI_NODE_COMPLETION = 1,  /* a completed yield; otherwise a message */
    FLI_NODE_FOREIGN = 2, /* the sender lives on another node, named by `tag` */
    FLI_NODE_TICK = 4,    /* from a ticker: how many ticks is read when it is delivered */
    FLI_NODE_COUNTED = 8, /* takes up room in a mailbox with a limit */
    FLI_NODE_SYSTEM = 16, /* a notice (src/model): `index` is its filch_event_type, and above FLI_NOTICE_HOST where
                             the process it is about lives, if not here */
    FLI_NODE_GENERAL = 32,    /* a message that is not a PLAIN one */
    FLI_NODE_AFTER_MESSAGES = 64  /* with SYSTEM: a cancel that goes behind the messages (sched/drain.c) */
};

enum { FLI_STAMP_FREE, FLI_STAMP_PENDING, FLI_STAMP_CLAIMED, FLI_STAMP_MASK = 3, FLI_STAMP_GENERATION = 4 };

#define FLI_NOTICE_HOST 8 /* bits: a host's number plus one */

typedef struct fli_event_node {
    uint32_t next; /* plain: handed over by the push (PAIR state.push), then the process's own */
    uint32_t self; /* plain: set when made. Its own handle */
    /* generation:30 | FREE, PENDING or CLAIMED:2.  writes: see above.  PAIR node.claim */
    FLI_ATOMIC(uint32_t) stamp;
    union {
        uint32_t sender_worker; /* of a message: the index of the sending worker plus one; 0: not sent by a worker */
        uint32_t yield_index;   /* of a yield: its index in the process's list of outstanding yields */
        uint32_t notice;        /* of a notice: its filch_event_type, and the host above FLI_NOTICE_HOST */
    };
    union {
        uint64_t sender; /* of a message: the serial of the sending process; 0: none */
        uint64_t owner;  /* of a yield: the serial of the process that yielded */
        uint64_t about;  /* of a notice: the serial of the process that the notice is about; 0: none */
    };
    uint64_t tag; /* of a message with FLI_NODE_FOREIGN: the sender's node id; of a yield and a notice: the event's tag */
    /* From here on it has the shape of a filch_data that owns its bytes, with `what` and `error` in a gap of that. */
    uint8_t  kind, form, small;
    uint8_t  what;
    union {
        int32_t error;   /* of a completion or a notice: the event's error */
        int32_t command; /* of an outstanding yield: the command id */
    };
    uint64_t data[3]; /* of a yield that is out: [0] is what its handler wants back when it is abandoned */
} fli_event_node;

static_assert(sizeof(fli_event_node) == 64, "a node is one cache line");

static inline void fli_node_put_data(fli_event_node *node, const filch_data *data)
{
    node->kind = data->kind;
    node->form = data->form;
    node->small = data->small;
    memcpy(node->data, &data->as, sizeof node->data);
}

static_assert(offsetof(fli_event_node, kind) == 32 && offsetof(fli_event_node, data) == 40 && offsetof(filch_data, as) == 8 &&
              sizeof(filch_data) == 32, "a payload is four words: the kind and what stands beside it, and three of data");

/* The payload is a value: makes the node a PLAIN one. */
static inline void fli_node_put_value(fli_event_node *node, uint64_t kind, uint64_t first, uint64_t second)
{
    fli_value_put(&node->kind, kind, first, second); /* `form`, `small`, `what` and `error` are 0 */
}

/* Copies the payload of a PLAIN node, as fli_value_put writes it. */
static inline void fli_node_get_value(const fli_event_node *node, filch_data *data)
{
    const fli_word *from = (const fli_word *)(const void *)&node->kind;
    fli_word       *to = (fli_word *)(void *)data;
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
}

static inline void fli_node_get_data(const fli_event_node *node, filch_data *data)
{
    data->kind = node->kind;
    data->form = node->form;
    data->small = node->small;
    memcpy(&data->as, node->data, sizeof node->data);
}

#endif
