-- pool.lua - a pool of workers under a supervisor: a failed worker is restarted, until there are too many failures.
local pool = {}

function pool.start(count, restarts_max)
  local children = {}
  for i = 1, count do children[i] = { id = "worker " .. i, "worker" } end
  return supervisor.start { name = "pool", intensity = restarts_max, period = "10s", children = children }
end

-- Sends the division to one of the workers. Returns the quotient, or nil and the reason if the worker fails.
function pool.divide(number, by)
  local workers = process.members("workers")
  if #workers == 0 then return nil, "no worker is there" end
  return process.request(workers[math.random(#workers)], { number = number, by = by })
end

function pool.restarts()
  local sum = 0
  for _, child in ipairs(supervisor.children("pool")) do sum = sum + child.restarts end
  return sum
end

return pool
