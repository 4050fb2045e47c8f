/* assert.c - reports a broken invariant: calls the handler of the host with file, line and condition. The frame of
 * filch_assert_failed in a core dump contains them too. Why a program has only one handler:
 * docs/design/diagnostics.md. */
#include "base/assert.h"

#include <stdbool.h>

#include "port/atomic.h"

/* writes: filch_assert_handler.  reads: a thread that fails an assertion.  PAIR assert.handler */
static FLI_ATOMIC(filch_assert_fn) handler;
/* true while this thread is inside the handler: if the handler itself fails an assertion, it is not called again */
static __thread bool failing;

filch_assert_fn filch_assert_handler(filch_assert_fn fn)
{
    /* PAIR assert.handler, release half: the handler `fn` sees what this thread wrote before it called this function */
    return fli_swap_acqrel(&handler, fn);
}

void filch_assert_failed(const char *file, int line, const char *text)
{
    filch_assert_fn fn = fli_load_acq(&handler); /* PAIR assert.handler, acquire half */
    if (fn != NULL && !failing) {
        failing = true;
        fn(file, line, text);
    }
    __builtin_trap();
}
