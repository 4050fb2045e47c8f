/* op_test.c - tests which filch_err is returned for each errno value. */
#include <errno.h>

#include "io/stream.h"
#include "support/check.h"

TEST(each_errno_value_maps_to_its_documented_error)
{
    static const struct {
        int       number;
        filch_err err;
    } all[] = {
        { ENOMEM, FILCH_ENOMEM },
        { ENOBUFS, FILCH_ENOMEM },
        { ECONNRESET, FILCH_ERESET },
        { EPIPE, FILCH_ERESET },
        { ENOTCONN, FILCH_ERESET },
        { ECONNABORTED, FILCH_ERESET },
        { ECONNREFUSED, FILCH_EREFUSED },
        { ETIMEDOUT, FILCH_EDEADLINE },
        { EADDRINUSE, FILCH_EINUSE },
        { EADDRNOTAVAIL, FILCH_EINUSE },
        { EHOSTUNREACH, FILCH_ENOHOST },
        { ENETUNREACH, FILCH_ENOHOST },
        { EHOSTDOWN, FILCH_ENOHOST },
        { ENETDOWN, FILCH_ENOHOST },
        { EMFILE, FILCH_EFILES },
        { ENFILE, FILCH_EFILES },
        { ENOENT, FILCH_ENOFILE },
        { ENOTDIR, FILCH_ENOFILE },
        { EACCES, FILCH_EACCESS },
        { EPERM, FILCH_EACCESS },
        { EROFS, FILCH_EACCESS },
        { EEXIST, FILCH_EEXISTS },
        { EMSGSIZE, FILCH_ETOOBIG },
        { EAGAIN, FILCH_EFULL },
        { ENOSPC, FILCH_ENOSPACE },
        { EDQUOT, FILCH_ENOSPACE },
        { EFBIG, FILCH_ENOSPACE },
        { EIO, FILCH_EIO },
        { EISDIR, FILCH_EDIRECTORY },
        { ENOTEMPTY, FILCH_EDIRECTORY },
        { EXDEV, FILCH_EDEVICE },
        { EBADF, FILCH_EDESC },
        { ENAMETOOLONG, FILCH_EINVAL },
        { EINVAL, FILCH_ESYS },
        { ELOOP, FILCH_ESYS },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        same(fli_io_error(all[i].number), all[i].err);
        if (all[i].number == EAGAIN) continue;
        fli_io_result result = fli_io_result_failed(-all[i].number);
        assert_false(result.again);
        same(result.err, all[i].err);
        same(filch_as_int(&result.data), all[i].number); /* the payload is the errno value */
    }
    assert_true(fli_io_result_failed(-EAGAIN).again); /* EAGAIN is no error: the operation waits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_errno_value_maps_to_its_documented_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
