/* tasks_model.h - a model of what tasks and channels of a Lua process must do, for lua_tasks_fuzz_test.c.
 *
 * The operations of a *batch* begin at the same time, each in a task of its own. The model does not know where the
 * tasks are interrupted, so it computes the outcomes for each order of the operations. The outcomes of the program must
 * be among these outcomes. Because several orders may have the same outcomes, the model holds a set of states.
 */
#ifndef FILCH_TEST_LUA_TASKS_MODEL_H
#define FILCH_TEST_LUA_TASKS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_SLOTS = 8, MODEL_CHANNELS = 4, MODEL_CASES = 3, MODEL_BATCH = 3, MODEL_TEXT = 64, MODEL_QUEUE = 16 };

typedef enum model_kind {
    MODEL_SEND,
    MODEL_RECEIVE,
    MODEL_ITERATE,
    MODEL_SELECT,
    MODEL_SLEEP,
    MODEL_AWAIT,
    MODEL_CLOSE,
    MODEL_CANCEL,
    MODEL_POST,
    MODEL_KINDS,
} model_kind;

typedef struct model_case {
    int channel; /* number of a channel; -1: the mailbox of the process */
    int value;   /* value to send; 0: the case receives a value */
} model_case;

typedef struct model_op {
    model_kind kind;
    int        slot;       /* slot of the task that executes the operation */
    int        target;     /* for await and cancel: slot of the other task */
    int        timeout_ms; /* time limit of the operation, 0: none; for sleep: its duration */
    int        case_count;
    model_case cases[MODEL_CASES]; /* send, receive, iterate and close use the first case only */
} model_op;

/* The state that the program shows after a batch. */
typedef struct model_view {
    /* outcome of the task in each slot; "": the task still waits, or there is none */
    char outcome[MODEL_SLOTS][MODEL_TEXT];
    int  length[MODEL_CHANNELS], senders[MODEL_CHANNELS], receivers[MODEL_CHANNELS];
} model_view;

typedef struct model model;

model *model_create(uint64_t seed, const int capacity[MODEL_CHANNELS]);
void   model_destroy(model *m);
/* Draws a batch of random operations that are possible in the present state of the model. Returns their number. */
int model_draw(model *m, model_op batch[MODEL_BATCH]);
/* Checks the view that was taken `ms` milliseconds after the batch began. Returns false if the model does not allow
 * this view; `why` then says what was expected. */
bool model_check(model *m, const model_op *batch, int count, int ms, const model_view *view, char *why, int why_size);

#endif
