-- upgrades.lua - asks to be notified of new code. For lua_no_memory_test.
local function main(state)
  process.upgradable(function() return state end)
  while true do
    local _, from = process.receive()
    assert(process.reply(from, "hello"))
  end
end

return { main = main }
