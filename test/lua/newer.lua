-- newer.lua - the new code of the processes of lua_upgrade_test: takes the total of the old code, in thousands.
local function main(total, waiting)
  if waiting then assert(process.reply(waiting, "answered by the new one")) end
  while true do
    local message, from = process.receive()
    if message == "get" then assert(process.reply(from, { "new", total }))
    elseif message == "back" then process.upgrade("older", total // 1000)
    elseif message == "fail" then error("on request", 0)
    elseif type(message) == "table" and message.add then total = total + message.add * 1000 end
  end
end

return { main = main, upgrade = function(total, waiting) return total * 1000, waiting end }
