-- hello.lua - the first program: one process greets three times, then ends.
local greeter = process.spawn(function()
  for i = 1, 3 do print("hello, " .. process.receive()) end
end)
for _, name in ipairs { "world", "moon", "sun" } do process.send(greeter, name) end
