/* blackbox.h - a recording of one process as bytes: what its steps were given, and what they did. Written a piece at a
 * time while the process lives (sched/record.c), read when one step after the other is played again (sched/replay.c).
 *
 *   recording  "FILCHBOX", format:u32, library:u32, size of all:u64, head, birth, step..., END, checksum:u64
 *   head       type name, state size, pid, error at the end, lost, steps missing at the front, steps, settings that
 *              steps notice
 *   birth      method, args, inherited values: the newest first
 *   step       STEP with the yields that are out, EVENT..., ACT..., OUTCOME
 * Numbers are little-endian, texts are a u32 length, the bytes and a NUL. The checksum notices every change of a single
 * byte for certain. A reader that has been opened cannot fail any more: opening walks through everything once.
 */
#ifndef FLI_OBSERVE_BLACKBOX_H
#define FLI_OBSERVE_BLACKBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"

#define FLI_BOX_FORMAT 3

/* ---- what is in it ---- */

typedef struct fli_box_head {
    const char *type_name;
    uint64_t    state_size;
    filch_pid   pid;
    filch_err   error;   /* how the process ended */
    bool        lost;    /* there was no memory: what came before the first step is gone for that reason */
    uint64_t    missing; /* steps before the first one in here */
    uint64_t    steps;
    uint64_t    payload_max; /* options of the scheduler that a step can notice */
    uint32_t    send_budget;
} fli_box_head;

/* A payload that only has to be recognised. Of pointers, and of what holds pointers, just the kind and size. */
typedef struct fli_box_digest {
    uint8_t  kind;
    uint64_t size, hash;
} fli_box_digest;

typedef enum fli_box_act_kind {
    FLI_ACT_SEND = 1,
    FLI_ACT_DELIVER,
    FLI_ACT_YIELD,
    FLI_ACT_SPAWN,
    FLI_ACT_CANCEL,
    FLI_ACT_TERMINATE,
    FLI_ACT_RELATE,
    FLI_ACT_WHEREIS
} fli_box_act_kind;

/* One thing that a step did to others, or asked, and what it was told. */
typedef struct fli_box_act {
    uint8_t        kind;    /* fli_box_act_kind */
    uint32_t       command; /* of a yield, with its tag; of a relation, what was asked */
    uint64_t       tag;
    filch_pid      pid; /* whom it was about; of a spawn the child, of whereis who was found: part of the answer */
    fli_box_digest data;
    const char    *name;   /* of the type that was spawned, or the name or group it was about; otherwise "" */
    filch_err      answer; /* what the call returned */
    uint64_t       given;  /* of a relation: the number that came with the answer */
} fli_box_act;

/* How a step ended. */
typedef struct fli_box_outcome {
    filch_err      error;
    uint8_t        status; /* fli_status, if there was no error */
    uint64_t       acts;   /* all of them, also those that are not in here */
    fli_box_digest result; /* of done */
    const char    *name;   /* of the type it goes on as; otherwise "" */
} fli_box_outcome;

/* ---- writing ---- */

/* Bytes that grow. When memory runs out it says `failed`, and what is put after that goes nowhere. */
typedef struct fli_box_writer {
    const fli_mem *mem;
    uint8_t       *bytes;
    size_t         size, room;
    bool           failed;
} fli_box_writer;

void fli_box_writer_init(fli_box_writer *w, const fli_mem *mem);
void fli_box_writer_fini(fli_box_writer *w);

/* Appends `size` bytes as they are; NULL: zeros. */
void fli_box_put(fli_box_writer *w, const void *bytes, size_t size);
/* The parts of a birth: method (NULL none) and args, then each value, then the end of them. */
void fli_box_put_birth(fli_box_writer *w, const char *method, const filch_data *args, size_t bytes_max);
void fli_box_put_value(fli_box_writer *w, const char *key, const filch_data *data, size_t bytes_max);
void fli_box_put_born(fli_box_writer *w);
/* The parts of a step. Of a payload only the first `bytes_max` bytes are kept. */
void fli_box_put_step(fli_box_writer *w, uint32_t waiting);
void fli_box_put_event(fli_box_writer *w, const filch_event *event, size_t bytes_max);
void fli_box_put_act(fli_box_writer *w, const fli_box_act *act);
void fli_box_put_outcome(fli_box_writer *w, const fli_box_outcome *outcome);
/* What comes first in a recording, and last. Between them: a birth, and the steps. */
void fli_box_put_head(fli_box_writer *w, const fli_box_head *head);
void fli_box_put_end(fli_box_writer *w);

fli_box_digest fli_box_digest_of(const filch_data *data);

/* ---- reading ---- */

typedef enum fli_box_kind {
    FLI_BOX_VALUE = 1, /* an inherited value: `name`, `event.data` */
    FLI_BOX_BORN,      /* no more values */
    FLI_BOX_STEP,      /* `waiting` */
    FLI_BOX_EVENT,     /* `event` */
    FLI_BOX_ACT,       /* `act` */
    FLI_BOX_OUTCOME,   /* `outcome`: the step is complete */
    FLI_BOX_END
} fli_box_kind;

/* What the next piece is. Texts and bytes are lent by the recording. A pointer's payload is of kind PTR, and holds the
 * address it once had. */
typedef struct fli_box_item {
    fli_box_kind    kind;
    uint32_t        waiting;
    const char     *name;
    filch_event     event;
    uint64_t        cut; /* bytes that the payload had more */
    fli_box_act     act;
    fli_box_outcome outcome;
} fli_box_item;

typedef struct fli_box_reader {
    const uint8_t *at, *end;
    bool           bad; /* the bytes made no sense */
    fli_box_head   head;
    const char    *method; /* NULL: the default */
    filch_data     args;
    uint64_t       args_cut;
} fli_box_reader;

/* Checks `bytes` from the first to the last and makes ready to read them. FILCH_EINVAL, and in `text` why. */
FILCH_MUST_USE filch_err fli_box_open(fli_box_reader *r, const void *bytes, size_t size, char *text, size_t text_size);

/* The next piece; after the last one FLI_BOX_END for ever. */
fli_box_kind fli_box_next(fli_box_reader *r, fli_box_item *item);

#endif
