/* lua_moves_test.c - the operator `..` when its __concat metamethod makes Lua move the stack. Lua 5.4.4 of Debian 12
 * then uses the old stack: see src/lua/preempt/moves.h. Each test makes stacks of many depths, so that some call of the
 * metamethod is the one that moves the stack.
 */
#include "lua/simulated.h"

static fixture w;

static int open_fixture(void **state)
{
    *state = &w;
    fixture_open(&w, 1, NULL);
    return 0;
}

/* A process may run ten times as long as by default where it cannot be interrupted, so that a sanitizer or a loaded
 * machine does not end it. */
static int open_patient_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.runaway_ns = FILCH_MILLISECONDS(250);
    fixture_open(&w, 1, &options);
    return 0;
}

static int open_unwatched_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.watch = FILCH_LUA_WATCH_NONE;
    fixture_open(&w, 1, &options);
    return 0;
}

/* deep(n) makes n nested calls; at(n, f) calls f() inside n nested calls; object(f) returns a value whose metamethod
 * __concat is f. */
#define DEEP                                                                                                 \
    "local function deep(n) if n > 0 then local a, b, c = 1, 2, 3 return deep(n - 1) + a end return 0 end\n" \
    "local function at(n, f) if n == 0 then return (f()) end return (at(n - 1, f)) end\n"                    \
    "local function object(f) return setmetatable({}, { __concat = f }) end\n"                               \
    "local function both(n, f, want)\n"                                                                      \
    "  for _, run in ipairs { at, function(n, f) return coroutine.wrap(at)(n, f) end } do\n"                 \
    "    local got = run(n, f)\n"                                                                            \
    "    if got ~= want then error(n .. ': ' .. tostring(got), 0) end\n"                                     \
    "  end\n"                                                                                                \
    "end\n"

/* The metamethod __concat is a Lua function that grows the stack. */
static const char grown_by_lua[] = DEEP "for n = 1, 120 do\n"
                                        "  local t = object(function(a, b) deep(n) collectgarbage() return 'x' end)\n"
                                        "  both(n % 7, function() return t .. t .. t .. 'abc' end, 'x')\n"
                                        "  both(n, function() return 'a' .. t end, 'x')\n"
                                        "  both(n, function() return t .. 'a' .. t end, 'x')\n"
                                        "end\n";

/* The operands of `..` fill the stack, so that the stack grows when __concat calls a C function. string.format('y', t)
 * is 'y'. */
static const char grown_by_c[] =
    DEEP "for n = 1, 100 do\n"
         "  local direct, tail = object(string.format), object(function() return string.format('x') end)\n"
         "  local many = object(function() return (table.unpack({ 'x' }, 1, 3 * n)) end)\n"
         "  local concat = load('local t = ... return ' .. ('\"y\" .. '):rep(n) .. 't')\n"
         "  both(n % 3, function() return (concat(direct)) end, ('y'):rep(n))\n"
         "  both(n % 3, function() return (concat(tail)) end, ('y'):rep(n - 1) .. 'x')\n"
         "  both(n % 3, function() return (concat(many)) end, ('y'):rep(n - 1) .. 'x')\n"
         "end\n";

/* A collection inside the metamethod shrinks the stack. */
static const char shrunk[] = DEEP "for n = 1, 60 do\n"
                                  "  local t = object(function() collectgarbage() collectgarbage() return 'x' end)\n"
                                  "  local inner = object(function() coroutine.wrap(function() collectgarbage() "
                                  "collectgarbage() end)() return 'x' end)\n"
                                  "  both(n, function() deep(400) return t .. 'a' .. t .. 'b' end, 'x')\n"
                                  "  both(n, function() deep(400) return 'a' .. inner .. 'b' end, 'ax')\n"
                                  "end\n";

/* A __close handler that coroutine.close runs inside the metamethod shrinks the stack on which `..` runs. For `inner`
 * there are two nested calls of coroutine.close between `..` and the collection. */
static const char shrunk_by_close[] =
    DEEP "local function closed(f)\n"
         "  local co = coroutine.create(function()\n"
         "    local x <close> = setmetatable({}, { __close = f })\n"
         "    coroutine.yield()\n"
         "  end)\n"
         "  coroutine.resume(co)\n"
         "  coroutine.close(co)\n"
         "end\n"
         "local function collect() collectgarbage() collectgarbage() end\n"
         "for n = 1, 60 do\n"
         "  local t = object(function() closed(collect) return 'x' end)\n"
         "  local inner = object(function() closed(function() closed(collect) end) return 'x' end)\n"
         "  both(n, function() deep(400) return t .. 'a' .. t .. 'b' end, 'x')\n"
         "  both(n, function() deep(400) return 'a' .. inner .. 'b' end, 'ax')\n"
         "end\n";

/* The metamethod runs where it cannot be interrupted, but the stack does not move while it runs. */
static const char uninterruptible[] =
    DEEP "local t = object(function() return 'x' end)\n"
         "local text = setmetatable({}, { __tostring = function() deep(100) return 'y' end })\n"
         "local indexed = setmetatable({}, { __index = function() deep(3) return t .. 'b' end })\n"
         "for n = 1, 60 do\n"
         "  local u = object(function() return tostring(text) end)\n"
         "  both(n, function() return u .. 'a' .. u end, 'y')\n"
         "  both(n, function() deep(20) return table.concat { t .. 'a', indexed[1] } end, 'xx')\n"
         "end\n";

TEST(concat_is_right_although_its_metamethod_grows_the_stack)
{
    fixture_passes(&w, grown_by_lua);
}

TEST(concat_is_right_although_a_c_function_as_metamethod_grows_the_stack)
{
    fixture_passes(&w, grown_by_c);
}

TEST(concat_is_right_although_a_collection_in_its_metamethod_shrinks_the_stack)
{
    fixture_passes(&w, shrunk);
}

TEST(concat_is_right_although_a_close_handler_in_its_metamethod_shrinks_the_stack)
{
    fixture_passes(&w, shrunk_by_close);
}

TEST(concat_in_code_that_cannot_be_interrupted_is_right)
{
    fixture_passes(&w, uninterruptible);
}

TEST(concat_is_right_without_a_watchdog)
{
    fixture_passes(&w, grown_by_lua);
    fixture_passes(&w, grown_by_c);
    fixture_passes(&w, shrunk);
    fixture_passes(&w, shrunk_by_close);
}

TEST(concat_is_right_in_a_job)
{
    char              chunk[8192];
    const char *const all[] = { grown_by_lua, grown_by_c, shrunk, shrunk_by_close };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(chunk, sizeof chunk, "assert(work.run(function() %s return true end))", all[i]);
        fixture_passes(&w, chunk);
    }
}

TEST(concat_is_right_in_a_simulation)
{
    simulate(grown_by_lua, 3);
    simulate(shrunk, 3);
    simulate(shrunk_by_close, 3);
}

/* Lua gives a stack exactly as many slots as table.unpack asks for, if they are more than twice the slots so far. So a
 * script can make stacks with the size of 32, 64 or 128 nodes of a table (43, 91 and 187 slots). */
TEST(concat_is_right_although_its_stack_is_as_large_as_a_table)
{
    fixture_passes(&w, "local empty = {}\n"
                       "for before = 1, 95 do\n"
                       "  for after = 2 * before - 20, 2 * before + 10 do\n"
                       "    local t = setmetatable({}, { __concat = function(a, b)\n"
                       "      local n = (table.unpack(empty, 1, after)) return 'r'\n"
                       "    end })\n"
                       "    local co = coroutine.create(function()\n"
                       "      coroutine.yield()\n"
                       "      local x, y = 1, 2 local r = 'a' .. t .. 'b' return r, x + y\n"
                       "    end)\n"
                       "    coroutine.resume(co)\n"
                       "    local fine, r, sum = coroutine.resume(co, table.unpack(empty, 1, before))\n"
                       "    if not fine or r ~= 'ar' or sum ~= 3 then error(before .. ' ' .. after .. ': ' .. "
                       "tostring(r), 0) end\n"
                       "  end\n"
                       "end\n");
}

/* The nodes of a table that grow must not count as a stack that moves. deep(20) makes the stack large enough for the
 * metamethod; the 40 calls outside keep collections from shrinking it. */
TEST(a_table_may_grow_in_a_concat_that_cannot_be_interrupted)
{
    fixture_passes(&w, DEEP
                   "local function fill() local t = {} for i = 1, 1000 do t['k' .. i] = i t[i] = i end return t end\n"
                   "local object = object(function() fill() return 'x' end)\n"
                   "local text = setmetatable({}, { __tostring = function() return object .. 'a' end })\n"
                   "for n = 1, 50 do\n"
                   "  local got = at(40, function() local d = deep(20) return tostring(text) end)\n"
                   "  assert(got == 'x')\n"
                   "end\n");
}

/* The metamethod is a C function, or ends with a tail call of one, and the call of the C function grows the stack. */
TEST(a_concat_whose_metamethod_is_any_c_function_goes_on)
{
    const char *const metamethods[] = {
        "type",
        "rawlen",
        "function(a) return type(a) end",
        "function(a) return rawlen(a) end",
        "function(a) return math.type(1) end",
        "coroutine.wrap(function() while true do coroutine.yield('x') end end)",
        "function() local w = wrap(function() coroutine.yield('x') end) return w() end",
        "function() return channel:room() end",
        "function() return #channel end",
        "function() return blob:len() end",
        "function() return element({ 'x' }, 0) end",
        "function() return code('x', 0) end",
        "function() return match() end",
        "function() return task:status() end",
    };
    char chunk[2048];
    for (size_t i = 0; i < sizeof metamethods / sizeof metamethods[0]; i++) {
        snprintf(chunk, sizeof chunk,
                 DEEP
                 "local wrap, channel, blob, element, code = coroutine.wrap, channel.new(3), blob.new('x'), ipairs {}, "
                 "utf8.codes('x')\n"
                 "local match, task = ('x'):rep(400):gmatch('.'), task.spawn(function() end)\n"
                 "local t = object(%s)\n"
                 "for n = 1, 150 do\n"
                 "  local co = coroutine.create(at)\n"
                 "  assert(coroutine.resume(co, n, function() return t .. 'a' end))\n"
                 "end\n",
                 metamethods[i]);
        fixture_passes(&w, chunk);
    }
}

static void ends_its_process(const char *metamethod)
{
    char chunk[4096];
    snprintf(chunk, sizeof chunk,
             DEEP "for n = 1, 200 do\n"
                  "  local function x() deep(n) collectgarbage() return 'x' end\n"
                  "  local t = object(%s)\n"
                  "  local text = setmetatable({}, { __tostring = function() return t .. t .. 'abc' end })\n"
                  "  assert(tostring(text) == 'x')\n"
                  "end\n",
             metamethod);
    fixture_run(&w, chunk);
    assert_int_equal(w.error, FILCH_LUA_EBUDGET);
    assert_non_null(strstr(w.text, "a __concat metamethod that cannot be interrupted"));
    assert_null(strstr(w.text, "more than"));
}

TEST(a_concat_that_cannot_be_interrupted_and_whose_stack_moves_ends_its_process)
{
    ends_its_process("x");
    ends_its_process("function() return (x()) end");
}

TEST(a_concat_whose_metamethod_ends_with_a_tail_call_ends_its_process_too)
{
    ends_its_process("function() return x() end");
}

/* The stack moves inside a callback, __tostring. In the callback, functions that end with a tail call return to code
 * without `..`, so the process must not be ended. */
TEST(functions_with_tail_calls_go_on_after_their_stack_has_moved)
{
    fixture_passes(&w, DEEP "local function tail(n) deep(n) return deep(3) end\n"
                            "local function call(n) return tail(n) end\n"
                            "local label = 'a' .. deep(1)\n"
                            "for n = 1, 200 do\n"
                            "  local text = setmetatable({}, { __tostring = function()\n"
                            "    local sum = 0\n"
                            "    for i = 1, 3 do sum = sum + call(n) end\n"
                            "    return string.format('%d', sum)\n"
                            "  end })\n"
                            "  assert(tostring(text) == '9', tostring(text))\n"
                            "end\n");
}

/* After the stack has moved inside __tostring, the hook runs at each return. f ends with a tail call, so the code of
 * its caller is searched for `..`; the caller is 20,000 calls long. */
TEST(a_long_function_with_many_tail_calls_takes_no_longer_after_its_stack_has_moved)
{
    if (is_under_valgrind()) return; /* where the code is too slow, with the search or without it */
    fixture_passes(&w, DEEP "local function one() return 1 end\n"
                            "local function f() return one() end\n"
                            "local long = assert(load('local f = ... ' .. ('f() '):rep(20000)))\n"
                            "local function inner() deep(3000) long(f) return 'x' end\n"
                            "local text = setmetatable({}, { __tostring = function() return inner() end })\n"
                            "assert(tostring(text) == 'x')\n");
}

int main(void)
{
#define IN(open, name) cmocka_unit_test_setup_teardown(name, open, fixture_close_shared)
    const struct CMUnitTest tests[] = {
        IN(open_fixture, concat_is_right_although_its_metamethod_grows_the_stack),
        IN(open_fixture, concat_is_right_although_a_c_function_as_metamethod_grows_the_stack),
        IN(open_fixture, concat_is_right_although_a_collection_in_its_metamethod_shrinks_the_stack),
        IN(open_fixture, concat_is_right_although_a_close_handler_in_its_metamethod_shrinks_the_stack),
        IN(open_fixture, concat_in_code_that_cannot_be_interrupted_is_right),
        IN(open_unwatched_fixture, concat_is_right_without_a_watchdog),
        IN(open_fixture, concat_is_right_in_a_job),
        cmocka_unit_test(concat_is_right_in_a_simulation),
        IN(open_fixture, concat_is_right_although_its_stack_is_as_large_as_a_table),
        IN(open_fixture, a_table_may_grow_in_a_concat_that_cannot_be_interrupted),
        IN(open_fixture, a_concat_whose_metamethod_is_any_c_function_goes_on),
        IN(open_fixture, a_concat_that_cannot_be_interrupted_and_whose_stack_moves_ends_its_process),
        IN(open_fixture, a_concat_whose_metamethod_ends_with_a_tail_call_ends_its_process_too),
        IN(open_fixture, functions_with_tail_calls_go_on_after_their_stack_has_moved),
        IN(open_patient_fixture, a_long_function_with_many_tail_calls_takes_no_longer_after_its_stack_has_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
