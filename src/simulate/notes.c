/* notes.c - the record of a simulated run: chart, hash, verdict. See simulation.h. */
#include <stdio.h>
#include <string.h>

#include "proc/runtime.h"
#include "sched/worker.h"
#include "simulate/simulation.h"

uint32_t fli_simulation_number(const fli_simulation *sim, uint64_t serial)
{
    uint32_t slot = fli_serial_slot(serial);
    if (serial == 0) return FLI_CHART_OUTSIDE;
    if (slot >= sim->occupant_room || sim->occupants[slot].gen != fli_serial_gen(serial)) return FLI_CHART_UNKNOWN;
    return sim->occupants[slot].number;
}

void fli_simulation_note(fli_simulation *sim, fli_chart_event event)
{
    if (!fli_simulation_writes(sim)) return;
    event.time_ns = sim->simulator.now_ns;
    fli_chart_add(&sim->chart, &event);
}

void fli_simulation_fault(fli_simulation *sim, const char *text)
{
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_FAULT, .text = text });
}

void fli_simulation_verdict(fli_simulation *sim, filch_sim_verdict verdict, const char *text)
{
    if (!fli_simulation_writes(sim) || sim->report.verdict != FILCH_SIM_OK) return;
    sim->report.verdict = (int32_t)verdict;
    snprintf(sim->report.text, sizeof sim->report.text, "%s", text);
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_FAIL, .text = text });
}

static void name_process(fli_simulation *sim, uint64_t serial, const filch_type *type)
{
    uint32_t slot = fli_serial_slot(serial), number = ++sim->numbers;
    if (slot >= sim->occupant_room) {
        uint32_t      room = slot < 128 ? 256 : slot * 2;
        fli_occupant *all = fli_resize(&sim->mem, sim->occupants, sim->occupant_room * sizeof *all, room * sizeof *all);
        if (all == NULL) return;
        memset(all + sim->occupant_room, 0, (room - sim->occupant_room) * sizeof *all);
        sim->occupants = all;
        sim->occupant_room = room;
    }
    sim->occupants[slot] = (fli_occupant){ .gen = fli_serial_gen(serial), .number = number };
    fli_chart_name(&sim->chart, number, fli_type_name(type));
}

void fli_simulation_spawned(fli_runtime *rt, const fli_local *worker, uint64_t serial, const filch_type *type)
{
    fli_simulation *sim = fli_simulation_of(rt);
    name_process(sim, serial, type);
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_SPAWN,
                                                .from = fli_simulation_number(sim, worker->serial),
                                                .to = fli_simulation_number(sim, serial) });
}

void fli_simulation_ended(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result)
{
    fli_simulation *sim = fli_simulation_of(rt);
    fli_simulation_note(
        sim, (fli_chart_event){
                 .kind = FLI_CHART_EXIT, .from = fli_simulation_number(sim, serial), .error = error, .data = result });
}

void fli_simulation_sent(fli_runtime *rt, filch_pid from, filch_pid to, const filch_data *data, filch_err err)
{
    fli_simulation *sim = fli_simulation_of(rt);
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_SEND,
                                                .from = fli_simulation_number(sim, from.serial),
                                                .to = fli_simulation_number(sim, to.serial),
                                                .data = data,
                                                .error = err });
}

static void note_event(fli_simulation *sim, uint32_t number, const filch_event *event)
{
    static const fli_chart_kind kinds[] = {
        [FILCH_EVENT_MESSAGE] = FLI_CHART_GET,   [FILCH_EVENT_YIELD] = FLI_CHART_RESULT,
        [FILCH_EVENT_CANCEL] = FLI_CHART_CANCEL, [FILCH_EVENT_DROPPED] = FLI_CHART_DROPS,
        [FILCH_EVENT_EXIT] = FLI_CHART_NOTICE,   [FILCH_EVENT_LINK_DOWN] = FLI_CHART_NOTICE,
        [FILCH_EVENT_JOINED] = FLI_CHART_NOTICE, [FILCH_EVENT_LEFT] = FLI_CHART_NOTICE,
    };
    fli_simulation_note(sim,
                        (fli_chart_event){ .kind = kinds[event->type],
                                           .from = fli_simulation_number(sim, event->from.serial),
                                           .to = number,
                                           .command = event->type > FILCH_EVENT_DROPPED ? (uint32_t)event->type : 0,
                                           .tag = event->tag,
                                           .error = event->error,
                                           .data = &event->data });
}

filch_err fli_simulation_step(fli_local *worker, fli_proc *p, uint32_t count)
{
    fli_worker     *w = fli_worker_of(worker);
    fli_simulation *sim = fli_simulation_of(worker->rt);
    uint32_t        number = fli_simulation_number(sim, w->local.serial);
    if (fli_simulation_writes(sim)) {
        sim->report.steps++;
        fli_chart_stir(&sim->chart, ((uint64_t)number << 32) ^ ((uint64_t)w->local.index << 16) ^ count);
        for (uint32_t i = 0; i < count; i++) note_event(sim, number, &w->events[i]);
    }
    return fli_proc_type(p)->step(p->self, w->events, count, &w->out);
}
