-- leaks.lua - one round of each feature of the libraries, after which nothing may be left: a leak of one round shows
-- after a thousand. See lua_leaks_test.c.
local leaks = {}
local features = {}

local function server()
  while true do
    local message, from = process.receive()
    if message == "end" then return end
    process.reply(from, message)
  end
end

function features.send_and_receive()
  local me = process.self()
  process.send(me, { 1, { a = "b" } })
  process.send(me, "text")
  assert(process.receive(function(m) return m == "text" end) == "text")
  process.receive()
end

function features.receive_that_times_out()
  local got, why = process.receive(function() return false end, 0)
  assert(got == nil and why == "timeout")
  got, why = process.receive("1us")
  assert(got == nil and why == "timeout")
end

function features.spawn()
  process.spawn(function() process.send("parent", 1) end)
  process.receive()
end

function features.spawn_monitored()
  local pid = process.spawn_monitored(function() return 1 end)
  assert(process.receive({ event = "exit", pid = pid }).result == 1)
end

function features.spawn_linked()
  local pid = process.spawn_linked(function() error("on purpose") end)
  assert(process.receive({ event = "link_down", pid = pid }).error)
end

function features.exec()
  assert(process.exec(function(n) return n + 1 end, 1) == 2)
  assert(process.exec(function() error("on purpose") end) == nil)
end

function features.request(state)
  assert(process.request(state.server, "hello") == "hello")
end

function features.request_to_the_dead(state)
  assert(process.request(state.dead, "hello") == nil)
end

function features.request_that_times_out(state)
  assert(process.request(state.deaf, "hello", "1us") == nil)
end

function features.monitor_and_unmonitor(state)
  local number = assert(process.monitor(state.server))
  assert(process.unmonitor(number))
end

function features.link_and_unlink(state)
  assert(process.link(state.server))
  assert(process.unlink(state.server))
end

function features.names()
  assert(process.register("a name"))
  assert(process.lookup("a name"))
  assert(process.unregister("a name"))
end

function features.groups()
  assert(process.watch("group"))
  assert(process.join("group"))
  process.broadcast("group", 1)
  assert(#process.members("group") == 1)
  assert(process.leave("group"))
  assert(process.unwatch("group"))
  for _ = 1, 3 do process.receive() end
end

function features.tasks()
  assert(task.spawn(function(a) return a end, 5):await() == 5)
  local sleeper = task.spawn(function() time.sleep("1h") end)
  sleeper:cancel()
  assert(not pcall(sleeper.await, sleeper))
end

function features.tasks_together()
  assert(task.all { function() return 1 end, function() time.sleep("1us") return 2 end })
  assert(task.any { function() return 1 end, function() time.sleep("1h") end })
end

function features.channels()
  local ch = channel.new(2)
  ch:send(1)
  ch:send(2)
  assert(ch:receive() == 1 and ch:receive() == 2)
  local none, why = ch:receive(0)
  assert(none == nil and why)
  local straight = channel.new()
  local t = task.spawn(function() straight:send("value") end)
  assert(straight:receive() == "value")
  t:await()
  straight:close()
end

function features.select()
  local a, b = channel.new(1), channel.new(1)
  b:send("b")
  channel.select({ a, b }, "1s")
  channel.select({ a, b }, "1us")
end

function features.timers()
  local once = time.after("1us")
  once:receive()
  time.cancel(time.after("1h"))
  local begun = time.after("1h")
  time.sleep("1us")
  time.cancel(begun)
  local ticks = time.every("10us")
  ticks:receive()
  time.cancel(ticks)
end

function features.short_sleeps()
  time.sleep("1us")
end

function features.blobs()
  local b = blob.new(("x"):rep(1000))
  process.send(process.self(), { b, ("y"):rep(20000) })
  assert(#process.receive()[1] == 1000)
end

function features.formats()
  assert(json.decode(json.encode({ 1, { a = "b" } }))[2].a == "b")
  assert(msgpack.decode(msgpack.encode({ 1, { a = "b" } }))[2].a == "b")
  assert(json.decode("[1,") == nil and msgpack.decode("\x92\1") == nil)
end

function features.work()
  assert(work.run(function(n) return n * 2 end, 4) == 8)
  assert(work.run(function() error("on purpose") end) == nil)
end

function features.upgrades()
  assert(process.exec(function() process.upgrade(load("return 5")) end) == 5)
  assert(process.exec(function() return (pcall(process.upgrade, load("return 5"), coroutine.create(print))) end) == false)
end

function features.long_strings()
  local me, text = process.self(), ("z"):rep(30000)
  process.send(me, text)
  process.send(me, { text, text })
  local got = process.receive()
  process.send(me, { got })
  for i = 1, 20 do process.send(me, tostring(i) .. text) end
  local kept = {}
  for i = 1, 20 do kept[i] = process.receive(function(m) return type(m) == "string" end) end
  for i = 1, 20 do process.send(me, { kept[i], kept[21 - i] }) end
  for i = 1, 20 do assert(process.receive(function(m) return type(m) == "table" and #m == 2 and #m[1] < 30004 and m[1]:sub(1, 1) ~= "z" end)) end
  assert(process.receive()[2] == got and process.receive()[1] == got)
end

function features.modules()
  assert(process.exec("leaf", 3) == 4)
  assert(not pcall(process.exec, "no.such.module"))
end

function features.coroutines()
  local f = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end)
  assert(f() == 1 and f() == 2)
  local co = coroutine.create(function() process.send(process.self(), 1) return (process.receive()) end)
  assert(select(2, coroutine.resume(co)) == 1)
end

function features.errors()
  assert(not pcall(error, { "on purpose" }))
  assert(not pcall(process.send, nil, nil))
  assert(not xpcall(function() local x = nil; return x.y end, function(m) return m end))
end

function features.supervisors()
  local top = assert(supervisor.start { children = { { id = "a", server } } })
  assert(supervisor.children(top))
  assert(supervisor.stop(top))
end

function features.files()
  local file = assert(fs.open("/dev/null", "r+"))
  file:write("x")
  file:close()
  assert(fs.open("/no/such/file") == nil)
end

function features.streams_where_nothing_can_wait()
  local function refused(f)
    local fine, why = pcall(tostring, setmetatable({}, { __tostring = f }))
    assert(not fine and why:find("cannot wait here", 1, true), why)
  end
  refused(function() net.listen("127.0.0.1:0") end)
  refused(function() fs.open("/dev/null") end)
end

function features.sockets(state)
  local listener = assert(net.listen("127.0.0.1:0"))
  local t = task.spawn(function() return (listener:accept()) end)
  local mine = assert(net.connect(listener:address()))
  local other = assert(t:await())
  mine:write("hello\n")
  assert(other:read_until("\n") == "hello\n")
  assert(other:read(10, "1us") == nil)
  mine:close()
  other:close()
  listener:close()
end

leaks.names = {}
for name in pairs(features) do leaks.names[#leaks.names + 1] = name end
table.sort(leaks.names)

-- Runs the feature in `parts` parts of `rounds` rounds each, and prints "measure" after each part, for the test. Fails if every
-- part leaves memory, processes or timers behind: a leak in each round shows in every part, a one-time allocation only in one.
function leaks.run(name, rounds, parts)
  process.register("parent")
  process.trap()
  local state = { server = process.spawn(server), deaf = process.spawn { function() time.sleep("1h") end, mailbox = 100, overflow = "drop_oldest" },
    dead = process.spawn(function() end) }
  while process.alive(state.dead) do time.sleep("1us") end
  local before, least = nil, { bytes = math.huge, alive = math.huge, timers = math.huge }
  for _ = 1, parts do
    for _ = 1, rounds do features[name](state) end
    time.sleep("1ms")
    collectgarbage()
    collectgarbage()
    local stats = runtime.stats()
    local now = { bytes = collectgarbage("count") * 1024, alive = stats.alive, timers = stats.timers }
    print("measure")
    for what, value in pairs(before and now or {}) do least[what] = math.min(least[what], value - before[what]) end
    before = now
  end
  for what, value in pairs(least) do
    if value * 10 > rounds * (what == "bytes" and 80 or 1) then error(("%s: %d %s are left of %d rounds"):format(name, value // 1, what, rounds)) end
  end
  process.terminate(state.server)
  process.terminate(state.deaf)
end

return leaks
