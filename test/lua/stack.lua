-- stack.lua - calls back into Lua from every function of the environment that can do so, each call inside the last, until Lua refuses a deeper
-- call. Returns rows, by name; lua_stack_test runs each on a thread with a small C stack.
local depth, most
local again -- function that the innermost call invokes to make one more call

-- Returns a function that makes one more call, and then returns `result`.
local function returning(result)
  return function(...)
    depth = depth + 1
    if depth > most then most = depth end
    here()
    if depth < 1000 then again() end
    return result
  end
end

local function with(event, f) return setmetatable({}, { [event] = f }) end

-- Returns a value that calls back into Lua, whatever operation uses it.
local function evil()
  local one, text, none = returning(1), returning("x"), returning(nil)
  return setmetatable({}, {
    __index = none, __newindex = none, __call = none, __tostring = text, __len = returning(3), __pairs = none, __close = none,
    __eq = one, __lt = one, __le = one, __concat = text, __unm = one, __add = one, __sub = one, __mul = one, __div = one, __mod = one,
    __pow = one, __idiv = one, __band = one, __bor = one, __bxor = one, __shl = one, __shr = one, __bnot = one,
  })
end

local function nested(value, levels)
  for _ = 1, levels do value = { k = value } end
  return value
end

local function full(key, value)
  local t = {}
  for i = 1, 99 do t["field" .. i] = i end
  t[key] = value
  return t
end

-- Returns lists of arguments; every function is called with each list. A function that refuses a list calls nothing,
-- which is harmless.
local function arguments()
  local e, f = evil(), returning(nil)
  local raising = function() f() error("x") end
  return {
    { e }, { e, e }, { e, e, e }, { f }, { f, f }, { raising, f }, { f, e }, { e, f }, { f, f, f },
    { "x", e }, { "x", f }, { "%s", e }, { "x", ".", f }, { "x", ".", e }, { "x", e, "y" }, { 1, e }, { e, 1 }, { e, 1, 2 }, { e, 1, 2, 3 },
    { e, "x" }, { e, 1, 2, 1, e }, { { e, e } }, { { e, e }, "," }, { { 2, 1, 3 }, f }, { { 3, 1, 2 }, 1, 3, 1, e }, { { k = e } },
    { { e, e, e } }, { "x", { k = e } }, { "x", { [e] = 1 } }, { "x", nested(e, 3) }, { "x", full("k", e) }, { "x", nested(full("k", e), 3) },
    { coroutine.create(f) }, { coroutine.create(f), e }, { { e, timeout = e } }, { { f, memory = e } },
    { nested(e, 90) }, { "x", nested(e, 90) }, { nested(e, 90), nested(e, 90) }, { process.self(), e }, { process.self(), "x", e },
    { { strategy = e, children = { e } } }, { { children = { { start = e, id = e } } } }, { { children = e } },
  }
end

-- Runs `call` where Lua cannot yield, so that no call waits. `call` calls itself through `again`. Reports how much
-- stack the calls used.
local function run(name, call)
  depth, most, again = 0, 0, call
  clear()
  tostring(with("__tostring", function() pcall(call) return "x" end))
  report(name, most)
end

local rows = {}

local leave_out = { ["process.exit"] = true, ["process.kill"] = true, ["process.terminate"] = true, ["process.upgrade"] = true,
  ["here"] = true, ["clear"] = true, ["report"] = true }

-- Calls every function with each list of arguments.
function rows.every_function()
  local function each(library, values)
    for field, f in pairs(values) do
      local name = library .. field
      if type(f) == "function" and not leave_out[name] then
        for _, list in ipairs(arguments()) do
          run(name, function() f(table.unpack(list)) end)
        end
      end
    end
  end
  for name, value in pairs(_G) do
    if type(value) == "table" and name ~= "_G" then each(name .. ".", value) end
  end
  each("", _G)
end

local function row(name, make)
  rows[name] = function() run(name, make()) end
end

row("an operator", function() local e = evil() return function() return e + 1 end end)
row("concatenation", function() local e = evil() return function() return e .. "x" end end)
row("__index", function() local e = evil() return function() return e.x end end)
row("an iterator", function() local f = returning(nil) return function() for _ in f do end end end)
row("__close", function() local c = with("__close", returning(nil)) return function() local _ <close> = c end end)
row("__close after an error", function()
  local c = with("__close", returning(nil))
  return function() pcall(function() local _ <close> = c error("x") end) end
end)
row("a coroutine", function() local f = returning(nil) return function() coroutine.wrap(f)() end end)
row("coroutine.close", function()
  local f = returning(nil)
  return function()
    local co = coroutine.create(function() local _ <close> = with("__close", f) coroutine.yield() end)
    coroutine.resume(co)
    return coroutine.close(co)
  end
end)
row("a message handler", function() local f = returning(nil) return function() xpcall(error, function() f() end) end end)

local function inside_format(last)
  local f = returning("x")
  local e = with("__tostring", f)
  return function() if depth < 190 then return ("%s"):format(e) end last() end
end

-- Each coroutine closes the next one, until a close is refused. Lua counts nested calls anew in each coroutine. The
-- innermost close calls string.format.
row("string.format inside coroutine.close", function()
  local format, list = inside_format(function() end), {}
  local function close(i)
    if pcall(coroutine.close, list[i]) then return end
    depth, again = 0, format
    format()
  end
  for i = 1, 1000 do
    list[i] = coroutine.create(function() local _ <close> = with("__close", function() close(i + 1) end) coroutine.yield() end)
    coroutine.resume(list[i])
  end
  return function() close(1) end
end)

-- Other operations that need much stack, each inside 190 nested calls: a message, a pattern, code to compile.
row("a message inside string.format", function()
  return inside_format(function() process.send(process.self(), nested("x", 99)) process.spawn(function(t) return t end, nested("x", 99)) end)
end)
row("a pattern inside string.format", function() return inside_format(function() process.receive(nested("x", 99), 0) end) end)
row("a match inside string.format", function() return inside_format(function() pcall(string.find, ("a"):rep(9999), ("(a)"):rep(30) .. ("a-"):rep(500) .. "b") end) end)
row("code inside string.format", function()
  return inside_format(function()
    load("return " .. ("("):rep(180) .. "1" .. (")"):rep(180))
    load(("return function() "):rep(180) .. ("end "):rep(180))
    pcall(process.spawn, "deep")
  end)
end)
row("json inside string.format", function()
  return inside_format(function() json.decode(json.encode(nested("x", 99))) msgpack.decode(msgpack.encode(nested("x", 99))) end)
end)

-- The new code of a process runs inside the step of the old code.
function rows.upgrade()
  again = inside_format(function() process.upgrade("stack") end)
  depth, most = 0, 0
  tostring(with("__tostring", again))
  error("the process was not upgraded")
end

return {
  rows = rows,
  upgrade = function()
    run("string.format of upgraded code", inside_format(function() end))
  end,
  main = function(name) if name then rows[name]() end end,
}
