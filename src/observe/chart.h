/* chart.h - the last events of a simulated run, and how they are drawn: one line each, one column per process. */
#ifndef FLI_OBSERVE_CHART_H
#define FLI_OBSERVE_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"

#define FLI_CHART_OUTSIDE 0u
#define FLI_CHART_UNKNOWN UINT32_MAX

typedef enum fli_chart_kind {
    FLI_CHART_SPAWN,  /* `from` spawns `to` */
    FLI_CHART_SEND,   /* `from` sends `data` to `to`, or `error` */
    FLI_CHART_GET,    /* `to` is stepped with a message from `from` */
    FLI_CHART_RESULT, /* `to` is stepped with the answer to its yield `tag` */
    FLI_CHART_CANCEL, /* `to` is stepped with a cancel */
    FLI_CHART_DROPS,  /* `to` is told of dropped messages */
    FLI_CHART_NOTICE, /* `to` is stepped with a notice about `from`: `command` is the event's type */
    FLI_CHART_YIELD,  /* `from` yields `command` with `tag` */
    FLI_CHART_ANSWER, /* somebody completes the yield `tag` of `to` */
    FLI_CHART_EXIT,   /* `from` ends, with `data` or `error` */
    FLI_CHART_NOTE,   /* `from` says `text` */
    FLI_CHART_FAULT,  /* the simulation did something nasty: `text` */
    FLI_CHART_FAIL    /* the violation: `text` */
} fli_chart_kind;

/* What happened. Processes are numbered from 1 in the order they were spawned. */
typedef struct fli_chart_event {
    fli_chart_kind    kind;
    uint32_t          from, to;
    uint32_t          command;
    filch_err         error;
    uint64_t          tag;
    uint64_t          time_ns;
    const filch_data *data; /* lent; NULL none */
    const char       *text; /* lent; NULL none */
} fli_chart_event;

#define FLI_CHART_SHOWN 64 /* bytes of a text that are kept */
#define FLI_CHART_WORDS 96 /* and of what describes them */

/* The same, kept. */
typedef struct fli_chart_line {
    uint64_t time_ns, tag;
    uint32_t from, to, command;
    int32_t  error;
    uint8_t  kind;      /* fli_chart_kind */
    uint8_t  data_kind; /* filch_kind */
    bool     cut;       /* there was more text */
    uint64_t number;    /* of an int, num or pid its bits; of bytes how many */
    char     text[FLI_CHART_SHOWN]; /* of bytes the first ones, as they are */
} fli_chart_line;

typedef struct fli_chart {
    fli_mem         mem;
    fli_chart_line *lines; /* a ring */
    uint32_t        room;
    uint64_t        count; /* ever */
    uint64_t        hash;  /* of all events */
    const char    **names; /* of the types, by number; lent */
    uint32_t        name_room;
    filch_describe_fn describe; /* words for bytes; NULL: there are none */
    void           *describe_user;
} fli_chart;

filch_err fli_chart_init(fli_chart *chart, const fli_mem *mem, uint32_t room);
void      fli_chart_fini(fli_chart *chart);

/* Says what process `number` is called. Without memory it stays "?". */
void fli_chart_name(fli_chart *chart, uint32_t number, const char *name);
/* "teller#2"; "outside". Needs FLI_CHART_WHO_MAX bytes for the longest; of a long name the middle is left out. */
#define FLI_CHART_NAME_MAX 16
#define FLI_CHART_WHO_MAX (FLI_CHART_NAME_MAX + 12)
void fli_chart_who(const fli_chart *chart, uint32_t number, char *out, size_t size);

void fli_chart_add(fli_chart *chart, const fli_chart_event *event);
/* Stirs a number into the hash. */
void fli_chart_stir(fli_chart *chart, uint64_t number);

/* Draws it. Gives a text of *size bytes, NUL included, from the chart's memory; NULL: there was none. */
char *fli_chart_draw(const fli_chart *chart, size_t *size);

#endif
