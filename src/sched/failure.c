/* failure.c - reports a failed process to the program: option `on_failure`. Called by finish.c for every end with an
 * error, before the process loses its name. */
#include "proc/runtime.h"
#include "sched/finish.h"
#include "sched/sched.h"

void fli_failure_notify(filch_sched *sched, uint64_t serial, const filch_type *type, bool related, filch_err error,
                        const filch_data *detail)
{
    char          name[FLI_NAME_ROOM];
    filch_failure failure = {
        .size = sizeof failure,
        .pid = { sched->rt.node_id, serial },
        .type = fli_type_name(type),
        .error = error,
        .detail = detail,
    };
    if (related && sched->rt.model_ops->name_of(&sched->rt, serial, name)) failure.name = name;
    sched->opt.on_failure(sched->opt.on_failure_user, &failure);
}
