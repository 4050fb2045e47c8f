-- waits.lua - upgrades while tasks sleep and wait for answers. For lua_upgrade_test.
local function after(me, mute)
  process.send(me, "new")
  for i = 1, 5 do
    local answer = process.request(mute, "new " .. i)
    if answer ~= "new " .. i then error("answered " .. tostring(answer)) end
  end
  for _ = 1, 10 do time.sleep(0.01) end
  -- No event for the old code has arrived.
  local message = process.receive()
  error("got " .. tostring(message))
end

local function main(me, mute)
  for i = 1, 3 do
    task.spawn(function() process.request(mute, i) end)
    task.spawn(function() time.sleep(i / 100) end)
  end
  time.sleep(0.005)
  process.upgrade(after, me, mute)
end

return { main = main }
