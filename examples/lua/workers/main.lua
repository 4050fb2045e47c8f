-- main.lua - workers that fail and are restarted: filch run examples/lua/workers
local pool = require "pool"

local top = assert(pool.start(2, 10))
while #process.members("workers") < 2 do time.sleep(0.001) end

for _, by in ipairs { 2, 0, 3, 0, 4 } do
  local answer, why = pool.divide(12, by)
  print("12 / " .. by, answer or why)
  -- If the division failed, waits until the supervisor has restarted the worker.
  while #process.members("workers") < 2 do time.sleep(0.001) end
end
print("restarts", pool.restarts())
supervisor.stop(top)
