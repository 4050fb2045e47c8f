-- counter.lua - a module that is also a process: adds up, and replies with the sum.
local function main(start)
  local n = start or 0
  while true do
    local message, from = process.receive()
    if message == "get" then process.reply(from, n)
    elseif message[1] == "add" then n = n + message[2] end
  end
end

return { main = main }
