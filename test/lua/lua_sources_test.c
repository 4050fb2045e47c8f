/* lua_sources_test.c - the code that a program names comes only from its own folders. Files elsewhere, files that are
 * not regular, and large files are refused, and no call blocks on a file. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lua/fixture.h"
#include "lua/host/files.h"
#include "lua/host/host.h"

static fixture w;
static char    top[64], path[512], roots[128];

static void put(const char *name, const char *text)
{
    char  full[256];
    FILE *file;
    snprintf(full, sizeof full, "%s/%s", top, name);
    file = fopen(full, "w");
    assert_true(file != NULL);
    fputs(text, file);
    fclose(file);
}

/* Removes a file that a test has made. */
static void drop(const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", top, name);
    same(unlink(full), 0);
}

static void make(const char *name, const char *target)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", top, name);
    if (target == NULL) same(mkdir(full, 0700), 0);
    else if (target[0] == '|') same(mkfifo(full, 0600), 0);
    else same(symlink(target, full), 0);
}

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    strcpy(top, "/tmp/filch_sources_XXXXXX");
    assert_true(mkdtemp(top) != NULL);
    make("program", NULL);
    make("program/jobs", NULL);
    make("program/folder.lua", NULL);
    make("other", NULL);
    make("outside", NULL);
    put("program/fine.lua", "return { main = function(x) return x end }");
    put("program/jobs/deep.lua", "return { main = function() return 'deep' end }");
    put("other/far.lua", "return { main = function() return 'far' end }");
    put("outside/config.lua", "return { password = 'hunter2' }");
    put("outside/notes.txt", "the password is hunter2");
    put("program/notes.txt", "the password is hunter2");
    put("program/broken.lua", "return return");
    make("program/link.lua", "jobs/deep.lua");
    make("program/escape.lua", "../outside/config.lua");
    make("program/hole", "../outside");
    make("program/zero.lua", "/dev/zero");
    make("program/pipe.lua", "|");
    char large[] = "program/large.lua";
    put(large, "return 1 --");
    char full[256];
    snprintf(full, sizeof full, "%s/%s", top, large);
    same(truncate(full, 3000), 0);
    snprintf(path, sizeof path, "%s/program/?.lua;%s/program/?/init.lua", top, top);
    snprintf(roots, sizeof roots, "%s/other", top);
    options.path = path;
    options.roots = roots;
    options.code_max = 2999;
    fixture_open(&w, 1, &options);
    return 0;
}

static int close_fixture(void **state)
{
    static const char *const names[] = {
        "program/fine.lua",  "program/jobs/deep.lua", "other/far.lua",     "outside/config.lua", "outside/notes.txt",
        "program/notes.txt", "program/broken.lua",    "program/link.lua",  "program/escape.lua", "program/hole",
        "program/zero.lua",  "program/pipe.lua",      "program/large.lua",
    };
    static const char *const folders[] = { "program/jobs", "program/folder.lua", "program", "other", "outside", "" };
    char                     full[256];
    (void)state;
    fixture_close(&w);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(full, sizeof full, "%s/%s", top, names[i]);
        same(unlink(full), 0);
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(full, sizeof full, "%s/%s", top, folders[i]);
        same(rmdir(full), 0);
    }
    return 0;
}

TEST(code_in_the_program_folders_is_found_by_name)
{
    fixture_passes(&w, "assert(process.exec('fine', 7) == 7)\n"
                       "assert(process.exec('fine.lua', 7) == 7)\n"
                       "assert(process.exec('./fine.lua', 8) == 8)\n"
                       "assert(process.exec('jobs/deep.lua') == 'deep')\n"
                       "assert(process.exec('jobs.deep') == 'deep')\n"
                       "assert(process.exec('link.lua') == 'deep')\n"
                       "assert(process.exec('link') == 'deep')\n"
                       "assert(process.exec('far.lua') == 'far')\n"
                       "assert(work.run('fine.lua', 9) == 9)\n"
                       /* require has one parameter: a second argument is ignored */
                       "local module = require('jobs.deep')\n"
                       "assert(module ~= 5 and require('jobs.deep', { ['jobs.deep'] = 5 }) == module)\n");
}

/* One file has 300 names: it is compiled and kept once, and only a few names are kept. */
TEST(all_names_of_a_file_refer_to_one_code)
{
    fixture_passes(&w, "assert(process.exec('jobs/deep.lua') == 'deep')\n");
    size_t codes = w.lua->code_count, names = 0;
    same(w.lua->file_count, 1);
    fixture_passes(&w, "for i = 1, 200 do\n"
                       "  assert(process.exec(('./'):rep(i) .. 'jobs/deep.lua') == 'deep')\n"
                       "  assert(process.exec(('jobs/../'):rep(i % 100) .. 'link.lua') == 'deep')\n"
                       "end\n"
                       "assert(process.exec('jobs.deep') == 'deep' and require('link').main() == 'deep')\n");
    same(w.lua->file_count, 1);
    assert_true(w.lua->code_count <= codes + 1); /* at most one new code: that of this chunk */
    for (const fli_lua_module *module = w.lua->modules; module != NULL; module = module->next) names++;
    assert_true(names > 0 && names <= 4);
}

/* After a link was changed to refer to another file, and after a reload, the link has the code of the other file. */
TEST(a_changed_link_gets_the_code_of_its_new_file)
{
    char full[256];
    fixture_passes(&w, "assert(process.exec('link.lua') == 'deep')\n");
    snprintf(full, sizeof full, "%s/program/link.lua", top);
    same(unlink(full), 0);
    make("program/link.lua", "fine.lua");
    ok(filch_lua_reload(w.lua, NULL, NULL));
    fixture_passes(&w, "assert(process.exec('link.lua', 7) == 7)\n"
                       "assert(process.exec('jobs.deep') == 'deep')\n");
}

/* A link to the file jobs/deep.lua is changed to refer to another file. The other names of jobs/deep.lua must keep
 * their code. The test uses the link before another name of jobs/deep.lua, and then in the reverse order. */
TEST(a_changed_link_does_not_change_other_names_of_its_file)
{
    static const char *const uses[] = { "assert(process.exec('link.lua') == 'deep')\n"
                                        "assert(process.exec('jobs/deep.lua') == 'deep')\n",
                                        "assert(process.exec('jobs/deep.lua') == 'deep')\n"
                                        "assert(process.exec('link.lua') == 'deep')\n" };
    for (size_t i = 0; i < 2; i++) {
        char full[256];
        if (i > 0) close_fixture(&(void *){ NULL }), open_fixture(&(void *){ NULL });
        fixture_passes(&w, uses[i]);
        snprintf(full, sizeof full, "%s/program/link.lua", top);
        same(unlink(full), 0);
        make("program/link.lua", "fine.lua");
        for (int again = 0; again < 2; again++) {
            ok(filch_lua_reload(w.lua, NULL, NULL));
            fixture_passes(&w, "assert(process.exec('link.lua', 7) == 7)\n"
                               "assert(process.exec('jobs/deep.lua', 7) == 'deep')\n");
        }
    }
}

/* Every call that names code, with every invalid name. */
TEST(no_file_outside_the_program_folders_is_read)
{
    static char chunk[4096];
    snprintf(
        chunk, sizeof chunk,
        "local top = '%s'\n"
        "local names = { '../outside/config.lua', top .. '/outside/config.lua', 'escape.lua', 'escape', "
        "'hole/config.lua',\n"
        "  'hole.config', '../outside/notes.txt', 'notes.txt', './notes.txt', '/etc/passwd', '/dev/zero', 'zero.lua', "
        "'zero',\n"
        "  'pipe.lua', 'pipe', 'folder.lua', 'folder', 'large.lua', 'large', 'no.such', 'no/such.lua', '', '/', '.', "
        "'..', '../',\n"
        "  'fine\\0.lua', 'fine\\0', 'fine.lua\\0', 'fi\\nne', '\\xFF\\xFE', ('x'):rep(5000), ('x/'):rep(5000) .. "
        "'y.lua',\n"
        "  './/' .. top .. '/outside/config.lua', 'fine.lua/', 'fine.lua/../../outside/config.lua' }\n"
        "local ways = {\n"
        "  spawn = function(n) process.spawn(n) end, exec = function(n) process.exec(n) end,\n"
        "  linked = function(n) process.spawn_linked(n) end, monitored = function(n) process.spawn_monitored(n) end,\n"
        "  table = function(n) process.spawn { n, 1 } end, work = function(n) assert(work.run(n)) end,\n"
        "  upgrade = function(n) assert(process.upgrade(n)) end,\n"
        "  child = function(n) assert(supervisor.start { children = { { id = 'c', n } } }) end,\n"
        "  require = function(n) require(n) end,\n"
        "}\n"
        "for way, run in pairs(ways) do for _, name in ipairs(names) do\n"
        "  local fine, why = pcall(run, name)\n"
        "  assert(not fine, way .. ' took ' .. name)\n"
        "  assert(not tostring(why):find('hunter2') and not tostring(why):find('password'), why)\n"
        "end end\n",
        top);
    fixture_passes(&w, chunk);
}

TEST(an_error_says_why_a_file_is_not_loaded)
{
    fixture_passes(
        &w, "local function why(name) return select(2, pcall(process.spawn, name)) end\n"
            "assert(why('large.lua'):find('larger than the 2999 bytes', 1, true))\n"
            "assert(why('../outside/config.lua'):find(\"in the program's folders\", 1, true))\n"
            "assert(why('../outside/config.lua'):gsub('config', 'X') == why('../outside/none.lua'):gsub('none', 'X'))\n"
            "assert(why('no.such'):find(\"module 'no.such' not found\", 1, true))\n"
            "assert(why('broken'):find('broken.lua:1:', 1, true))\n"
            /* names with an invalid character at each place */
            "for i = 1, 3 do\n"
            "  local fine, text = pcall(require, ('abc'):sub(1, i - 1) .. '$' .. ('abc'):sub(i + 1))\n"
            "  assert(not fine and text:find(\"a module's name has letters\", 1, true), text)\n"
            "end\n");
}

/* Regression: a cycle of require ended with the error "C stack overflow", which named no module. */
TEST(a_cycle_of_require_names_its_modules_and_the_file)
{
    put("program/self.lua", "return require 'self'");
    put("program/one.lua", "local x = 1\nreturn require 'two'");
    put("program/two.lua", "return coroutine.wrap(function() time.sleep(0) return require 'three' end)()");
    put("program/three.lua",
        "return pcall(function() error((select(2, pcall(require, 'one'))), 0) end), require 'one'");
    for (int i = 1; i <= 12; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "program/m%d.lua", i);
        snprintf(text, sizeof text, "\nreturn require 'm%d'", i % 12 + 1);
        put(name, text);
    }
    fixture_passes(&w,
                   "local function why(name) local fine, text = pcall(require, name) assert(not fine) return text end\n"
                   "local function has(text, what) assert(text:find(what, 1, true), text) end\n"
                   "for _ = 1, 2 do\n"
                   "  has(why 'self', \"self.lua:1: module 'self' requires itself: self -> self\")\n"
                   "  has(why 'one', \"three.lua:1: module 'one' requires itself: one -> two -> three -> one\")\n"
                   "  has(why 'm1', \"m12.lua:2: module 'm1' requires itself: m1 -> ... -> m5 -> m6 -> m7 -> m8 -> m9 "
                   "-> m10 -> m11 -> m12 -> m1\")\n"
                   "end\n");
    drop("program/self.lua");
    drop("program/one.lua");
    drop("program/two.lua");
    drop("program/three.lua");
    for (int i = 1; i <= 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "program/m%d.lua", i);
        drop(name);
    }
}

/* A module that waits while it is loaded is no cycle for another task, and neither is a module whose load has failed or
 * was given up. */
TEST(a_module_that_is_loaded_elsewhere_is_no_cycle)
{
    put("program/slow.lua", "time.sleep(0) return { name = 'slow' }");
    put("program/uses.lua", "return require 'slow'");
    put("program/fails.lua", "first = not first if first then error('once', 0) end return { name = 'fails' }");
    put("program/stops.lua", "first = not first if first then coroutine.yield() end return { name = 'stops' }");
    fixture_passes(&w,
                   "local found = task.all { function() return require 'uses' end, function() return require 'slow' "
                   "end, function() return require 'slow' end }\n"
                   "for i = 1, 3 do assert(found[i].name == 'slow') end\n"
                   "assert(select(2, pcall(require, 'fails')) == 'once' and require('fails').name == 'fails')\n"
                   "coroutine.wrap(function() require 'stops' end)() assert(require('stops').name == 'stops')\n");
    drop("program/slow.lua");
    drop("program/uses.lua");
    drop("program/fails.lua");
    drop("program/stops.lua");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
        T(code_in_the_program_folders_is_found_by_name),      T(all_names_of_a_file_refer_to_one_code),
        T(a_changed_link_gets_the_code_of_its_new_file),      T(a_changed_link_does_not_change_other_names_of_its_file),
        T(no_file_outside_the_program_folders_is_read),       T(an_error_says_why_a_file_is_not_loaded),
        T(a_cycle_of_require_names_its_modules_and_the_file), T(a_module_that_is_loaded_elsewhere_is_no_cycle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
