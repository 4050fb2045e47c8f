/* chart.h - keeps the last events of a simulated run, and draws them: one line per event, one column per process. */
#ifndef FLI_OBSERVE_CHART_H
#define FLI_OBSERVE_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"

#define FLI_CHART_OUTSIDE 0u
#define FLI_CHART_UNKNOWN UINT32_MAX

typedef enum fli_chart_kind {
    FLI_CHART_SPAWN,      /* `from` spawns `to` */
    FLI_CHART_SEND,       /* `from` sends `data` to `to`, or the send fails with `error` */
    FLI_CHART_GET,        /* `to` gets a message from `from` */
    FLI_CHART_RESULT,     /* `to` gets the completion of its yield `tag` */
    FLI_CHART_CANCEL,     /* `to` gets a cancel */
    FLI_CHART_DROPS,      /* `to` gets the number of its dropped messages */
    FLI_CHART_NOTICE,     /* `to` gets a notice about `from`; `command` is the type of the notice */
    FLI_CHART_YIELD,      /* `from` yields `command` with `tag` */
    FLI_CHART_COMPLETION, /* the yield `tag` of `to` is completed */
    FLI_CHART_EXIT,       /* `from` ends with the result `data`, or with `error` */
    FLI_CHART_NOTE,       /* `from` calls filch_sim_note with `text` */
    FLI_CHART_FAULT,      /* the simulation injected a fault: `text` */
    FLI_CHART_FAIL        /* a property was violated: `text` */
} fli_chart_kind;

/* An event. Processes are numbered from 1 in the order of their spawns. */
typedef struct fli_chart_event {
    fli_chart_kind    kind;
    uint32_t          from, to;
    uint32_t          command;
    filch_err         error;
    uint64_t          tag;
    uint64_t          time_ns;
    const filch_data *data; /* may be NULL; belongs to the caller */
    const char       *text; /* may be NULL; belongs to the caller */
} fli_chart_event;

#define FLI_CHART_SHOWN 64 /* number of bytes of a text that are kept */
#define FLI_CHART_WORDS 96 /* number of bytes of a text from filch_describe_fn that are kept */

/* An event of the chart, as stored in the ring buffer fli_chart.lines. */
typedef struct fli_chart_line {
    uint64_t time_ns, tag;
    uint32_t from, to, command;
    int32_t  error;
    uint8_t  kind;                  /* a fli_chart_kind */
    uint8_t  data_kind;             /* a filch_kind */
    bool     cut;                   /* true: the text or payload was longer than `text` */
    uint64_t number;                /* value of an int, num or pid as 64 bits; for a payload of bytes: their number */
    char     text[FLI_CHART_SHOWN]; /* for a payload of bytes: the first bytes, unchanged */
} fli_chart_line;

typedef struct fli_chart {
    fli_mem           mem;
    fli_chart_line   *lines; /* a ring buffer */
    uint32_t          room;
    uint64_t          count; /* number of events added so far, including those that have left the ring */
    uint64_t          hash;  /* hash of all events */
    const char      **names; /* names of the processes' types, indexed by process number; not owned by the chart */
    uint32_t          name_room;
    filch_describe_fn describe; /* describes a binary payload as text; may be NULL */
    void             *describe_user;
} fli_chart;

filch_err fli_chart_init(fli_chart *chart, const fli_mem *mem, uint32_t room);
void      fli_chart_fini(fli_chart *chart);

/* Sets the name of process `number`. If there is no memory, the name stays "?". */
void fli_chart_name(fli_chart *chart, uint32_t number, const char *name);
/* Writes "name#2", or "outside" for threads outside the runtime. The buffer must have FLI_CHART_LABEL_MAX bytes. The
 * middle of a long name is left out. */
#define FLI_CHART_NAME_MAX 16
#define FLI_CHART_LABEL_MAX (FLI_CHART_NAME_MAX + 12)
void fli_chart_label(const fli_chart *chart, uint32_t number, char *out, size_t size);

void fli_chart_add(fli_chart *chart, const fli_chart_event *event);
/* Mixes a number into the hash of the chart. */
void fli_chart_stir(fli_chart *chart, uint64_t number);

/* Returns the drawing as a text, allocated from the memory of the chart; *size is the size of the
 * allocated block, which may be larger than the text. Returns NULL if there is no memory. */
char *fli_chart_draw(const fli_chart *chart, size_t *size);

#endif
