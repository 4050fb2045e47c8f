-- tally_2.lua - counts visits by visitor. `upgrade` makes its state from that of the first version.
local function main(state, waiting)
  if waiting then process.reply(waiting, 2) end
  while true do
    local message, from = process.receive()
    if message == "total" then process.reply(from, state.total)
    elseif message == "version" then process.reply(from, 2)
    elseif message == "visitors" then process.reply(from, state.visitors)
    elseif message == "crash" then error("crashed on request", 0)
    else
      state.total = state.total + 1
      state.visitors[message.visitor] = (state.visitors[message.visitor] or 0) + 1
    end
  end
end

local function upgrade(total, waiting)
  return { total = total, visitors = {} }, waiting
end

return { main = main, upgrade = upgrade }
