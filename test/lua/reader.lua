-- reader.lua - reads numbers in order, and upgrades to itself now and then, while some are kept. For lua_upgrade_test.
local function main(me, from, count)
  for n = from, count do
    local message = process.receive()
    if message ~= n then error("got " .. tostring(message) .. " instead of " .. n) end
    if n % 7 == 0 then process.receive({ never = 1 }, 0) end
    if n % 5 == 0 then process.upgrade(nil, me, n + 1, count) end
  end
  process.send(me, "all")
end

return { main = main }
