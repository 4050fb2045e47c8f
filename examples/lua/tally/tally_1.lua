-- tally_1.lua - counts visits. On request it upgrades to the next version, with its state and without losing a visit.
local function main(total)
  while true do
    local message, from = process.receive()
    if message == "total" then process.reply(from, total)
    elseif message == "version" then process.reply(from, 1)
    elseif message == "upgrade" then
      -- process.upgrade() returns only if the upgrade failed; then this version continues.
      local _, why = process.upgrade("tally_2", total, from)
      process.reply(from, nil, why)
    elseif message == "crash" then error("crashed on request", 0)
    else total = total + 1 end
  end
end

return { main = main }
