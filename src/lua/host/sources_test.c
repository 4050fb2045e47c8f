/* sources_test.c - the path of a module is written whole or not at all. */
#include "lua/host/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lua/host/host.h"
#include "support/check.h"

TEST(a_module_is_found_only_if_its_whole_path_fits)
{
    char folder[] = "/tmp/filch-sources-XXXXXX", expected[64], templates[64], path[64], real[64], text[128];
    assert_non_null(mkdtemp(folder));
    snprintf(expected, sizeof expected, "%s/one.lua", folder);
    snprintf(templates, sizeof templates, "%s/?.lua", folder);
    FILE *file = fopen(expected, "w");
    assert_non_null(file);
    same(fclose(file), 0);
    const struct filch_lua lua = { .path = templates, .roots = folder };
    size_t                 size = strlen(expected);

    ok(fli_lua_source_find(&lua, "one", path, real, size + 1, text, sizeof text));
    assert_string_equal(path, expected);
    for (size_t room = 1; room <= size; room++) {
        memset(path, '#', sizeof path);
        same(fli_lua_source_find(&lua, "one", path, real, room, text, sizeof text), FILCH_LUA_EFILE);
        assert_string_equal(text, "module 'one' not found: a path is too long");
        same(path[room], '#'); /* nothing is written behind the `room` bytes of `path` */
    }
    same(unlink(expected), 0);
    same(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_is_found_only_if_its_whole_path_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
