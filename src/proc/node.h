/* node.h - the event node: one event on its way to a process, that is a message, the completion of a yield, or a notice
 * of src/model. 64 bytes from a slab, named by a 32-bit handle so that the mailbox head fits into the state word.
 *
 * A node has one owner at a time: the sender until the push, then the receiving process; its worker gives the node
 * back to the slab after the step. A *short node* is the first half of a node, 32 bytes from a slab of its own: a value
 * that a foreign thread sent to a mailbox without a limit. Its handle has the bit FLI_SHORT_BIT. The node of a yield is
 * allocated with the yield and waits for the completion; `stamp` decides which thread may fill the node:
 *
 *   FREE     not a yield. Messages never use the stamp.
 *   PENDING  an outstanding yield. Owner: the first claimer, either a completion or the ending process.
 *   CLAIMED  a completion fills and pushes the node. Owner: that completion, then the process.
 * The generation in the stamp changes when a yield's node is given back, so a receiver that is kept too long claims
 * nothing. It has 30 bits: a receiver that is used after exactly 2^30 reuses of one node would be accepted wrongly.
 */
#ifndef FLI_PROC_NODE_H
#define FLI_PROC_NODE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <filch.h>

#include "payload/data.h"
#include "port/atomic.h"

/* Bits of node->what: to which private list the node goes, and how it is read. 0 is a plain message: sent by a process
 * of this runtime to a mailbox without a limit. Most messages are plain. A plain message has no `tag`, and its `error`
 * is 0. A value message has a payload of form FLI_FORM_VALUE: it is a plain message, or, in a mailbox with a limit, has
 * only the bit FLI_NODE_COUNTED. A message of bytes in a mailbox with a limit also has FLI_NODE_GENERAL. */
enum {
    FLI_NODE_COMPLETION = 1, /* the completion of a yield */
    FLI_NODE_FOREIGN = 2,    /* a message from a process of another scheduler; `tag` is the sender's node id */
    FLI_NODE_TICK = 4,       /* a message of a ticker; the number of ticks is read at delivery */
    FLI_NODE_COUNTED = 8,    /* counted in the load of a mailbox with a limit (limit.h) */
    FLI_NODE_SYSTEM = 16,    /* a notice of src/model; its type is in `notice` */
    FLI_NODE_GENERAL = 32,   /* any other message */
    /* with SYSTEM: the cancel that a stop sends, delivered after the messages that are queued already
     * (sched/drain.c) */
    FLI_NODE_AFTER_MESSAGES = 64,
    /* set on the oldest message if a step got only other events: the next step must get this message (mailbox.c) */
    FLI_NODE_PASSED = 128
};

enum { FLI_STAMP_FREE, FLI_STAMP_PENDING, FLI_STAMP_CLAIMED, FLI_STAMP_MASK = 3, FLI_STAMP_GENERATION = 4 };

/* Lowest bit of the host field in `notice`. The field holds the number of the host of `about` plus one; 0: the
 * receiver's own host. */
#define FLI_NOTICE_HOST 8

/* Bit of a handle. Set: the handle names a short node. */
#define FLI_SHORT_BIT (UINT32_C(1) << 31)

typedef struct fli_event_node {
    /* handle of the next node in a list. Not atomic: passed to the receiver by PAIR state.push, then owned by the
     * process */
    uint32_t next;
    uint32_t self; /* the node's own handle. Not atomic: set when the node is made */
    /* The fields down to `data` have the layout of a filch_data that owns its bytes; `what` and `error` lie in a gap
     * of filch_data. */
    uint8_t kind, form, small;
    uint8_t what;
    union {
        int32_t error;   /* in a completion or a notice: the event's error */
        int32_t command; /* in an outstanding yield: the command id */
    };
    /* in an outstanding yield: data[0] is the cookie that the handler stored, and that hooks.abandon gets if the
     * process ends. A short node ends after data[1] */
    uint64_t data[3];
    union {
        uint64_t sender; /* in a message: the serial of the sending process; 0: none */
        uint64_t owner;  /* in a yield: the serial of the process that yielded */
        uint64_t about;  /* in a notice: the serial of the process that the notice is about; 0: none */
    };
    uint64_t tag; /* with FLI_NODE_FOREIGN: the sender's node id; in a yield or notice: the event's tag */
    /* Bits: generation:30 | FREE, PENDING or CLAIMED:2. writes: the owner, and the thread that claims the node.
     * PAIR node.claim */
    FLI_ATOMIC(uint32_t) stamp;
    union {
        uint32_t sender_worker; /* in a message: the index of the sending worker plus one; 0: not sent by a worker */
        uint32_t yield_index;   /* in a yield: its index in the process's list of outstanding yields */
        /* in a notice: its filch_event_type in the low FLI_NOTICE_HOST bits, the host of `about` above them */
        uint32_t notice;
    };
} fli_event_node;

static_assert(sizeof(fli_event_node) == 64, "a node is one cache line");

#define FLI_SHORT_NODE_SIZE 32
static_assert(offsetof(fli_event_node, data) + 2 * sizeof(uint64_t) == FLI_SHORT_NODE_SIZE,
              "a short node holds a value");

/* Returns true if the node has only the fields down to data[1]. */
static inline bool fli_node_is_short(const fli_event_node *node)
{
    return (node->self & FLI_SHORT_BIT) != 0;
}

/* Writes an owned payload; `what` and `error` stay. Reads `kind`, `form` and `small` of `data` one by one, because the
 * caller may have written them one by one, but writes them in one store: see fli_word. */
static inline void fli_node_put_data(fli_event_node *node, const filch_data *data)
{
    const fli_word *from = (const fli_word *)(const void *)&data->as;
    fli_word       *to = (fli_word *)node->data;
    fli_shape_put(&node->kind, data->kind, data->form, data->small, node->what, (uint32_t)node->error);
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
}

static_assert(offsetof(fli_event_node, kind) == 8 && offsetof(fli_event_node, data) == 16 &&
                  offsetof(filch_data, as) == 8 && sizeof(filch_data) == 32,
              "a payload is four words: the kind and what stands beside it, and three of data");

/* Writes a value and makes the node a plain value message. */
static inline void fli_node_put_value(fli_event_node *node, uint64_t kind, uint64_t first, uint64_t second)
{
    /* fli_value_put() also sets `form`, `small`, `what` and `error` to 0 */
    fli_value_put(&node->kind, kind, first, second);
}

/* Returns kind, form, `small` and `what` of a node as one number, with the kind in the lowest byte. For a plain value
 * message the number is at most FILCH_KIND_PTR; for every other node it is larger. */
static inline uint32_t fli_node_shape(const fli_event_node *node)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t shape;
    memcpy(&shape, &node->kind, sizeof shape);
    return shape;
#else
    return node->kind | (uint32_t)node->form << 8 | (uint32_t)node->small << 16 | (uint32_t)node->what << 24;
#endif
}

/* Copies the payload of a value message, word by word, as fli_value_put() wrote it. */
static inline void fli_node_get_value(const fli_event_node *node, filch_data *data)
{
    const fli_word *from = (const fli_word *)(const void *)&node->kind;
    fli_word       *to = (fli_word *)(void *)data;
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
}

/* Writes a value payload into a short node. */
static inline void fli_node_put_short(fli_event_node *node, const filch_data *data)
{
    const fli_word *from = (const fli_word *)(const void *)&data->as;
    fli_word       *to = (fli_word *)node->data;
    fli_shape_put(&node->kind, data->kind, FLI_FORM_VALUE, 0, FLI_NODE_GENERAL, 0);
    to[0] = from[0];
    to[1] = from[1];
}

/* Copies the value of a short node. */
static inline void fli_node_get_short(const fli_event_node *node, filch_data *data)
{
    fli_value_put(data, node->kind, node->data[0], node->data[1]);
}

/* Copies the payload of a node that is not short. */
static inline void fli_node_get_data(const fli_event_node *node, filch_data *data)
{
    const fli_word *from = (const fli_word *)node->data;
    fli_word       *to = (fli_word *)(void *)&data->as;
    fli_shape_put(data, node->kind, node->form, node->small, 0, 0);
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
}

/* Writes an inline payload and makes the node a plain message. Requires fli_inline_fits(). */
static inline void fli_node_put_bytes(fli_event_node *node, uint64_t kind, const void *bytes, size_t size)
{
    fli_inline_own(&node->kind, kind, bytes, size); /* fli_inline_own() also sets `what` and `error` to 0 */
}

/* Copies the payload of a plain message. */
static inline void fli_node_get_plain(const fli_event_node *node, filch_data *data)
{
    fli_data_copy(data, (const filch_data *)(const void *)&node->kind);
}

#endif
