-- counter.lua - counts, and upgrades to its second version on request.
local function second(count)
  while true do
    local message, from = process.receive()
    if message == "how many?" then process.reply(from, { count, 2 }) else count = count + message end
  end
end

local function main(count)
  while true do
    local message, from = process.receive()
    if message == "upgrade" then process.upgrade(second, count)
    elseif message == "how many?" then process.reply(from, { count, 1 })
    else count = count + message end
  end
end

return { main = main }
