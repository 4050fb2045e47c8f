/* ext.h - what few processes need: allocated on first use. */
#ifndef FLI_PROC_EXT_H
#define FLI_PROC_EXT_H

#include "proc/runtime.h"

/* The extension of `p`, made if need be; NULL: out of memory. Thread: the owner. */
static inline fli_ext *fli_ext_get(fli_runtime *rt, fli_proc *p)
{
    if (p->ext == NULL) p->ext = fli_zalloc(&rt->mem, sizeof *p->ext);
    return p->ext;
}

static inline void fli_ext_free(fli_runtime *rt, fli_proc *p)
{
    if (p->ext == NULL) return;
    fli_free(&rt->mem, p->ext->timers, p->ext->timer_cap * sizeof *p->ext->timers);
    fli_free(&rt->mem, p->ext, sizeof *p->ext);
    p->ext = NULL;
}

#endif
