-- room.lua - the guests and the lines they get. Each guest has a channel of lines; a guest that does not read misses some.
local Room = {}
Room.__index = Room

local function new()
  return setmetatable({ guests = {}, count = 0 }, Room)
end

-- Sends a line to all guests but `except`. If the channel of a guest is full, that guest misses the line and the others do not wait.
function Room:send_all(line, except)
  for name, lines in pairs(self.guests) do
    if name ~= except and lines:room() > 0 then lines:send(line) end
  end
end

-- Returns the channel of lines for the guest; nil and the reason if the name is not accepted.
function Room:enter(name)
  if not name:match("^%w+$") then return nil, "a name has letters and digits" end
  if self.guests[name] then return nil, name .. " is taken" end
  self:send_all("* " .. name .. " has come in")
  self.guests[name] = channel.new(100)
  self.count = self.count + 1
  return self.guests[name]
end

function Room:say(name, text)
  self:send_all(name .. ": " .. text, name)
end

function Room:leave(name)
  self.guests[name]:close()
  self.guests[name] = nil
  self.count = self.count - 1
  self:send_all("* " .. name .. " has left")
end

return { new = new }
