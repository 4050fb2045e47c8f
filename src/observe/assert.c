/* assert.c - what a broken invariant leaves behind: file, line and condition, told to the host's handler and found in the frame
 * of filch_assert_failed in a core dump. Why the handler is one for the whole program: docs/design/diagnostics.md. */
#include "base/assert.h"

#include <stdbool.h>

#include "port/atomic.h"

/* writes: filch_assert_handler. reads: a thread whose assertion failed.  PAIR assert.handler */
static FLI_ATOMIC(filch_assert_fn) handler;
static __thread bool failing; /* the handler of this thread is running: it may itself run into an assertion */

filch_assert_fn filch_assert_handler(filch_assert_fn fn)
{
    return fli_swap_acqrel(&handler, fn); /* PAIR assert.handler, release half: what the host prepared for it is seen */
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
