-- workers_test.lua - filch test examples/lua/workers
local tests = {}

local function crash(keeper)
  local worker = process.request(keeper, "who")
  process.send(worker, { number = 1, by = 0 })
  while process.alive(worker) do time.sleep(0.001) end
end

function tests.a_worker_that_fails_is_replaced_by_another()
  local keeper = process.spawn("keeper", 1, 10)
  local before = process.request(keeper, "who")
  crash(keeper)
  while process.request(keeper, "restarts") < 1 do time.sleep(0.001) end
  local after = process.request(keeper, "who")
  assert(before ~= after)
  assert(process.request(after, { number = 7, by = 2 }) == 3)
end

function tests.too_many_failures_end_the_keeper()
  local keeper = process.spawn_monitored("keeper", 2, 2)
  for _ = 1, 3 do crash(keeper) end
  local ended = process.receive({ event = "exit", pid = keeper }, "1m")
  assert(ended and ended.error:find("too many restarts: 3", 1, true))
end

return tests
