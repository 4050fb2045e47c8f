/* spawn.h - creates processes and their instances. See spawn.c. */
#ifndef FLI_SCHED_SPAWN_H
#define FLI_SCHED_SPAWN_H

#include <filch.h>

#include "proc/runtime.h"

/* Allocates an instance of `type` and calls its init. An instance of up to FLI_STATE_INLINE bytes is put at
 * `inline_state`, unless `inline_state` is NULL. An instance is never moved, because it may hold pointers into itself.
 */
filch_err fli_instance_make(filch_sched *sched, const filch_type *type, const filch_ctx *ctx, const char *method,
                            const filch_data *args, void *inline_state, void **out);
void      fli_instance_free(filch_sched *sched, const filch_type *type, void *inline_state, void *self);

/* Spawns a process with options that have been checked. `birth`: relations, name and values of the process; NULL:
 * none. */
filch_err fli_spawn(filch_sched *sched, const filch_type *type, const filch_spawn_options *opt, const fli_birth *birth,
                    filch_pid *pid);
/* Copies and checks the options of a caller that was compiled with an older or newer filch.h: missing fields get their
 * defaults, unknown fields must be zero. */
filch_err fli_spawn_options_read(const filch_spawn_options *given, filch_spawn_options *out);

#endif
