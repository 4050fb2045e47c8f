-- workers_test.lua - filch test examples/lua/workers
local pool = require "pool"
local tests = {}

local function wait_for(count)
  while #process.members("workers") ~= count do time.sleep(0.001) end
end

function tests.a_failed_worker_is_replaced()
  local top = assert(pool.start(1, 10))
  wait_for(1)
  local before = process.members("workers")[1]
  assert(pool.divide(1, 0) == nil)
  repeat time.sleep(0.001) until process.members("workers")[1] and process.members("workers")[1] ~= before
  assert(pool.divide(7, 2) == 3 and pool.restarts() == 1)
  supervisor.stop(top)
  assert(#process.members("workers") == 0)
end

function tests.too_many_failures_end_the_pool_and_its_starter()
  local starter = process.spawn_monitored(function()
    assert(require("pool").start(2, 2))
    process.receive()
  end)
  for _ = 1, 3 do
    wait_for(2)
    pool.divide(1, 0)
  end
  local ended = process.receive({ event = "exit", pid = starter }, "1m")
  assert(ended and ended.error, "it lives on")
  wait_for(0)
end

return tests
