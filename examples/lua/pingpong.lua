-- pingpong.lua - two processes and a ball. Shows arguments, answering the sender, and waiting for a result.
local rounds = tonumber((...)) or 3

-- Hits the ball back until the message "catch" arrives. The returned text is the result of the process.
local function player(name)
  local hits = 0
  while true do
    local ball, from = process.receive()
    if ball == "catch" then return name .. " hit the ball " .. hits .. " times" end
    hits = hits + 1
    print(name, ball)
    process.send(from, ball + 1)
  end
end

local pong = process.spawn { player, "pong", monitor = true }
process.send(pong, 1)
for _ = 1, rounds - 1 do
  local ball = process.receive()
  print("ping", ball)
  process.send(pong, ball + 1)
end
process.receive()
process.send(pong, "catch")

-- The end of a monitored process arrives as a message.
print(process.receive({ event = "exit", pid = pong }).result)
