/* lua_tasks_fuzz_test.c - random programs of tasks, channels, select, deadlines, cancels and messages, interrupted at
 * each instruction or at points drawn from a seed. The outcomes are compared with a model (tasks_model.h) after each
 * batch of operations.
 *
 * FILCH_TASKS_SEED=N runs one seed and prints what it does; FILCH_TASKS_RUNS=N runs N seeds.
 */
#include <lauxlib.h>

#include "lua/fixture.h"
#include "lua/tasks_model.h"

/* ADVANCE_MS: virtual time from one batch to the next, in milliseconds; the outcomes are compared at its end. Deadlines
 * are 1, 2 or 3 seconds after the beginning of a batch. No multiple of ADVANCE_MS is near these times, so no deadline
 * is due near a comparison. */
enum { BATCHES = 30, ADVANCE_MS = 310 };

static struct {
    model   *model;
    model_op batch[MODEL_BATCH];
    int      count, batches;
    bool     verbose;
} fuzz;

static const char *const kinds[] = {
    "send", "receive", "iterate", "select", "rest", "await", "close", "cancel", "post"
};
static const int capacities[MODEL_CHANNELS] = { 0, 1, 4, 0 };

/* Each operation of a batch runs as its own task, and all tasks of the batch begin at the same time. Each task stores
 * its outcome as a text. */
static const char program[] =
    "local me, ch, tasks, out = process.self(), {}, {}, {}\n"
    "for i, capacity in ipairs { 0, 1, 4, 0 } do ch[i] = channel.new(capacity) end\n"
    "local function case(c) return c.channel < 0 and channel.inbox or c.value ~= 0 and ch[c.channel + "
    "1]:sending(c.value) or ch[c.channel + 1] end\n"
    "local run = {}\n"
    "function run.send(o) return ch[o[1].channel + 1]:send(o[1].value, o.timeout) end\n"
    "function run.receive(o) return ch[o[1].channel + 1]:receive(o.timeout) end\n"
    "function run.iterate(o) return ch[o[1].channel + 1]() end\n"
    "function run.rest(o) time.sleep(o.timeout) end\n"
    "function run.await(o) return tasks[o.target]:await(o.timeout) end\n"
    "function run.close(o) ch[o[1].channel + 1]:close() end\n"
    "function run.cancel(o) if tasks[o.target] then tasks[o.target]:cancel() end end\n"
    "function run.post(o) process.send(me, o[1].value) end\n"
    "function run.select(o)\n"
    "  local cases = {}\n"
    "  for i, c in ipairs(o) do cases[i] = case(c) end\n"
    "  local i, v, ok = channel.select(cases, o.timeout)\n"
    "  if i == nil then return nil, v end\n"
    "  if type(ok) ~= 'boolean' then ok = 'mail' end\n"
    "  return i, v, ok\n"
    "end\n"
    "local function text(fine, ...)\n"
    "  local words = { tostring(fine) }\n"
    "  if not fine and tostring((...)):find('closed channel') then return 'false,closed' end\n"
    "  for i = 1, select('#', ...) do words[#words + 1] = tostring((select(i, ...))) end\n"
    "  return table.concat(words, ',')\n"
    "end\n"
    "while true do\n"
    "  local batch = draw()\n"
    "  if not batch then break end\n"
    "  for _, o in ipairs(batch) do\n"
    "    tasks[o.slot] = task.spawn(function() local words = text(pcall(run[o.kind], o)) out[o.slot] = words return "
    "words end)\n"
    "  end\n"
    "  time.sleep(0.31)\n"
    "  local seen = {}\n"
    "  for i = 1, #ch do local s, r = ch[i]:waiting() seen[i] = { #ch[i], s, r } end\n"
    "  check(out, seen)\n"
    "  out = {}\n"
    "end\n";

static void set_int(lua_State *L, const char *name, lua_Integer value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

/* Pushes the operation as a table { kind = , slot = , target = , timeout = , cases... }. */
static void push_op(lua_State *L, const model_op *op)
{
    lua_newtable(L);
    lua_pushstring(L, kinds[op->kind]);
    lua_setfield(L, -2, "kind");
    set_int(L, "slot", op->slot);
    set_int(L, "target", op->target);
    if (op->timeout_ms != 0) set_int(L, "timeout", op->timeout_ms / 1000);
    for (int i = 0; i < op->case_count; i++) {
        lua_newtable(L);
        set_int(L, "channel", op->cases[i].channel);
        set_int(L, "value", op->cases[i].value);
        lua_rawseti(L, -2, i + 1);
    }
}

static void print_op(const model_op *op)
{
    printf("  slot %d: %s", op->slot, kinds[op->kind]);
    if (op->kind == MODEL_AWAIT || op->kind == MODEL_CANCEL) printf(" slot %d", op->target);
    else
        for (int i = 0; i < op->case_count; i++) printf(" ch%d/%d", op->cases[i].channel, op->cases[i].value);
    if (op->timeout_ms != 0) printf(" for %d ms", op->timeout_ms);
    printf("\n");
}

/* Lua function draw(): returns the operations of the next batch, or nil if there are no more. */
static int draw(lua_State *L)
{
    if (fuzz.batches++ == BATCHES) return 0;
    fuzz.count = model_draw(fuzz.model, fuzz.batch);
    lua_newtable(L);
    if (fuzz.verbose) printf("batch %d\n", fuzz.batches);
    for (int i = 0; i < fuzz.count; i++) {
        push_op(L, &fuzz.batch[i]);
        lua_rawseti(L, -2, i + 1);
        if (fuzz.verbose) print_op(&fuzz.batch[i]);
    }
    return 1;
}

static int field(lua_State *L, int at)
{
    lua_rawgeti(L, -1, at);
    int value = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
    return value;
}

/* Lua function check(outcomes by slot, { { length, senders, receivers } by channel }): raises an error if the model
 * does not allow these values. */
static int check(lua_State *L)
{
    model_view view;
    char       seen[512] = "", why[512] = "";
    int        at = 0;
    memset(&view, 0, sizeof view);
    for (int i = 0; i < MODEL_SLOTS; i++) {
        if (lua_rawgeti(L, 1, i) == LUA_TSTRING) snprintf(view.outcome[i], MODEL_TEXT, "%s", lua_tostring(L, -1));
        if (view.outcome[i][0] != '\0')
            at += snprintf(seen + at, sizeof seen - (size_t)at, " %d:%s", i, view.outcome[i]);
        lua_pop(L, 1);
    }
    for (int i = 0; i < MODEL_CHANNELS; i++) {
        lua_rawgeti(L, 2, i + 1);
        view.length[i] = field(L, 1);
        view.senders[i] = field(L, 2);
        view.receivers[i] = field(L, 3);
        at += snprintf(seen + at, sizeof seen - (size_t)at, " ch%d:%d/%d/%d", i, view.length[i], view.senders[i],
                       view.receivers[i]);
        lua_pop(L, 1);
    }
    if (fuzz.verbose) printf("  ->%s\n", seen);
    if (model_check(fuzz.model, fuzz.batch, fuzz.count, ADVANCE_MS, &view, why, sizeof why)) return 0;
    return luaL_error(L, "batch %d: seen%s; the model says, for one,%s", fuzz.batches, seen, why);
}

static void add_functions(lua_State *L, void *user)
{
    (void)user;
    lua_pushcfunction(L, draw);
    lua_setfield(L, -2, "draw");
    lua_pushcfunction(L, check);
    lua_setfield(L, -2, "check");
}

static void run_seed(filch_lua *lua, filch_lua_code *code, uint64_t seed)
{
    filch_sim_options sim = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    sim.seed = seed;
    fuzz.model = model_create(seed, capacities);
    fuzz.batches = 0;
    ok(filch_lua_sim(lua, code, NULL, &sim, 1, &report));
    if (report.verdict != FILCH_SIM_OK) fail_msg("FILCH_TASKS_SEED=%llu: %s", (unsigned long long)seed, report.text);
    filch_sim_report_free(&report);
    model_destroy(fuzz.model);
}

/* Runs `runs` seeds, beginning at seed `from`. `count` is the option of this name in filch_lua_options. */
static void run_seeds(uint32_t count, uint64_t from, uint64_t runs)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    filch_lua        *lua;
    filch_lua_code   *code;
    char              why[256] = "";
    options.open = add_functions;
    options.count = count;
    ok(filch_lua_create(&lua, &options));
    if (filch_lua_load(lua, program, sizeof program - 1, "fuzz", &code, why, sizeof why) != FILCH_OK)
        fail_msg("%s", why);
    for (uint64_t i = 0; i < runs; i++) run_seed(lua, code, from + i);
    filch_lua_code_drop(lua, code);
    ok(filch_lua_destroy(lua));
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

TEST(tasks_and_channels_match_the_model_under_random_interruptions)
{
    fuzz.verbose = getenv("FILCH_TASKS_SEED") != NULL;
    run_seeds(0, number("FILCH_TASKS_SEED", 1), fuzz.verbose ? 1 : number("FILCH_TASKS_RUNS", scaled(400)));
}

TEST(tasks_and_channels_match_the_model_at_every_instruction)
{
    fuzz.verbose = getenv("FILCH_TASKS_SEED") != NULL;
    run_seeds(1, number("FILCH_TASKS_SEED", 1), fuzz.verbose ? 1 : number("FILCH_TASKS_RUNS", scaled(60)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_and_channels_match_the_model_under_random_interruptions),
        cmocka_unit_test(tasks_and_channels_match_the_model_at_every_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
