-- store.lua - a process that keeps values by name, and answers one request at a time.
local function main()
  local values, count = {}, 0
  while true do
    local ask, from = process.receive()
    if ask.get then
      process.reply(from, values[ask.get])
    elseif ask.set then
      if values[ask.set] == nil then count = count + 1 end
      values[ask.set] = ask.to
      process.reply(from, true)
    elseif ask.add then
      local number = math.tointeger(values[ask.add] or 0)
      if number and values[ask.add] == nil then count = count + 1 end
      if number then values[ask.add] = tostring(number + ask.by) end
      if number then process.reply(from, values[ask.add]) else process.reply(from, nil, "not a number") end
    elseif ask.del then
      local was = values[ask.del] ~= nil
      values[ask.del] = nil
      if was then count = count - 1 end
      process.reply(from, was)
    elseif ask.count then
      process.reply(from, count)
    else
      process.reply(from, nil, "unknown request")
    end
  end
end

return { main = main }
