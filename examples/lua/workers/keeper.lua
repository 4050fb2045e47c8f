-- keeper.lua - keeps a number of workers running: one that fails is started again, until it has happened too often.
local function main(count, restarts_max)
  local workers, restarts = {}, 0
  local function start(place)
    workers[place] = process.spawn_monitored("worker", process.self())
    process.receive({ hello = true })
  end
  for place = 1, count do start(place) end
  local turn = 0
  while true do
    local message, from = process.receive()
    if message == "who" then
      turn = turn % count + 1
      process.reply(from, workers[turn])
    elseif message == "restarts" then
      process.reply(from, restarts)
    elseif message.event == "exit" then
      restarts = restarts + 1
      if restarts > restarts_max then error("too many restarts: " .. restarts) end
      for place = 1, count do
        if workers[place] == message.pid then start(place) end
      end
    end
  end
end

return { main = main }
