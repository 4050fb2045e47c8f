/* tasks_model.h - a model of what tasks and channels of a Lua process must do, for lua_tasks_fuzz_test.c.
 *
 * The operations of a *batch* begin at one time, each in a task of its own. The model does not know how they are
 * interrupted: it tries each order of the operations, with its outcomes. The outcomes of the program must be among
 * these. As the order may stay unknown, the model holds a set of states.
 */
#ifndef FILCH_TEST_LUA_TASKS_MODEL_H
#define FILCH_TEST_LUA_TASKS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_SLOTS = 8, MODEL_CHANNELS = 4, MODEL_CASES = 3, MODEL_BATCH = 3, MODEL_TEXT = 64, MODEL_QUEUE = 16 };

typedef enum model_kind {
    MODEL_SEND, MODEL_RECEIVE, MODEL_ITERATE, MODEL_SELECT, MODEL_SLEEP, MODEL_AWAIT, MODEL_CLOSE, MODEL_CANCEL, MODEL_POST, MODEL_KINDS,
} model_kind;

typedef struct model_case {
    int channel; /* -1: the inbox */
    int value;   /* 0: receives */
} model_case;

typedef struct model_op {
    model_kind kind;
    int        slot;       /* the task that does it */
    int        target;     /* of await and cancel: a slot */
    int        timeout_ms; /* 0: none; of sleep: how long */
    int        case_count;
    model_case cases[MODEL_CASES]; /* of send, receive, iterate and close: the first */
} model_op;

/* What the program shows after a batch. */
typedef struct model_view {
    char outcome[MODEL_SLOTS][MODEL_TEXT]; /* "": it still waits, or there is none */
    int  length[MODEL_CHANNELS], senders[MODEL_CHANNELS], receivers[MODEL_CHANNELS];
} model_view;

typedef struct model model;

model *model_create(uint64_t seed, const int capacity[MODEL_CHANNELS]);
void   model_destroy(model *m);
/* Draws a batch of operations that are possible now. Returns their number. */
int model_draw(model *m, model_op batch[MODEL_BATCH]);
/* The batch began, and `ms` passed. Returns false if the view is impossible: then `why` says what was expected. */
bool model_check(model *m, const model_op *batch, int count, int ms, const model_view *view, char *why, int why_size);

#endif
