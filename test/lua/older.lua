-- older.lua - adds up, and upgrades to the code that a message names. For lua_upgrade_test.
local function main(total)
  while true do
    local message, from = process.receive()
    if message == "get" then assert(process.reply(from, { "old", total }))
    elseif message == "answer later" then
      local _, why = process.upgrade("newer", total, from)
      assert(process.reply(from, nil, why))
    elseif type(message) == "table" and message.add then total = total + message.add
    elseif type(message) == "table" and message.upgrade then
      local _, why = process.upgrade(message.upgrade, total)
      assert(process.reply(from, why))
    end
  end
end

return { main = main }
