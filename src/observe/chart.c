/* chart.c - see chart.h. Events are kept as small records in a ring and formatted only when they are drawn
 * (chart_draw.c), so in a run over many seeds each event costs only one record.
 *
 * The hash covers all events, also those that have left the ring. It does not cover addresses, nor the bytes of binary
 * payloads, which may contain addresses, because addresses differ from run to run.
 */
#include "observe/chart.h"

#include <stdio.h>
#include <string.h>

#include "base/prng.h"

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
        const char **names =
            fli_resize(&chart->mem, chart->names, chart->name_room * sizeof *names, room * sizeof *names);
        if (names == NULL) return;
        memset(names + chart->name_room, 0, (room - chart->name_room) * sizeof *names);
        chart->names = names;
        chart->name_room = room;
    }
    chart->names[number] = name;
}

void fli_chart_label(const fli_chart *chart, uint32_t number, char *out, size_t size)
{
    const char *name = number < chart->name_room && chart->names[number] != NULL ? chart->names[number] : "?";
    if (number == FLI_CHART_OUTSIDE) snprintf(out, size, "outside");
    else if (number == FLI_CHART_UNKNOWN) snprintf(out, size, "an unknown process");
    /* Keeps the start and the end of a long name, because the name of a Lua process ends with a line number
     * ("basket_test.lua:15"). */
    else if (strlen(name) > FLI_CHART_NAME_MAX)
        snprintf(out, size, "%.7s..%s#%u", name, name + strlen(name) - 7, number);
    else snprintf(out, size, "%s#%u", name, number);
}

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
    size_t shown = size < FLI_CHART_SHOWN - 1 ? size : FLI_CHART_SHOWN - 1;
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
    case FILCH_KIND_BYTES:
        line->number = filch_size(data);
        if (chart->describe != NULL && line->number > 0) {
            memcpy(line->text, filch_raw(data), line->number < FLI_CHART_SHOWN ? line->number : FLI_CHART_SHOWN);
        }
        break;
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
