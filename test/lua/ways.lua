-- ways.lua - calls process.upgrade in each context: pcall, coroutine, task, sort, __close. For lua_upgrade_test.
local ways = {}

local function as(me, what)
  process.send(me, what)
  time.sleep(0.05)
  return "ended as " .. what
end

function ways.plain(_, go) go() end

function ways.protected(me, go)
  pcall(pcall, go)
  process.send(me, "caught it")
end

function ways.coroutine(_, go)
  coroutine.wrap(function() coroutine.wrap(go)() end)()
end

function ways.in_task(me, go)
  task.spawn(go)
  time.sleep(1)
  process.send(me, "slept on")
end

function ways.sort(_, go) table.sort({ 2, 1 }, go) end

function ways.closing(me, go)
  local guard <close> = setmetatable({}, { __close = function() process.send(me, "closed") end })
  go(guard)
end

function ways.others(me, go)
  task.spawn(function()
    time.sleep(0.01)
    process.send(me, "the task lives")
  end)
  go()
end

local function main(me, name)
  ways[name](me, function() process.upgrade(as, me, name) end)
end

return { main = main }
