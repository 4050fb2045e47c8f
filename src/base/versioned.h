/* versioned.h - reads an option struct of a caller. The first field of the struct, `size_t size`, is its size in the
 * caller's version.
 *
 * A shorter struct comes from a program compiled with an older header: the fields it lacks keep their defaults. A
 * longer one comes from a newer header: it is accepted if every byte that this library does not know is 0.
 */
#ifndef FLI_BASE_VERSIONED_H
#define FLI_BASE_VERSIONED_H

#include <stddef.h>

#include <filch.h>

/* `out` is a struct of `known` bytes that holds the defaults. Copies `given`, which may be shorter or longer, over the
 * first bytes of `out`, and sets the size field of `out` to `known`. Leaves `out` unchanged if `given` is NULL.
 * FILCH_EINVAL: the size field of `given` is not set (filch_err_detail() becomes `unset`), or `given` has a byte after
 * the first `known` bytes that is not 0 (filch_err_detail() becomes `unknown`). */
FILCH_MUST_USE filch_err fli_versioned_read(void *out, size_t known, const void *given, const char *unset,
                                            const char *unknown);

/* Sets *out to its defaults INIT (a FILCH_*_INIT macro), then copies the fields of the caller's struct `given`.
 * `name` is the name of the argument in error texts. */
#define FLI_VERSIONED_READ(out, given, name, INIT)                                                          \
    (*(out) = (__typeof__(*(out)))INIT,                                                                     \
     fli_versioned_read((out), sizeof *(out), (given), name ".size is not set: begin with " #INIT,          \
                        name " sets a field that this version of the library does not know: the header is " \
                             "newer than the library"))

#endif
