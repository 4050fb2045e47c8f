/* ext.h - the extension of a control block: fields that few processes need, allocated on first use. */
#ifndef FLI_PROC_EXT_H
#define FLI_PROC_EXT_H

#include "proc/runtime.h"

/* Returns the extension of `p`, allocated if needed; NULL if out of memory. Thread: the owner. */
static inline fli_ext *fli_ext_get(fli_runtime *rt, fli_proc *p)
{
    if (p->ext == NULL) p->ext = fli_zalloc(&rt->mem, sizeof *p->ext);
    return p->ext;
}

/* Frees the extension of `p`, and the recorder if there is one. */
static inline void fli_ext_free(fli_runtime *rt, fli_proc *p)
{
    if (p->ext == NULL) return;
    if (p->ext->recorder != NULL) rt->record_ops->drop(rt, p);
    fli_free(&rt->mem, p->ext->timers, p->ext->timer_cap * sizeof *p->ext->timers);
    fli_free(&rt->mem, p->ext, sizeof *p->ext);
    p->ext = NULL;
}

#endif
