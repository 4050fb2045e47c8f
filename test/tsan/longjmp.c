/* longjmp.c - lets the thread sanitizer see the jumps of Lua: linked into every program with Lua in a TSan build.
 *
 * The sanitizer keeps a record of the active calls of each thread, of 65,536 entries without a check. It replaces
 * setjmp and longjmp to remove the entries that a jump leaves. A Lua that is built with _FORTIFY_SOURCE jumps by
 * __longjmp_chk, which the sanitizer does not know: each error and each yield out of C left entries there, and the
 * program crashed after about ten thousand.
 */
#include <setjmp.h>

/* Weak, because a test library and the program that links it both define this function. */
__attribute__((noreturn, weak, visibility("default"))) void __longjmp_chk(jmp_buf env, int value);

__attribute__((no_sanitize("thread"))) void __longjmp_chk(jmp_buf env, int value)
{
    longjmp(env, value);
}
