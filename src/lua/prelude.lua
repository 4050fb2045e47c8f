-- prelude.lua - the libraries `task` and `channel`, and the timers of `time`: several things at once inside one process.
-- Written in Lua over the few functions of tasks.c; loaded into a process when it first names one of them.
local start, park, wake, current, cancel, inbox = ...

-- When that is, in ns; nil: never, as without a timeout. Whoever waits for more than a century waits for ever.
local function deadline_of(timeout)
  local ns = timeout and time.span(timeout) * 1e9
  if ns and ns < 4e18 then return time.ns() + math.floor(ns) end
end

-- ---- tasks ------------------------------------------------------------------------------------------------------

local Task = {}
Task.__index = Task
Task.__name = "task"

local function finish(t, ...)
  t.results = table.pack(...)
  for i = 1, #t.waiters do wake(t.waiters[i]) end
  -- An error that nobody waits for ends the process.
  if not t.results[1] and #t.waiters == 0 and not t.cancelled then
    error(t.trace or t.results[2], 0)
  end
end

local function spawn(fn, ...)
  if type(fn) ~= "function" then error("bad argument #1 to 'spawn' (function expected, got " .. type(fn) .. ")", 2) end
  local t = setmetatable({ waiters = {} }, Task)
  local function handler(e)
    if type(e) == "string" then t.trace = debug.traceback(e, 2) end
    return e
  end
  t.handle = start(function(...) finish(t, xpcall(fn, handler, ...)) end, ...)
  return t
end

-- What the task returned; its error is raised here. nil, "timeout" when it takes longer.
function Task:await(timeout)
  local deadline = deadline_of(timeout)
  while not self.results do
    self.waiters[#self.waiters + 1] = current()
    if not park(deadline) and not self.results then return nil, "timeout" end
  end
  if not self.results[1] then error(self.results[2], 0) end
  return table.unpack(self.results, 2, self.results.n)
end

-- Raises "cancelled" where the task waits, or at its next wait.
function Task:cancel()
  if self.results then return false end
  self.cancelled = true
  cancel(self.handle)
  return true
end

function Task:status()
  if not self.results then return "running" end
  return self.results[1] and "done" or "failed"
end

local function spawn_all(functions, what)
  local tasks = {}
  if type(functions) ~= "table" or #functions == 0 then error("task." .. what .. " wants a list of functions", 3) end
  for i = 1, #functions do
    tasks[i] = getmetatable(functions[i]) == Task and functions[i] or spawn(functions[i])
    tasks[i].waiters[1] = current()
  end
  return tasks
end

local function cancel_all(tasks)
  for i = 1, #tasks do tasks[i]:cancel() end
end

-- All at once; the first result of each, in order. When one fails the others are cancelled, and its error is raised.
local function all(functions, timeout)
  local tasks = spawn_all(functions, "all")
  local deadline = deadline_of(timeout)
  while true do
    local open = 0
    for i = 1, #tasks do
      local results = tasks[i].results
      if not results then open = open + 1
      elseif not results[1] then cancel_all(tasks) error(results[2], 0) end
    end
    if open == 0 then break end
    if not park(deadline) then
      cancel_all(tasks)
      return nil, "timeout"
    end
  end
  local values = {}
  for i = 1, #tasks do values[i] = tasks[i].results[2] end
  return values
end

-- All at once; which one was first, and its results. The others are cancelled. If all fail, the last error is raised.
local function any(functions, timeout)
  local tasks = spawn_all(functions, "any")
  local deadline = deadline_of(timeout)
  while true do
    local open, failed = 0, nil
    for i = 1, #tasks do
      local results = tasks[i].results
      if not results then open = open + 1
      elseif results[1] then
        cancel_all(tasks)
        return i, table.unpack(results, 2, results.n)
      else failed = results[2] end
    end
    if open == 0 then error(failed, 0) end
    if not park(deadline) then
      cancel_all(tasks)
      return nil, "timeout"
    end
  end
end

-- ---- channels ---------------------------------------------------------------------------------------------------

local Channel = {}
Channel.__index = Channel
Channel.__name = "channel"
local Sending = {}

local function new(capacity)
  capacity = capacity or 0
  if math.type(capacity) ~= "integer" or capacity < 0 then error("a channel's capacity is a whole number", 2) end
  return setmetatable({ capacity = capacity, values = {}, first = 1, last = 0, senders = {}, receivers = {} }, Channel)
end

local function forget(queue, waiter)
  for i = #queue, 1, -1 do
    if queue[i].waiter == waiter then table.remove(queue, i) end
  end
end

local function serve(entry, value, ok)
  local w = entry.waiter
  w.fired, w.index, w.value, w.ok = true, entry.index, value, ok
  wake(w.handle)
end

-- The first in the queue that has not been served elsewhere.
local function next_entry(queue)
  while #queue > 0 do
    local entry = table.remove(queue, 1)
    if not entry.waiter.fired then return entry end
  end
end

local function try_send(ch, value)
  if ch.closed then error("send on a closed channel", 3) end
  local entry = next_entry(ch.receivers)
  if entry then
    serve(entry, value, true)
    return true
  end
  if ch.last - ch.first + 1 < ch.capacity then
    ch.last = ch.last + 1
    ch.values[ch.last] = value
    return true
  end
  return false
end

-- done, value, ok
local function try_receive(ch)
  if ch.last >= ch.first then
    local value = ch.values[ch.first]
    ch.values[ch.first] = nil
    ch.first = ch.first + 1
    local entry = next_entry(ch.senders)
    if entry then
      ch.last = ch.last + 1
      ch.values[ch.last] = entry.value
      serve(entry, nil, true)
    end
    return true, value, true
  end
  local entry = next_entry(ch.senders)
  if entry then
    serve(entry, nil, true)
    return true, entry.value, true
  end
  if ch.closed then return true, nil, false end
  return false
end

-- Tries each case in order; then waits for the first that can go on.
local function select(cases, timeout)
  if type(cases) ~= "table" or #cases == 0 then error("channel.select wants a list of cases", 2) end
  local deadline = deadline_of(timeout)
  local wants_inbox
  local waiter = { handle = current() }
  for i = 1, #cases do
    local case = cases[i]
    local kind = getmetatable(case)
    if case == inbox then
      wants_inbox = i
      local message, from = process.receive(0)
      if not (message == nil and from == "timeout") then return i, message, from end
    elseif kind == Channel then
      local done, value, ok = try_receive(case)
      if done then return i, value, ok end
    elseif kind == Sending then
      if try_send(case.channel, case.value) then return i, nil, true end
    else
      error("case " .. i .. " is no channel", 2)
    end
  end
  local function leave()
    waiter.fired = true
    for i = 1, #cases do
      local case = cases[i]
      local kind = getmetatable(case)
      if kind == Channel then forget(case.receivers, waiter)
      elseif kind == Sending then forget(case.channel.senders, waiter) end
    end
  end
  for i = 1, #cases do
    local case = cases[i]
    local kind = getmetatable(case)
    if kind == Channel then table.insert(case.receivers, { waiter = waiter, index = i })
    elseif kind == Sending then
      table.insert(case.channel.senders, { waiter = waiter, index = i, value = case.value })
    end
  end
  while true do
    local fine, woken = pcall(park, deadline, wants_inbox ~= nil)
    if waiter.fired then
      local index, value, ok = waiter.index, waiter.value, waiter.ok
      leave()
      if ok == "closed" then error("send on a closed channel", 2) end
      return index, value, ok
    end
    if not fine then
      leave()
      error(woken, 0)
    end
    if wants_inbox then
      local message, from = process.receive(0)
      if not (message == nil and from == "timeout") then
        leave()
        return wants_inbox, message, from
      end
    end
    if not woken then
      leave()
      return nil, "timeout"
    end
  end
end

-- true, or nil and "timeout".
function Channel:send(value, timeout)
  if try_send(self, value) then return true end
  local index, why = select({ setmetatable({ channel = self, value = value }, Sending) }, timeout)
  if index == nil then return nil, why end
  return true
end

-- value, true; nil, false when it is closed and empty; nil, "timeout".
function Channel:receive(timeout)
  local done, value, ok = try_receive(self)
  if done then return value, ok end
  local index, got, fine = select({ self }, timeout)
  if index == nil then return nil, got end
  return got, fine
end

function Channel:close()
  if self.closed then return false end
  self.closed = true
  for entry in function() return next_entry(self.receivers) end do serve(entry, nil, false) end
  for entry in function() return next_entry(self.senders) end do serve(entry, nil, "closed") end
  return true
end

-- The case of channel.select that sends.
function Channel:sending(value)
  return setmetatable({ channel = self, value = value }, Sending)
end

-- for value in ch do ... end
function Channel:__call()
  return (self:receive())
end

function Channel:__len()
  return self.last - self.first + 1
end

-- ---- timers ----------------------------------------------------------------------------------------------------

-- A channel that gets the time once, after `span`. Closing it stops the timer.
local function after(span)
  local ch = new(1)
  local t
  span = time.span(span)
  t = spawn(function()
    time.sleep(span)
    if not ch.closed then ch:send(time.now()) end
  end)
  ch.timer = t
  return ch
end

-- A channel that gets the time every `period`; ticks that nobody has read are not added up.
local function every(period)
  local ch = new(1)
  period = time.span(period)
  if period <= 0 then error("time.every wants a period above zero", 2) end
  ch.timer = spawn(function()
    local due = time.now()
    while not ch.closed do
      due = due + period
      time.sleep(math.max(0, due - time.now()))
      if not ch.closed and #ch == 0 then ch:send(time.now()) end
    end
  end)
  return ch
end

-- Stops a timer of time.after or time.every.
local function cancel_timer(ch)
  if getmetatable(ch) ~= Channel or not ch.timer then error("time.cancel wants what time.after or time.every gave", 2) end
  local was = ch.timer:cancel()
  ch:close()
  return was
end

return {
  task = { spawn = spawn, all = all, any = any },
  channel = { new = new, select = select, inbox = inbox },
  time = { after = after, every = every, cancel = cancel_timer },
}
