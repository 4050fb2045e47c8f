/* chart.c - see chart.h. Events are kept as small records in a ring and become text only when somebody wants to see
 * them, so a sweep over many seeds pays for one record per event and no formatting.
 *
 * The hash covers all events, not only those that are still in the ring. It leaves out addresses and the bytes of
 * binary payloads, which may hold some: those differ from run to run.
 */
#include "observe/chart.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/prng.h"

#define SHOWN 64 /* bytes of a text that are kept */
#define COLUMNS_MAX 10
#define WHO_MAX 24
#define COLUMN_MIN 9

struct fli_chart_line {
    uint64_t time_ns, tag;
    uint32_t from, to, command;
    int32_t  error;
    uint8_t  kind;      /* fli_chart_kind */
    uint8_t  data_kind; /* filch_kind */
    bool     cut;       /* there was more text */
    uint64_t number;    /* of an int, num or pid its bits; of bytes how many */
    char     text[SHOWN];
};

filch_err fli_chart_init(fli_chart *chart, const fli_mem *mem, uint32_t room)
{
    *chart = (fli_chart){ .mem = *mem, .room = room };
    chart->lines = fli_alloc(mem, room * sizeof *chart->lines);
    return chart->lines != NULL ? FILCH_OK : FILCH_ENOMEM;
}

void fli_chart_fini(fli_chart *chart)
{
    fli_free(&chart->mem, chart->lines, chart->room * sizeof *chart->lines);
    fli_free(&chart->mem, chart->names, chart->name_room * sizeof *chart->names);
}

void fli_chart_name(fli_chart *chart, uint32_t number, const char *name)
{
    if (number >= chart->name_room) {
        uint32_t     room = number < 32 ? 64 : number * 2;
        const char **names = fli_resize(&chart->mem, chart->names, chart->name_room * sizeof *names,
                                        room * sizeof *names);
        if (names == NULL) return;
        memset(names + chart->name_room, 0, (room - chart->name_room) * sizeof *names);
        chart->names = names;
        chart->name_room = room;
    }
    chart->names[number] = name;
}

void fli_chart_who(const fli_chart *chart, uint32_t number, char *out, size_t size)
{
    const char *name = number < chart->name_room && chart->names[number] != NULL ? chart->names[number] : "?";
    if (number == FLI_CHART_OUTSIDE) snprintf(out, size, "outside");
    else if (number == FLI_CHART_UNKNOWN) snprintf(out, size, "somebody gone");
    else snprintf(out, size, "%.12s#%u", name, number);
}

/* ---- writing down ---- */

void fli_chart_stir(fli_chart *chart, uint64_t number)
{
    chart->hash = fli_prng_mix(chart->hash ^ number);
}

static void stir_text(fli_chart *chart, const char *text, size_t size)
{
    fli_chart_stir(chart, size);
    for (size_t i = 0; i < size; i++) fli_chart_stir(chart, (unsigned char)text[i]);
}

static void keep_text(fli_chart_line *line, const char *text, size_t size)
{
    size_t shown = size < SHOWN - 1 ? size : SHOWN - 1;
    for (size_t i = 0; i < shown; i++) line->text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '.';
    line->text[shown] = '\0';
    line->cut = shown < size;
}

static void keep_data(fli_chart *chart, fli_chart_line *line, const filch_data *data)
{
    line->data_kind = (uint8_t)filch_kind_of(data);
    switch (line->data_kind) {
    case FILCH_KIND_INT: line->number = (uint64_t)filch_as_int(data); break;
    case FILCH_KIND_NUM: {
        double number = filch_as_num(data);
        memcpy(&line->number, &number, sizeof line->number);
        break;
    }
    case FILCH_KIND_PID: line->number = filch_as_pid(data).serial; break;
    case FILCH_KIND_TEXT:
        keep_text(line, filch_raw(data), filch_size(data));
        stir_text(chart, filch_raw(data), filch_size(data));
        break;
    case FILCH_KIND_BYTES: line->number = filch_size(data); break;
    default: break;
    }
    fli_chart_stir(chart, ((uint64_t)line->data_kind << 56) ^ line->number);
}

void fli_chart_add(fli_chart *chart, const fli_chart_event *event)
{
    fli_chart_line *line = &chart->lines[chart->count++ % chart->room];
    line->kind = (uint8_t)event->kind;
    line->data_kind = FILCH_KIND_NONE;
    line->from = event->from;
    line->to = event->to;
    line->command = event->command;
    line->error = event->error;
    line->tag = event->tag;
    line->time_ns = event->time_ns;
    line->number = 0;
    line->cut = false;
    line->text[0] = '\0';
    fli_chart_stir(chart, event->time_ns);
    fli_chart_stir(chart, ((uint64_t)event->from << 32) ^ event->to);
    fli_chart_stir(chart, ((uint64_t)event->kind << 56) ^ ((uint64_t)event->command << 24) ^ (uint64_t)event->error);
    fli_chart_stir(chart, event->tag);
    if (event->data != NULL) keep_data(chart, line, event->data);
    if (event->text != NULL) {
        keep_text(line, event->text, strlen(event->text));
        stir_text(chart, event->text, strlen(event->text));
    }
}

/* ---- drawing ---- */

/* A text that grows. */
typedef struct sheet {
    fli_mem mem;
    char   *text;
    size_t  size, room; /* size without the NUL */
    bool    failed;
} sheet;

__attribute__((format(printf, 2, 3))) static void put(sheet *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char piece[512];
    int  written = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    size_t n = written < 0 ? 0 : (size_t)written < sizeof piece ? (size_t)written : sizeof piece - 1;
    if (page->size + n + 1 > page->room) {
        size_t room = page->room == 0 ? 4096 : page->room * 2;
        char  *text = page->failed ? NULL : fli_resize(&page->mem, page->text, page->room, room);
        page->failed = text == NULL;
        if (text == NULL) return;
        page->text = text;
        page->room = room;
    }
    memcpy(page->text + page->size, piece, n + 1);
    page->size += n;
}

/* The processes that have a column: those that the last lines speak of, by number. */
typedef struct columns {
    uint32_t number[COLUMNS_MAX];
    bool     there[COLUMNS_MAX]; /* has been spawned and has not ended, as far as the drawing has come */
    uint32_t count, width;
} columns;

static int column_of(const columns *cols, uint32_t number)
{
    for (uint32_t i = 0; i < cols->count; i++) {
        if (cols->number[i] == number) return (int)i;
    }
    return -1;
}

static void add_column(columns *cols, uint32_t number)
{
    if (number == FLI_CHART_UNKNOWN || cols->count == COLUMNS_MAX || column_of(cols, number) >= 0) return;
    uint32_t at = cols->count++;
    for (; at > 0 && cols->number[at - 1] > number; at--) cols->number[at] = cols->number[at - 1];
    cols->number[at] = number;
}

static bool has_sender(const fli_chart_line *line)
{
    return line->kind != FLI_CHART_RESULT && line->kind != FLI_CHART_CANCEL && line->kind != FLI_CHART_DROPS &&
           line->kind != FLI_CHART_ANSWER && line->kind != FLI_CHART_FAULT && line->kind != FLI_CHART_FAIL;
}

static bool has_receiver(const fli_chart_line *line)
{
    return line->kind <= FLI_CHART_DROPS || line->kind == FLI_CHART_ANSWER;
}

static const fli_chart_line *line_at(const fli_chart *chart, uint64_t index)
{
    return &chart->lines[index % chart->room];
}

static uint64_t first_index(const fli_chart *chart)
{
    return chart->count > chart->room ? chart->count - chart->room : 0;
}

static void choose_columns(const fli_chart *chart, columns *cols)
{
    char who[WHO_MAX];
    cols->count = 0;
    cols->width = COLUMN_MIN;
    for (uint64_t i = chart->count; i-- > first_index(chart);) {
        const fli_chart_line *line = line_at(chart, i);
        if (has_sender(line)) add_column(cols, line->from);
        if (has_receiver(line)) add_column(cols, line->to);
    }
    for (uint32_t i = 0; i < cols->count; i++) {
        fli_chart_who(chart, cols->number[i], who, sizeof who);
        if (strlen(who) + 2 > cols->width) cols->width = (uint32_t)strlen(who) + 2;
        cols->there[i] = true;
    }
    /* Whoever is spawned below is not there yet. */
    for (uint64_t i = first_index(chart); i < chart->count; i++) {
        const fli_chart_line *line = line_at(chart, i);
        int                   to = line->kind == FLI_CHART_SPAWN ? column_of(cols, line->to) : -1;
        if (to >= 0) cols->there[to] = false;
    }
}

static size_t middle(const columns *cols, int column)
{
    return (size_t)column * cols->width + cols->width / 2;
}

static char mark_of(const fli_chart_line *line)
{
    switch (line->kind) {
    case FLI_CHART_GET:
    case FLI_CHART_RESULT:
    case FLI_CHART_CANCEL:
    case FLI_CHART_DROPS: return '*';
    case FLI_CHART_YIELD: return '?';
    case FLI_CHART_ANSWER: return '=';
    case FLI_CHART_EXIT: return 'x';
    default: return 'o';
    }
}

/* From the middle of one column to that of another: o------> */
static void arrow(const columns *cols, char *row, int from, int to, char end)
{
    size_t a = middle(cols, from), b = middle(cols, to);
    if (a < b) {
        memset(row + a + 1, '-', b - a - 1);
        row[b - 1] = '>';
    } else {
        memset(row + b + 1, '-', a - b - 1);
        row[b + 1] = '<';
    }
    row[a] = 'o';
    row[b] = end;
}

static void draw_row(columns *cols, const fli_chart_line *line, char *row)
{
    int from = has_sender(line) ? column_of(cols, line->from) : -1;
    int to = has_receiver(line) ? column_of(cols, line->to) : -1;
    memset(row, ' ', cols->count * cols->width);
    row[cols->count * cols->width] = '\0';
    for (uint32_t i = 0; i < cols->count; i++) {
        if (cols->there[i]) row[middle(cols, (int)i)] = '|';
    }
    if (line->kind == FLI_CHART_SPAWN && to >= 0) cols->there[to] = true;
    bool travels = line->kind == FLI_CHART_SEND || line->kind == FLI_CHART_SPAWN;
    if (travels && from >= 0 && to >= 0 && from != to) {
        arrow(cols, row, from, to, line->kind == FLI_CHART_SPAWN ? '+' : line->error != FILCH_OK ? '/' : '|');
        return;
    }
    int at = travels ? from : to >= 0 ? to : from;
    if (at >= 0) row[middle(cols, at)] = mark_of(line);
    if (line->kind == FLI_CHART_EXIT && from >= 0) cols->there[from] = false;
}

static void put_data(sheet *page, const fli_chart_line *line)
{
    double number;
    switch (line->data_kind) {
    case FILCH_KIND_INT: put(page, "%lld", (long long)line->number); break;
    case FILCH_KIND_NUM:
        memcpy(&number, &line->number, sizeof number);
        put(page, "%g", number);
        break;
    case FILCH_KIND_PID: put(page, "a pid"); break;
    case FILCH_KIND_PTR: put(page, "a pointer"); break;
    case FILCH_KIND_TEXT: put(page, "\"%s%s\"", line->text, line->cut ? "..." : ""); break;
    case FILCH_KIND_BYTES: put(page, "%llu bytes", (unsigned long long)line->number); break;
    default: put(page, "an empty message"); break;
    }
}

static void put_command(sheet *page, uint32_t command)
{
    switch (command) {
    case FILCH_CMD_SEND: put(page, "a send"); break;
    case FILCH_CMD_SLEEP: put(page, "a sleep"); break;
    case FILCH_CMD_TIMER: put(page, "a timer"); break;
    case FILCH_CMD_TICKER: put(page, "a ticker"); break;
    case FILCH_CMD_TIMER_CANCEL: put(page, "a timer's end"); break;
    case FILCH_CMD_WORK: put(page, "work"); break;
    default: put(page, "command %u", command); break;
    }
}

static void put_error(sheet *page, filch_err error)
{
    if (error >= FILCH_EUSER) put(page, "error %d", error);
    else put(page, "%s", filch_err_name(error));
}

static void put_outcome(sheet *page, const fli_chart_line *line)
{
    if (line->error != FILCH_OK) put_error(page, line->error);
    else if (line->data_kind == FILCH_KIND_NONE) put(page, "ok");
    else put_data(page, line);
}

/* The same in words. */
static void put_sentence(const fli_chart *chart, sheet *page, const fli_chart_line *line)
{
    char               from[WHO_MAX], to[WHO_MAX];
    unsigned long long tag = line->tag;
    fli_chart_who(chart, line->from, from, sizeof from);
    fli_chart_who(chart, line->to, to, sizeof to);
    switch (line->kind) {
    case FLI_CHART_SPAWN: put(page, "%s spawns %s", from, to); break;
    case FLI_CHART_SEND:
        put(page, "%s sends ", from);
        put_data(page, line);
        put(page, " to %s", to);
        if (line->error != FILCH_OK) put(page, ": ");
        if (line->error != FILCH_OK) put_error(page, line->error);
        break;
    case FLI_CHART_GET:
        put(page, "%s gets ", to);
        put_data(page, line);
        if (line->from == FLI_CHART_OUTSIDE && tag != 0) put(page, " from its timer %llu", tag);
        else put(page, " from %s", from);
        break;
    case FLI_CHART_RESULT:
        put(page, "%s gets the answer %llu: ", to, tag);
        put_outcome(page, line);
        break;
    case FLI_CHART_CANCEL: put(page, "%s is asked to end", to); break;
    case FLI_CHART_DROPS:
        put(page, "%s hears of dropped messages: ", to);
        put_data(page, line);
        break;
    case FLI_CHART_YIELD:
        put(page, "%s yields ", from);
        put_command(page, line->command);
        put(page, ", %llu", tag);
        break;
    case FLI_CHART_ANSWER:
        put(page, "answer %llu for %s: ", tag, to);
        put_outcome(page, line);
        break;
    case FLI_CHART_EXIT:
        put(page, "%s ends: ", from);
        put_outcome(page, line);
        break;
    case FLI_CHART_NOTE: put(page, "%s: %s%s", from, line->text, line->cut ? "..." : ""); break;
    case FLI_CHART_FAULT: put(page, "fault: %s", line->text); break;
    default: put(page, "VIOLATION: %s%s", line->text, line->cut ? "..." : ""); break;
    }
}

static void put_head(const fli_chart *chart, sheet *page, const columns *cols)
{
    put(page, "o-> sends or spawns   * is stepped with   ? yields   = is answered   x ends\n\n");
    if (first_index(chart) > 0) put(page, "%llu earlier events\n", (unsigned long long)first_index(chart));
    put(page, "%13s  ", "microseconds");
    for (uint32_t i = 0; i < cols->count; i++) {
        char who[WHO_MAX];
        fli_chart_who(chart, cols->number[i], who, sizeof who);
        int before = ((int)cols->width - (int)strlen(who) + 1) / 2;
        put(page, "%*s%-*s", before, "", (int)cols->width - before, who);
    }
    put(page, "\n");
}

char *fli_chart_draw(const fli_chart *chart, size_t *size)
{
    sheet   page = { .mem = chart->mem };
    columns cols;
    char    row[COLUMNS_MAX * (WHO_MAX + 2) + 1];
    choose_columns(chart, &cols);
    put_head(chart, &page, &cols);
    for (uint64_t i = first_index(chart); i < chart->count; i++) {
        const fli_chart_line *line = line_at(chart, i);
        draw_row(&cols, line, row);
        put(&page, "%9llu.%03u  ", (unsigned long long)(line->time_ns / 1000), (unsigned)(line->time_ns % 1000));
        put(&page, "%s  ", row);
        put_sentence(chart, &page, line);
        put(&page, "\n");
    }
    if (page.failed) {
        fli_free(&page.mem, page.text, page.room);
        return NULL;
    }
    *size = page.room;
    return page.text;
}
