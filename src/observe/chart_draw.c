/* chart_draw.c - draws the events of a simulated run as text. Each event is one line: an arrow or a mark in the columns
 * of its processes, and a sentence. See chart.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "observe/chart.h"

#define COLUMNS_MAX 10
#define COLUMN_MIN 9

/* A growing text buffer. */
typedef struct sheet {
    fli_mem mem;
    char   *text;
    size_t  size, room; /* `size` is the length of the text without the NUL; `room` is the size of the buffer */
    bool    failed;
} sheet;

__attribute__((format(printf, 2, 3))) static void add_text(sheet *page, const char *format, ...)
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

/* The processes that have a column in the drawing: at most COLUMNS_MAX that the newest events name, ordered by their
 * number. */
typedef struct columns {
    uint32_t number[COLUMNS_MAX];
    bool     there[COLUMNS_MAX]; /* true if the process is alive at the current line of the drawing */
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
           line->kind != FLI_CHART_COMPLETION && line->kind != FLI_CHART_FAULT && line->kind != FLI_CHART_FAIL;
}

static bool has_receiver(const fli_chart_line *line)
{
    return line->kind <= FLI_CHART_NOTICE || line->kind == FLI_CHART_COMPLETION;
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
    char label[FLI_CHART_LABEL_MAX];
    cols->count = 0;
    cols->width = COLUMN_MIN;
    for (uint64_t i = chart->count; i-- > first_index(chart);) {
        const fli_chart_line *line = line_at(chart, i);
        if (has_sender(line)) add_column(cols, line->from);
        if (has_receiver(line)) add_column(cols, line->to);
    }
    for (uint32_t i = 0; i < cols->count; i++) {
        fli_chart_label(chart, cols->number[i], label, sizeof label);
        if (strlen(label) + 2 > cols->width) cols->width = (uint32_t)strlen(label) + 2;
        cols->there[i] = true;
    }
    /* A process that is spawned by a later line is not alive yet. */
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
    case FLI_CHART_NOTICE:
    case FLI_CHART_DROPS: return '*';
    case FLI_CHART_YIELD: return '?';
    case FLI_CHART_COMPLETION: return '=';
    case FLI_CHART_EXIT: return 'x';
    default: return 'o';
    }
}

/* Draws an arrow from the middle of one column to the middle of another: o------> */
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

/* Writes a payload of bytes: the text that chart->describe gives for it, or else its number of bytes. */
static void put_bytes(sheet *page, const fli_chart *chart, const fli_chart_line *line)
{
    char   text[FLI_CHART_WORDS];
    size_t shown = line->number < FLI_CHART_SHOWN ? line->number : FLI_CHART_SHOWN, size = 0;
    if (chart->describe != NULL)
        size = chart->describe(chart->describe_user, line->text, shown, line->number, text, sizeof text);
    if (size > 0) add_text(page, "%.*s", (int)(size < sizeof text ? size : sizeof text), text);
    else add_text(page, "%llu bytes", (unsigned long long)line->number);
}

static void put_data(sheet *page, const fli_chart *chart, const fli_chart_line *line)
{
    double number;
    switch (line->data_kind) {
    case FILCH_KIND_INT: add_text(page, "%lld", (long long)line->number); break;
    case FILCH_KIND_NUM:
        memcpy(&number, &line->number, sizeof number);
        add_text(page, "%g", number);
        break;
    case FILCH_KIND_PID: add_text(page, "a pid"); break;
    case FILCH_KIND_PTR: add_text(page, "a pointer"); break;
    case FILCH_KIND_TEXT: add_text(page, "\"%s%s\"", line->text, line->cut ? "..." : ""); break;
    case FILCH_KIND_BYTES: put_bytes(page, chart, line); break;
    default: add_text(page, "an empty message"); break;
    }
}

static void put_command(sheet *page, uint32_t command)
{
    switch (command) {
    case FILCH_CMD_SEND: add_text(page, "a send"); break;
    case FILCH_CMD_SLEEP: add_text(page, "a sleep"); break;
    case FILCH_CMD_TIMER: add_text(page, "a timer"); break;
    case FILCH_CMD_TICKER: add_text(page, "a ticker"); break;
    case FILCH_CMD_TIMER_CANCEL: add_text(page, "a timer's end"); break;
    case FILCH_CMD_WORK: add_text(page, "work"); break;
    case FILCH_CMD_SPAWN: add_text(page, "a spawn"); break;
    case FILCH_CMD_EXEC: add_text(page, "an exec"); break;
    default: add_text(page, "command %u", command); break;
    }
}

static void put_error(sheet *page, filch_err error)
{
    if (error >= FILCH_EUSER) add_text(page, "error %d", error);
    else add_text(page, "%s", filch_err_name(error));
}

static void add_result(sheet *page, const fli_chart *chart, const fli_chart_line *line)
{
    if (line->error != FILCH_OK) put_error(page, line->error);
    else if (line->data_kind == FILCH_KIND_NONE) add_text(page, "ok");
    else put_data(page, chart, line);
}

static void put_notice(sheet *page, const fli_chart *chart, const fli_chart_line *line, const char *from,
                       const char *to)
{
    switch (line->command) {
    case FILCH_EVENT_EXIT: add_text(page, "%s is notified that %s has ended: ", to, from); break;
    case FILCH_EVENT_LINK_DOWN: add_text(page, "%s is notified that its link with %s is down: ", to, from); break;
    case FILCH_EVENT_JOINED: add_text(page, "%s is notified that %s has joined ", to, from); break;
    default: add_text(page, "%s is notified that %s has left ", to, from); break;
    }
    add_result(page, chart, line);
}

/* Writes the event as a sentence. */
static void put_sentence(const fli_chart *chart, sheet *page, const fli_chart_line *line)
{
    char               from[FLI_CHART_LABEL_MAX], to[FLI_CHART_LABEL_MAX];
    unsigned long long tag = line->tag;
    fli_chart_label(chart, line->from, from, sizeof from);
    fli_chart_label(chart, line->to, to, sizeof to);
    switch (line->kind) {
    case FLI_CHART_SPAWN: add_text(page, "%s spawns %s", from, to); break;
    case FLI_CHART_SEND:
        add_text(page, "%s sends ", from);
        put_data(page, chart, line);
        add_text(page, " to %s", to);
        if (line->error != FILCH_OK) add_text(page, ": ");
        if (line->error != FILCH_OK) put_error(page, line->error);
        break;
    case FLI_CHART_GET:
        add_text(page, "%s gets ", to);
        put_data(page, chart, line);
        if (line->from == FLI_CHART_OUTSIDE && tag != 0) add_text(page, " from its timer %llu", tag);
        else add_text(page, " from %s", from);
        break;
    case FLI_CHART_RESULT:
        add_text(page, "%s gets completion %llu: ", to, tag);
        add_result(page, chart, line);
        break;
    case FLI_CHART_CANCEL: add_text(page, "%s is asked to end", to); break;
    case FLI_CHART_NOTICE: put_notice(page, chart, line, from, to); break;
    case FLI_CHART_DROPS:
        add_text(page, "%s is notified of dropped messages: ", to);
        put_data(page, chart, line);
        break;
    case FLI_CHART_YIELD:
        add_text(page, "%s yields ", from);
        put_command(page, line->command);
        add_text(page, ", %llu", tag);
        break;
    case FLI_CHART_COMPLETION:
        add_text(page, "completion %llu for %s: ", tag, to);
        add_result(page, chart, line);
        break;
    case FLI_CHART_EXIT:
        add_text(page, "%s ends: ", from);
        add_result(page, chart, line);
        break;
    case FLI_CHART_NOTE: add_text(page, "%s: %s%s", from, line->text, line->cut ? "..." : ""); break;
    case FLI_CHART_FAULT: add_text(page, "fault: %s", line->text); break;
    default: add_text(page, "VIOLATION: %s%s", line->text, line->cut ? "..." : ""); break;
    }
}

static void put_head(const fli_chart *chart, sheet *page, const columns *cols)
{
    add_text(page, "o-> sends or spawns   * is stepped with   ? yields   = is completed   x ends\n\n");
    if (first_index(chart) > 0) add_text(page, "%llu earlier events\n", (unsigned long long)first_index(chart));
    add_text(page, "%13s  ", "microseconds");
    for (uint32_t i = 0; i < cols->count; i++) {
        char label[FLI_CHART_LABEL_MAX];
        fli_chart_label(chart, cols->number[i], label, sizeof label);
        int before = ((int)cols->width - (int)strlen(label) + 1) / 2;
        add_text(page, "%*s%-*s", before, "", (int)cols->width - before, label);
    }
    add_text(page, "\n");
}

char *fli_chart_draw(const fli_chart *chart, size_t *size)
{
    sheet   page = { .mem = chart->mem };
    columns cols;
    char    row[COLUMNS_MAX * (FLI_CHART_LABEL_MAX + 2) + 1];
    choose_columns(chart, &cols);
    put_head(chart, &page, &cols);
    for (uint64_t i = first_index(chart); i < chart->count; i++) {
        const fli_chart_line *line = line_at(chart, i);
        draw_row(&cols, line, row);
        add_text(&page, "%9llu.%03u  ", (unsigned long long)(line->time_ns / 1000), (unsigned)(line->time_ns % 1000));
        add_text(&page, "%s  ", row);
        put_sentence(chart, &page, line);
        add_text(&page, "\n");
    }
    if (page.failed) {
        fli_free(&page.mem, page.text, page.room);
        return NULL;
    }
    *size = page.room;
    return page.text;
}
