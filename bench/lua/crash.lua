-- crash.lua - many supervised processes, of which one in ten crashes at the same time: measures how long the others take to
-- reply before, during and after that. Run by crash.c: returns lines "name value".
local total, crashes, storms, period_us = ...
local size = 100 -- children of one supervisor
local me = process.self()

local function worker()
  while true do
    local message, from = process.receive()
    if message == "crash" then error("crashed on request", 0) end
    process.reply(from, message)
  end
end

-- Sends a request to one of `others` in each period, and records the time from the due time of the request to its
-- answer. If a slow answer delays the next request, this delay counts too. Replies to "report" with the records.
local function probe(others, period_ns)
  local samples, due, count = {}, time.ns(), #others
  while true do
    due = due + period_ns
    local order, from = process.receive(math.max(0, due - time.ns()) / 1e9)
    if order then
      process.reply(from, samples)
      samples, due = {}, time.ns()
    else
      assert(process.request(others[math.random(count)], 1, "1m") == 1)
      samples[#samples + 1] = time.ns() - due
    end
  end
end

-- ---- the processes ------------------------------------------------------------------------------------------------------

local began = time.now()
local teams = {}
for first = 1, total, size do
  local children = {}
  for i = first, math.min(first + size - 1, total) do children[#children + 1] = { worker } end
  teams[#teams + 1] = { supervisor = { intensity = 10000, children = children } }
end
local top = assert(supervisor.start { intensity = 10, children = teams })
local start_ms = (time.now() - began) * 1000
teams = nil
collectgarbage() -- keeps the heap of this process small, so that its collections do not delay other processes

-- Returns the processes that will crash ("doomed", every n-th), or the others. Runs in a new process, so that its memory is freed.
local function choose(what)
  return process.exec { function()
    local chosen, n, every = {}, 0, total // crashes
    for _, team in ipairs(supervisor.children(top)) do
      for _, child in ipairs(supervisor.children(team.pid)) do
        n = n + 1
        local doomed = n % every == 0
        if doomed == (what == "doomed") and (not doomed or #chosen < crashes) then chosen[#chosen + 1] = child.pid end
      end
    end
    return chosen
  end, memory = "1GB" }
end

-- ---- the storms -------------------------------------------------------------------------------------------------------

local prober = process.spawn(probe, assert(choose("calm")), period_us * 1000)
local reports = {}

-- Gets the records that the prober has made since the last call. Keeps them under the name `phase`; drops them if
-- `phase` is nil.
local function collect(phase)
  local samples = assert(process.request(prober, "report", "1m"))
  if phase then reports[#reports + 1] = { phase = phase, samples = samples } end
end

local storm_ms = 0
for _ = 1, storms do
  local doomed = assert(choose("doomed")) -- chosen again, because the processes that crashed were replaced by new ones
  collectgarbage()
  collect()
  time.sleep(0.5)
  collect("before")
  local stats = runtime.stats()
  local failed, spawned = stats.failed + crashes, stats.spawned + crashes
  began = time.now()
  for i = 1, #doomed do process.send(doomed[i], "crash") end
  repeat
    time.sleep(0.0005)
    stats = runtime.stats()
  until stats.failed >= failed and stats.spawned >= spawned
  storm_ms = storm_ms + (time.now() - began) * 1000
  collect("during")
  time.sleep(0.5)
  collect("after")
end
process.terminate(prober)

local alive = process.exec(function()
  local n = 0
  for _, team in ipairs(supervisor.children(top)) do
    for _, child in ipairs(supervisor.children(team.pid)) do n = n + (child.running and 1 or 0) end
  end
  return n
end)
assert(alive == total, ("%d of %d processes are running"):format(alive, total))

-- ---- the results --------------------------------------------------------------------------------------------------------

local lines = {}
local function line(name, value) lines[#lines + 1] = ("%s %.3f"):format(name, value) end
line("start_ms", start_ms)
line("storm_ms", storm_ms / storms)
for _, phase in ipairs { "before", "during", "after" } do
  local samples = {}
  for _, report in ipairs(reports) do
    if report.phase == phase then table.move(report.samples, 1, #report.samples, #samples + 1, samples) end
  end
  table.sort(samples)
  line(phase .. "_samples", #samples)
  for name, share in pairs { p50 = 0.5, p99 = 0.99, max = 1 } do
    line(phase .. "_" .. name .. "_us", samples[math.max(1, math.ceil(#samples * share))] / 1000)
  end
end
supervisor.stop(top)
return table.concat(lines, "\n")
