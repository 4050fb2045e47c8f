/* yields.h - the yields of one process that are still out. A yield's node is taken when the step yields, so that
 * completing it later needs no memory and cannot fail. */
#ifndef FLI_PROC_YIELDS_H
#define FLI_PROC_YIELDS_H

#include <filch.h>

#include "proc/runtime.h"

/* Adds a yield of `command` with `tag`. Gives its node, PENDING, or NULL: out of memory. Thread: the owner. */
FILCH_MUST_USE fli_node *fli_yield_open(fli_runtime *rt, fli_local *here, fli_proc *p, uint32_t command, uint64_t tag);

/* The yield behind `node` is over: CLAIMED by a completion and now delivered. Thread: the owner. */
void fli_yield_close(fli_runtime *rt, fli_proc *p, fli_node *node);

/* Makes all outstanding yields void, at the end of the process: late completions find them gone. Must come before
 * fli_state_finish: while the process lives, the nodes of yields being completed cannot be anybody else's.
 * Thread: the owner. */
void fli_yield_abandon(fli_runtime *rt, fli_local *here, fli_proc *p);

/* One of the outstanding yields: its command and tag. False if there is none. Thread: the owner, about to end it. */
bool fli_yield_first(fli_runtime *rt, fli_proc *p, uint32_t *command, uint64_t *tag);

/* The name of a PENDING yield for whoever is to complete it. */
filch_receiver fli_yield_receiver(fli_runtime *rt, fli_node *node);

/* Claims the yield that `key` names: true makes the node the caller's, to fill and to post. Thread: any. */
FILCH_MUST_USE bool fli_yield_claim(fli_runtime *rt, uint64_t key, fli_node **out);
/* A quick look: is it worth making a payload for? */
FILCH_MUST_USE bool fli_yield_is_pending(fli_runtime *rt, uint64_t key);

/* Frees the node of a claimed yield whose process has ended. */
void fli_yield_drop(fli_runtime *rt, fli_local *here, fli_node *node);

#endif
