-- main.lua - what Filch does, seen from Lua, in a few seconds: `./dev run`, or filch run examples/lua/show [quick].
-- Many processes; work stealing; a crash and its restart; new code; endless loops that do not delay other processes; the counters.
local output = require "output"
local quick = ... == "quick"
local began = time.now()

local function since(start)
  return ("%.2f s"):format(time.now() - start)
end

local function check(holds, what)
  if not holds then error(what, 2) end
end

-- ---- 1 ----------------------------------------------------------------------------------------------------------------

local count = quick and 500 or 20000
output.heading(1, "Many processes")
output.say("Each process has its own memory, waits for a message, replies to it, and ends.")
local start, me, all = time.now(), process.self(), {}
for i = 1, count do
  all[i] = process.spawn(function(number)
    local question = process.receive()
    process.send(me, question * number)
  end, i)
end
output.row("processes", runtime.stats().alive - 1, "started in " .. since(start))
start = time.now()
local sum = 0
for i = 1, count do process.send(all[i], 2) end
for _ = 1, count do sum = sum + process.receive() end
check(sum == count * (count + 1), "an answer is missing")
output.row("answers", count, "in " .. since(start))

-- ---- 2 ----------------------------------------------------------------------------------------------------------------

output.heading(2, "Work that moves to idle workers")
output.say("A tree of processes grows on one worker. The other workers are idle, and steal half of its queue.")
local before = runtime.stats()
start = time.now()
local depth = quick and 6 or 12
process.spawn("tree", me, depth)
check(process.receive() == 2 ^ depth, "a leaf is missing")
local after = runtime.stats()
output.row("processes", after.spawned - before.spawned, "in " .. since(start))
output.row("workers", after.workers)
output.row("steals", after.steals - before.steals, output.number(after.stolen - before.stolen) .. " processes moved")

-- ---- 3 ----------------------------------------------------------------------------------------------------------------

output.heading(3, "A crash, and a restart")
output.say("A worker fails at every fourth job. Its supervisor starts another one under the same name.")
local function worker()
  for done = 1, math.huge do
    local job, from = process.receive()
    if done % 4 == 0 then error("job " .. job .. " broke me", 0) end
    process.reply(from, job)
  end
end
local top = assert(supervisor.start { intensity = 5, children = { { id = "worker", worker, name = "worker" } } })
local finished = 0
for job = 1, 10 do
  local pid = process.lookup("worker")
  if process.request(pid, job) then
    finished = finished + 1
  else
    while (process.lookup("worker") or pid) == pid do time.sleep(0.001) end
    output.say(("job %d was not done, and the worker is restarted"):format(job))
  end
end
check(finished == 8, "a job is missing")
output.row("jobs done", finished, supervisor.children(top)[1].restarts .. " restarts")
check(supervisor.children(top)[1].restarts == 2, "the worker was not restarted")
supervisor.stop(top)

-- ---- 4 ----------------------------------------------------------------------------------------------------------------

output.heading(4, "New code for a running process")
output.say("A counter switches to other code. It keeps its pid, its messages and its count.")
local counter = process.spawn("counter", 0)
for _ = 1, 1000 do process.send(counter, 1) end
process.send(counter, "upgrade")
for _ = 1, 1000 do process.send(counter, 1) end
local count_now, version = table.unpack(process.request(counter, "how many?"))
check(count_now == 2000 and version == 2, "the counter has lost messages")
output.row("counted", count_now, "by version " .. version .. " at the end")
process.terminate(counter)
while process.alive(counter) do time.sleep(0.001) end

-- ---- 5 ----------------------------------------------------------------------------------------------------------------

output.heading(5, "Endless loops that do not block others")
local loops = runtime.stats().workers + 1
output.say(("%d processes loop for ever, more than there are workers. A clock ticks beside them."):format(loops))
local runaways = {}
for i = 1, loops do
  -- The quick show also runs under the thread sanitizer, which delivers signals only in calls of C functions. So the
  -- loops of the quick show call a C function.
  runaways[i] = process.spawn(quick and function() while true do time.ns() end end or function() while true do end end)
end
local ticks, late = quick and 5 or 40, 0
for _ = 1, ticks do
  local due = time.now() + 0.01
  time.sleep(0.01)
  late = math.max(late, time.now() - due)
end
for i = 1, loops do process.terminate(runaways[i]) end
output.row("ticks", ticks, ("the latest by %.1f ms"):format(late * 1000))
local interrupted = runtime.stats().interrupted
check(interrupted > 0, "no loop was interrupted")
output.row("steps interrupted", interrupted)
for i = 1, loops do
  while process.alive(runaways[i]) do time.sleep(0.001) end
end

-- ---- 6 ----------------------------------------------------------------------------------------------------------------

-- A process counts as alive until its slot is free, a moment after process.alive returns false.
for _ = 1, 1000 do
  if runtime.stats().alive == 1 then break end
  time.sleep(0.001)
end
local s = runtime.stats()
output.heading(6, "The counters of the scheduler")
output.row("processes", s.spawned, output.number(s.failed) .. " failed or were ended, " .. s.alive .. " alive")
output.row("steps", s.steps)
output.row("messages", s.sent, s.undelivered .. " undelivered")
output.row("steals", s.steals, output.number(s.stolen) .. " processes moved")
output.row("sleeps of workers", s.sleeps)
check(s.alive == 1, "a process is left over")
print(("\nAll checks passed. It took %.1f s."):format(time.now() - began))
