-- main.lua - workers that fail and are started again: filch run examples/lua/workers
local keeper = process.spawn("keeper", 2, 10)

local function divide(number, by)
  local worker = process.request(keeper, "who")
  return process.request(worker, { number = number, by = by })
end

for _, by in ipairs { 2, 0, 3, 0, 4 } do
  local answer, why = divide(12, by)
  print("12 / " .. by, answer or why)
end
-- The keeper learns of an end by a message of its own: it may be a moment behind us.
while process.request(keeper, "restarts") < 2 do time.sleep(0.001) end
print("restarts", 2)
process.cancel(keeper)
