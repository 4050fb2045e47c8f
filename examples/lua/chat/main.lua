-- main.lua - a chat server: filch run --net examples/lua/chat [ADDRESS]. Talk to it with: nc 127.0.0.1 7000
-- One process holds the room. Each guest has two tasks in it: one reads lines from the client, one writes lines to it.
local room = require("room").new()
local listener = assert(net.listen((...) or "127.0.0.1:7000"))
print("listening on " .. listener:address())

local function read_line(stream)
  local line, why = stream:read_until("\n", 1000)
  return line and line:gsub("%s+$", ""), why
end

local function serve(stream)
  stream:write("your name?\n")
  local name = read_line(stream)
  local lines, why
  if name then lines, why = room:enter(name) end
  if not lines then
    if why then stream:write(why .. "\n") end
    return stream:close()
  end
  local writer = task.spawn(function()
    for line in lines do
      if not stream:write(line .. "\n", "10s") then break end
    end
  end)
  stream:write("welcome, " .. name .. ": " .. room.count .. " here\n")
  local text = read_line(stream)
  while text and text ~= "/quit" do
    room:say(name, text)
    text = read_line(stream)
  end
  room:leave(name)
  writer:await("10s")
  stream:close()
end

while true do
  local stream = listener:accept()
  if stream then task.spawn(serve, stream) end
end
