-- main.lua - a small key-value service: filch run --net examples/lua/kv [ADDRESS]. Talk to it with: nc 127.0.0.1 7001
-- One process stores the values; each connection is a task of the main process.
local protocol = require "protocol"
local store = process.spawn_linked("store")
local listener = assert(net.listen((...) or "127.0.0.1:7001"))
print("listening on " .. listener:address())

local function serve(stream)
  while true do
    local line = stream:read_until("\n", 65536)
    local answer = line and protocol.answer(store, (line:gsub("[\r\n]+$", "")))
    if not answer or not stream:write(answer .. "\n", "10s") then return stream:close() end
  end
end

while true do
  local stream = listener:accept()
  if stream then task.spawn(serve, stream) end
end
