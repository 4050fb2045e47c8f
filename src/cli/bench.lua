-- bench.lua - the marks of `filch bench`. Each runs `count` operations and returns how many nanoseconds they took.
local marks = {}

local function echo()
  while true do
    local message, from = process.receive()
    process.send(from, message)
  end
end

-- Sends `message` back and forth between two processes `count` times.
local function pingpong(count, message)
  local peer = process.spawn(echo)
  local send, receive = process.send, process.receive
  local began = time.ns()
  for _ = 1, count do
    send(peer, message)
    receive()
  end
  local took = time.ns() - began
  process.terminate(peer)
  return took
end

function marks.pingpong_int(count) return pingpong(count, 1) end

function marks.pingpong_table(count)
  return pingpong(count, { id = 17, name = "a name", price = 2.5, open = true, tags = { "a", "b" } })
end

-- Passes a token around a ring of 100 processes.
function marks.ring(count)
  local size, me = 100, process.self()
  local function node()
    local next = process.receive()
    while true do
      local token = process.receive()
      process.send(next, token - 1)
    end
  end
  local nodes = { me }
  for i = 2, size do nodes[i] = process.spawn(node) end
  for i = 2, size do process.send(nodes[i], nodes[i % size + 1]) end
  local began = time.ns()
  local token = count
  while token > 0 do
    process.send(nodes[2], token - 1)
    token = process.receive()
  end
  local took = time.ns() - began
  for i = 2, size do process.terminate(nodes[i]) end
  return took
end

-- Starts processes that end at once, a hundred at a time.
function marks.spawn(count)
  local me = process.self()
  local function child() process.send(me, true) end
  local began, left = time.ns(), count
  while left > 0 do
    local batch = math.min(left, 100)
    for _ = 1, batch do process.spawn(child) end
    for _ = 1, batch do process.receive() end
    left = left - batch
  end
  return time.ns() - began
end

-- Starts processes that wait for a message. bench.c measures their memory after this function has returned.
function marks.idle_bytes(count)
  local me = process.self()
  local function child()
    process.send(me, true)
    process.receive()
  end
  for i = 1, count do
    process.spawn(child)
    if i % 100 == 0 then for _ = 1, 100 do process.receive() end end
  end
  return 0
end

return marks
