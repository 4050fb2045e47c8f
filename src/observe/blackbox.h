/* blackbox.h - the byte format of a recording of one process: the input of its steps, and their effects. Written
 * piecewise while the process lives (record/record.c), read when the steps are replayed one by one (record/replay.c).
 *
 *   recording  "FILCHBOX", format:u32, library:u32, total size:u64, head, birth, step..., END, checksum:u64
 *   head       type name, state size, pid, error at the end, lost, steps missing at the front, steps, options of the
 *              scheduler that a step can observe
 *   birth      method, args, inherited values: the newest first
 *   step       STEP with the number of pending yields, EVENT..., CALL..., RESULT
 * Numbers are little-endian; a text is a u32 length, the bytes and a NUL. The checksum detects every change of a single
 * byte. Reading cannot fail after fli_box_open() has succeeded, because fli_box_open() checks everything.
 */
#ifndef FLI_OBSERVE_BLACKBOX_H
#define FLI_OBSERVE_BLACKBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"

#define FLI_BOX_FORMAT 3

/* ---- contents ---- */

typedef struct fli_box_head {
    const char *type_name;
    uint64_t    state_size;
    filch_pid   pid;
    filch_err   error; /* error code with which the process ended */
    bool        lost;  /* true: memory ran out during recording, so steps before the first recorded step are missing */
    uint64_t    missing; /* number of steps before the first recorded step that are missing */
    uint64_t    steps;
    uint64_t    payload_max; /* `payload_max` and `send_budget`: options of the scheduler that a step can observe */
    uint32_t    send_budget;
} fli_box_head;

/* The digest of a payload that a step produced. A replay only compares digests, so such a payload is not stored. The
 * digest of a pointer covers only its kind and size. Data that contains pointers counts as a pointer. */
typedef struct fli_box_digest {
    uint8_t  kind;
    uint64_t size, hash;
} fli_box_digest;

typedef enum fli_rec_call_kind {
    FLI_REC_SEND = 1,
    FLI_REC_DELIVER,
    FLI_REC_YIELD,
    FLI_REC_SPAWN,
    FLI_REC_CANCEL,
    FLI_REC_TERMINATE,
    FLI_REC_RELATE,
    FLI_REC_WHEREIS
} fli_rec_call_kind;

/* A call of a runtime function by a step, and its result. */
typedef struct fli_rec_call {
    uint8_t kind; /* a fli_rec_call_kind */
    /* FLI_REC_YIELD: the command id; FLI_REC_RELATE: the operation, as a command id (FILCH_CMD_MONITOR, ...) */
    uint32_t command;
    uint64_t tag;
    /* The process that the call names. For FLI_REC_SPAWN it is the new process, for FLI_REC_WHEREIS the process that
     * was found; in these two cases `pid` is part of the result of the call. */
    filch_pid      pid;
    fli_box_digest data;
    /* FLI_REC_SPAWN: the name of the type; otherwise the name or group that the call names, or "" */
    const char *name;
    filch_err   answer; /* error code that the call returned */
    /* FLI_REC_RELATE: the number that the call returned, for example the reference of a monitor */
    uint64_t given;
} fli_rec_call;

/* How a step ended. */
typedef struct fli_rec_result {
    filch_err      error;
    uint8_t        status; /* fli_status, if there was no error */
    uint64_t       calls;  /* number of calls in the step, including calls that were not recorded */
    fli_box_digest value;  /* digest of the result of a process that is done */
    const char    *name;   /* name of the new type after an upgrade; otherwise "" */
} fli_rec_result;

/* ---- writing ---- */

/* A growing buffer. When memory runs out, `failed` is set and later writes are ignored. */
typedef struct fli_box_writer {
    const fli_mem *mem;
    uint8_t       *bytes;
    size_t         size, room;
    bool           failed;
} fli_box_writer;

void fli_box_writer_init(fli_box_writer *w, const fli_mem *mem);
void fli_box_writer_fini(fli_box_writer *w);

/* Appends `size` bytes from `bytes`. If `bytes` is NULL, appends zeros. */
void fli_box_put(fli_box_writer *w, const void *bytes, size_t size);
/* These functions write the birth of the process: first fli_box_put_birth() with the method (NULL: none) and the args,
 * then fli_box_put_value() for each inherited value, then fli_box_put_born() as the end of the values. */
void fli_box_put_birth(fli_box_writer *w, const char *method, const filch_data *args, size_t bytes_max);
void fli_box_put_value(fli_box_writer *w, const char *key, const filch_data *data, size_t bytes_max);
void fli_box_put_born(fli_box_writer *w);
/* These functions write the parts of a step. At most `bytes_max` bytes of a payload are stored. */
void fli_box_put_step(fli_box_writer *w, uint32_t waiting);
void fli_box_put_event(fli_box_writer *w, const filch_event *event, size_t bytes_max);
void fli_box_put_call(fli_box_writer *w, const fli_rec_call *call);
void fli_box_put_result(fli_box_writer *w, const fli_rec_result *result);
/* These functions write the first and the last part of a recording. Between them are a birth and the steps. */
void fli_box_put_head(fli_box_writer *w, const fli_box_head *head);
void fli_box_put_end(fli_box_writer *w);

fli_box_digest fli_box_digest_of(const filch_data *data);

/* ---- reading ---- */

typedef enum fli_box_kind {
    FLI_BOX_VALUE = 1, /* an inherited value, in `name` and `event.data` */
    FLI_BOX_BORN,      /* marks the end of the inherited values */
    FLI_BOX_STEP,      /* a step starts; its number of pending yields is in `waiting` */
    FLI_BOX_EVENT,     /* an event of the step, in `event` */
    FLI_BOX_CALL,      /* a call of the step, in `call` */
    FLI_BOX_RESULT,    /* the end of the step, in `result` */
    FLI_BOX_END
} fli_box_kind;

/* An item of a recording. Texts and bytes point into the recording. A payload that was a pointer has kind PTR and the
 * recorded address. */
typedef struct fli_box_item {
    fli_box_kind   kind;
    uint32_t       waiting;
    const char    *name;
    filch_event    event;
    uint64_t       cut; /* number of payload bytes that were not stored */
    fli_rec_call   call;
    fli_rec_result result;
} fli_box_item;

typedef struct fli_box_reader {
    const uint8_t *at, *end;
    bool           bad; /* true: the recording is not valid */
    fli_box_head   head;
    const char    *method; /* NULL: the default method */
    filch_data     args;
    uint64_t       args_cut;
} fli_box_reader;

/* Checks all of `bytes` and prepares to read them. Returns FILCH_EINVAL with the reason in `text` if they are no
 * valid recording. */
FILCH_MUST_USE filch_err fli_box_open(fli_box_reader *r, const void *bytes, size_t size, char *text, size_t text_size);

/* Reads the next item. Returns its kind, and FLI_BOX_END at every call after the last item. */
fli_box_kind fli_box_next(fli_box_reader *r, fli_box_item *item);

#endif
