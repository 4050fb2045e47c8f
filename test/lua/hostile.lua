-- hostile.lua - for each function of the environment a call that tries to occupy its worker: a callback that loops, a size, a pattern, a path.
-- Returns rows, by name; lua_hostile_test drives each beside another process, bench/lua_lateness measures the delay of that process.
local function loop() while true do end end
local function with(event, f) return setmetatable({}, { [event] = f }) end
local looping = with("__tostring", loop)
local kept = {}
local function keep(name, make) if kept[name] == nil then kept[name] = make() end return kept[name] end
local function big() return keep("big", function() return ("x"):rep(3 << 20) end) end
local function zeros() return keep("zeros", function() return ("\0"):rep(1 << 20) end) end
local function deep() return keep("deep", function() local t = {} for i = 1, 1900 do t = setmetatable({}, { __index = t }) end return t end) end
local function numbers() return keep("numbers", function() local t = {} for i = 1, 150000 do t[i] = (i * 7919) % 150011 end return t end) end
local function tables() return keep("tables", function() local t = {} for i = 1, 50000 do t[i] = { i } end return t end) end
local function fields() return keep("fields", function() local t = {} for i = 1, 50000 do t["field" .. i] = i end return t end) end
local function text() return keep("text", function() local t = {} for i = 1, 200000 do t[i] = tostring(i) end return "[" .. table.concat(t, ",") .. "]" end) end
local function me() return process.self() end

local rows = {
  ["assert"] = function() assert(false, looping) end,
  ["blob.is"] = function() blob.is(blob.new(big())) end,
  ["blob.new"] = function() local b = blob.new(big()) return b == blob.new(big()), #tostring(b), b:sub(2) end,
  ["channel.new"] = function() return channel.new(1 << 40) end,
  ["channel.select"] = function() channel.select(tables(), 0) end,
  ["collectgarbage"] = function() tables() collectgarbage() end,
  ["coroutine.close"] = function()
    local co = coroutine.create(function() local c <close> = with("__close", loop) coroutine.yield() end)
    coroutine.resume(co) coroutine.close(co)
  end,
  ["coroutine.create"] = function() return coroutine.create(loop) end,
  ["coroutine.resume"] = function() coroutine.resume(coroutine.create(loop)) end,
  ["coroutine.wrap"] = function() coroutine.wrap(loop)() end,
  ["debug.traceback"] = function() local function f(n) return n == 0 and debug.traceback(big()) or (f(n - 1)) end f(150000) end,
  ["error"] = function() error(looping) end,
  ["exec.run"] = function() exec.run { "no such\nprogram", big() } end,
  ["fs.list"] = function() fs.list("/proc/self/fd/" .. ("../"):rep(1000)) end,
  ["fs.mkdir"] = function() fs.mkdir("/proc/none\0") end,
  ["fs.open"] = function() fs.open("/dev/none\n" .. ("x"):rep(100000)) end,
  ["fs.remove"] = function() fs.remove("/proc/none") end,
  ["fs.rename"] = function() fs.rename("/proc/none", "/proc/nothing") end,
  ["fs.rmdir"] = function() fs.rmdir("/proc/none") end,
  ["fs.stat"] = function() fs.stat(("/."):rep(10000)) end,
  ["ipairs"] = function() for _ in ipairs(with("__index", function() return 1 end)) do end end,
  ["json.decode"] = function()
    json.decode(text()) json.decode(keep("digits", function() return ("1"):rep(3 << 20) end)) json.decode('"' .. big() .. '"')
  end,
  ["json.encode"] = function() json.encode(numbers()) json.encode(fields()) json.encode(big()) json.encode(zeros()) end,
  ["json.list"] = function() json.list(numbers()) end,
  ["load"] = function()
    load(loop) load(os.date) load("return " .. ("a and "):rep(40000) .. "a") load("return {" .. ("{},"):rep(60000) .. "}")
  end,
  ["log.debug"] = function() log.debug(looping) end,
  ["log.error"] = function() log.error("x", fields()) end,
  ["log.info"] = function() log.info("x", { k = looping }) end,
  ["log.warn"] = function() log.warn("x", with("__pairs", loop)) end,
  ["math.max"] = function() math.max(table.unpack(numbers(), 1, 140000)) end,
  ["math.min"] = function() math.min(table.unpack(numbers(), 1, 140000)) end,
  ["msgpack.decode"] = function() msgpack.decode(keep("packed", function() return msgpack.encode(numbers()) end)) end,
  ["msgpack.encode"] = function() msgpack.encode(numbers()) msgpack.encode(fields()) end,
  ["msgpack.list"] = function() msgpack.list(numbers()) end,
  ["net.connect"] = function() net.connect(("x"):rep(100000) .. ":1", "1ms") end,
  ["net.listen"] = function() net.listen(("x"):rep(100000)) end,
  ["net.resolve"] = function() net.resolve(("x."):rep(1000), "0") end,
  ["next"] = function() local t, k = fields(), nil repeat k = next(t, k) until k == nil end,
  ["os.date"] = function() os.date(("%c"):rep(2000)) os.date(("%c"):rep(1 << 20)) end,
  ["os.getenv"] = function() os.getenv(big()) end,
  ["pairs"] = function() for _ in pairs(with("__pairs", loop)) do end end,
  ["pcall"] = function() while true do pcall(pcall, loop) end end,
  ["print"] = function() print(looping) end,
  ["process.alive"] = function() process.alive(big()) end,
  ["process.broadcast"] = function() process.join("hostile") process.broadcast("hostile", numbers()) end,
  ["process.exec"] = function() process.exec { loop, link = true } end,
  ["process.exit"] = function() local c <close> = with("__close", loop) process.exit(1) end,
  ["process.join"] = function() for i = 1, 2000 do process.join("g" .. i) end end,
  ["process.members"] = function() for i = 1, 1000 do process.join("hostile") end process.members("hostile") end,
  ["process.receive"] = function()
    for i = 1, 3000 do process.send(me(), { i }) end
    for i = 1, 100 do process.receive({ none = 1 }, 0) end
    process.receive(loop)
  end,
  ["process.register"] = function() process.register(big()) end,
  ["process.reply"] = function() process.reply(me(), numbers()) end,
  ["process.request"] = function() process.request(me(), numbers(), "1ms") end,
  ["process.send"] = function() process.send(me(), numbers()) process.receive() end,
  ["process.spawn"] = function() process.terminate(process.spawn { loop, link = true }) end,
  ["process.spawn_linked"] = function() process.spawn_linked("../../etc/passwd") end,
  ["process.spawn_monitored"] = function() process.spawn_monitored("/dev/zero") end,
  ["process.upgrade"] = function() process.upgrade("broken.loops") end,
  ["process.upgradable"] = function() process.upgradable(loop) end,
  ["rawlen"] = function() rawlen(numbers()) end,
  ["require"] = function() require("broken.loops") end,
  ["runtime.reload"] = function() runtime.reload() end,
  ["select"] = function() select(-1, table.unpack(numbers(), 1, 140000)) end,
  ["setmetatable"] = function() setmetatable(_G, { __index = loop }) local x = no_such_name end,
  ["string.byte"] = function() big():byte(1, 140000) big():byte(1, -1) end,
  ["string.char"] = function() string.char(big():byte(1, 140000)) end,
  ["string.find"] = function()
    pcall(string.find, ("a"):rep(3000), (".-"):rep(30) .. "b") big():find("[^x]") big():find(("x"):rep(1000) .. "y", 1, true) big():find("xxxxxy", 1, true)
  end,
  ["string.format"] = function()
    local t = {} for i = 1, 990 do t[i] = 1e308 end
    string.format(("%99.99f"):rep(990), table.unpack(t)) string.format("%q", ("\r"):rep(1 << 17)) string.format("%s", looping)
  end,
  ["string.gmatch"] = function() for _ in big():gmatch("[^x]") do end end,
  ["string.gsub"] = function() big():gsub("x", "%0%0") ("x"):gsub("x", loop) end,
  ["string.lower"] = function() big():lower() end,
  ["string.match"] = function() ("a"):rep(20000):match(".-.-.-b") big():match("^(.-)%s*$") end,
  ["string.pack"] = function() string.pack((" "):rep(60000) .. "s", big()) string.pack((" "):rep(1 << 22)) end,
  ["string.packsize"] = function() string.packsize(("b"):rep(60000)) end,
  ["string.rep"] = function() big():rep(1) ("ab"):rep(4 << 20) ("x"):rep(1 << 50) end,
  ["string.reverse"] = function() big():reverse() end,
  ["string.sub"] = function() big():sub(2) end,
  ["string.unpack"] = function() string.unpack(("b"):rep(60000), big()) string.unpack("z", big()) end,
  ["string.upper"] = function() big():upper() end,
  ["supervisor.start"] = function() supervisor.start { children = { { id = "a", "/dev/zero" } } } end,
  ["supervisor.start_child"] = function() supervisor.start_child(me(), { loop }) end,
  ["table.concat"] = function() table.concat(numbers(), ",") table.concat(with("__len", loop)) end,
  ["table.insert"] = function() table.insert(numbers(), 1, 0) table.insert(with("__len", function() return 1 << 26 end), 1, 0) end,
  ["table.move"] = function() table.move(numbers(), 1, 149999, 2) table.move({}, 1, 1 << 26, 2) end,
  ["table.pack"] = function() table.pack(table.unpack(numbers(), 1, 140000)) end,
  ["table.remove"] = function() table.remove(numbers(), 1) table.remove(with("__len", function() return 1 << 26 end), 1) end,
  ["table.sort"] = function()
    table.sort(numbers()) table.sort(tables(), function(a, b) return a[1] > b[1] end) table.sort({ 3, 2, 1 }, loop)
  end,
  ["table.unpack"] = function() table.unpack(numbers(), 1, 140000) table.unpack(deep(), 1, 200000) table.unpack(with("__index", loop), 1, 2) end,
  ["task.all"] = function() task.all { task.spawn(loop) } end,
  ["task.any"] = function() task.any { task.spawn(loop) } end,
  ["task.spawn"] = function() task.spawn(loop):await() end,
  ["time.after"] = function() time.after("1ms", loop) time.sleep("5ms") end,
  ["time.every"] = function() time.every("1ms", loop) time.sleep("5ms") end,
  ["tonumber"] = function() tonumber(("9"):rep(1 << 20)) tonumber(("z"):rep(1 << 20), 36) end,
  ["tostring"] = function() tostring(looping) end,
  ["utf8.char"] = function() local t = {} for i = 1, 100000 do t[i] = 0x7FFFFFFF end utf8.char(table.unpack(t)) end,
  ["utf8.codepoint"] = function() utf8.codepoint(big(), 1, 140000) end,
  ["utf8.codes"] = function() for _ in utf8.codes("a" .. ("\x80"):rep(1 << 20), true) do end end,
  ["utf8.len"] = function() utf8.len(big()) end,
  ["utf8.offset"] = function() utf8.offset(big(), -1000000) utf8.offset(big(), 3000000) end,
  ["work.run"] = function() work.run(function() while true do end end) end,
  ["xpcall"] = function() xpcall(error, loop) end,
  -- operations of the language itself, which are not functions
  ["(concat)"] = function() local s = big() return s .. s end,
  ["(compare)"] = function() return zeros() < zeros() .. "x" end,
  ["(index)"] = function() return ({})[big() .. math.random()] end,
  ["(collector)"] = function() local t = {} while true do t[#t + 1] = { t[#t] } end end,
  ["(rehash)"] = function() local t = {} for i = 1, 1 << 19 do t[i * 3] = true end end,
  ["(call)"] = function() local t = {} setmetatable(t, { __call = t }) t() end,
  ["(call chain)"] = function() local t = type for i = 1, 40000 do t = setmetatable({}, { __call = t }) end t() end,
  ["(call grown)"] = function()
    local t = {} setmetatable(t, { __call = t })
    local function f(n) return n == 0 and 0 or 1 + f(n - 1) end
    f(1500) t()
  end,
  ["(close)"] = function() local c <close> = with("__close", loop) error("x") end,
  ["(recursion)"] = function() local function f() return 1 + f() end f() end,
}

-- Functions without a callback, size, pattern or path: they are called with unusual values.
local plain = [[channel.inbox coroutine.isyieldable coroutine.running coroutine.status coroutine.yield getmetatable math.abs math.acos math.asin
  math.atan math.ceil math.cos math.deg math.exp math.floor math.fmod math.log math.modf math.rad math.random math.randomseed math.sin math.sqrt
  math.tan math.tointeger math.type math.ult os.clock os.difftime os.time process.cancel process.leave process.link process.lookup process.monitor
  process.self process.terminate process.trap process.unlink process.unmonitor process.unregister process.unwatch process.watch rawequal rawget rawset
  runtime.stats runtime.version sim.active sim.fail sim.note string.len supervisor.children supervisor.stop supervisor.stop_child time.cancel time.now
  time.ns time.sleep time.span type]]
for name in plain:gmatch("%S+") do
  rows[name] = function()
    local library, field = name:match("^(.-)%.(.*)$")
    local f = library and _G[library][field] or _G[name]
    for _, value in ipairs { 0, -1, 1 << 62, 0.5, "", "x", "a\0b", {}, loop, looping, true } do pcall(f, value) pcall(f, value, value) end
  end
end

-- Patterns that take long in different places: at the positions of the text, in a captured text, in a set, in the
-- replacement.
rows["(pattern positions)"] = function() ("a"):rep(1400):find(".-.-b") end
rows["(pattern capture)"] = function() ("a"):rep(300000):find("(a-)%1b") end
rows["(pattern set)"] = function() ("a"):rep(300):find("[" .. ("b"):rep(2000000) .. "a]*c") end
rows["(pattern set, one)"] = function() ("a"):rep(300):find("[" .. ("%d"):rep(1000000) .. "a]c") end
rows["(pattern frontier)"] = function() ("a"):rep(300):find("%f[" .. ("b"):rep(2000000) .. "]") end
rows["(pattern balance)"] = function() ("("):rep(1000000):find("%b()") end
rows["(pattern replacement)"] = function() ("x"):rep(200):gsub("(y*)", ("%1"):rep(2500000)) end
rows["(pattern gmatch)"] = function() for _ in ("a"):rep(1400):gmatch(".-.-b") do end end

-- Each way calls `f` again and again without a Lua instruction between two calls; `s` is the first argument of most calls.
local function digits() return keep("digits", function() return ("1"):rep(4 << 20) end) end
local function copies(s, n) local t = {} for i = 1, n do t[i] = s end return t end
local function meta(s) return getmetatable(s) end
local ways = {
  close = function(f, s, e)
    meta(s).__close = f
    local function nest(n) local c <close> = s if n > 0 then return 1 + nest(n - 1) end error(e) end
    nest(3000)
  end,
  coroutine = function(f, s, e)
    meta(s).__close = f
    local function nest(n) local c <close> = s if n > 0 then return 1 + nest(n - 1) end coroutine.yield() end
    local co = coroutine.create(nest) coroutine.resume(co, 800) coroutine.close(co)
  end,
  format = function(f, s) meta(s).__tostring = f string.format(("%s"):rep(990), table.unpack(copies(s, 990))) end,
  print = function(f, s) meta(s).__tostring = f print(table.unpack(copies(s, 3000))) end,
  operands = function(f, s)
    meta(s).__concat = f
    load("local s = ... return " .. ("s .. "):rep(120) .. "nil")(s)
  end,
  unpack = function(f, s) meta(s).__index = f table.unpack(s, 1, 255) end,
  move = function(f, s) meta(s).__index = f table.move(s, 1, 255, 1, {}) end,
  concat = function(f, s) local concat = table.concat meta(s).__index = f concat(s, "", 1, 255) end,
  sort = function(f, s) local t = {} for i = 1, 200 do t[i] = i % 2 == 0 and s or 36 end table.sort(t, f) end,
}
local slow = {
  ["utf8.len"] = utf8.len, ["utf8.offset"] = utf8.offset, ["tonumber"] = tonumber, ["math.floor"] = math.floor, ["math.fmod"] = math.fmod,
  ["math.ult"] = math.ult, ["math.random"] = math.random, ["string.sub"] = string.sub, ["string.find"] = string.find, ["select"] = select,
  ["msgpack.encode"] = msgpack.encode, ["json.decode"] = json.decode, ["blob.new"] = blob.new, ["os.difftime"] = os.difftime,
  ["string.__add"] = getmetatable("").__add, ["string.__unm"] = getmetatable("").__unm, ["require"] = require, ["time.span"] = time.span,
}
for name, f in pairs(slow) do
  rows["(close " .. name .. ")"] = function() ways.close(f, digits(), 4000000) end
end
for way, call in pairs(ways) do
  local fails = way == "operands" and "\xff" or "" -- utf8.len then returns nil, and `..` calls the metamethod again
  rows["(" .. way .. " utf8.len)"] = function() call(utf8.len, keep("utf8", function() return ("a"):rep(4 << 20) .. fails end), 1) end
end
for _, way in ipairs { "coroutine", "format", "print", "operands" } do
  rows["(" .. way .. " tonumber)"] = function() ways[way](tonumber, digits(), 10) end
end
-- functions whose first argument is a table
local function close_table(f, t, e)
  setmetatable(t, { __close = f })
  local function nest(n) local c <close> = t if n > 0 then return 1 + nest(n - 1) end error(e) end
  nest(800)
end
rows["(close utf8 iterator)"] = function() ways.close((utf8.codes("")), keep("tails", function() return "a" .. ("\x80"):rep(4 << 20) end), 1) end
rows["(close index of _G)"] = function() close_table(getmetatable(_G).__index, {}, big()) end
rows["(close index of string)"] = function() close_table(getmetatable(string).__index, {}, big()) end
-- values that string.format converts itself
rows["(format name)"] = function() string.format(("%.1s"):rep(990), table.unpack(copies(setmetatable({}, { __name = big() }), 990))) end
rows["(format cut)"] = function() string.format(("%.1s"):rep(990), table.unpack(copies(big(), 990))) end
rows["(format blob)"] = function() string.format(("%.1s"):rep(990), table.unpack(copies(keep("blob", function() return blob.new(big()) end), 990))) end
rows["(format quoted)"] = function() string.format(("%q"):rep(990), table.unpack(copies(("\r"):rep(1 << 17), 990))) end

return { rows = rows, main = function(name) local f = rows[name] while true do pcall(f) end end }
