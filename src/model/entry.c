/* entry.c - the public functions that create a scheduler. They are here and not in sched because a scheduler calls
 * src/model and src/record by tables of operations, and sched may not name anything of the modules above it. */
#include <stddef.h>

#include "model/model.h"
#include "proc/runtime.h"
#include "record/record.h"
#include "sched/sched.h"
#include "simulate/simulate.h"

static const fli_upper_ops upper = { .model = &fli_model_table, .record = &fli_record_table };

filch_err filch_sched_create(filch_sched **out, const filch_options *options)
{
    return out != NULL ? fli_sched_make(out, options, NULL, &upper) : filch_invalid("out is NULL");
}

filch_err filch_sim_sweep(const filch_sim_options *options, uint64_t first, uint64_t count, filch_sim_fn scenario,
                          void *user, filch_sim_report *report)
{
    return fli_sim_sweep(&upper, options, first, count, scenario, user, report);
}

filch_err filch_sim_run(const filch_sim_options *options, filch_sim_fn scenario, void *user, filch_sim_report *report)
{
    uint64_t seed = options != NULL && options->size >= offsetof(filch_sim_options, workers) ? options->seed : 0;
    return fli_sim_sweep(&upper, options, seed, 1, scenario, user, report);
}

filch_err filch_blackbox_replay(const void *bytes, size_t size, const filch_type *type, filch_blackbox_report *report)
{
    return fli_blackbox_replay(&upper, bytes, size, type, report);
}
