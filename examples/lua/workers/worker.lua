-- worker.lua - divides; its supervisor restarts it after a failure.
local function main()
  process.join("workers")
  while true do
    local job, from = process.receive()
    if job.by == 0 then error("cannot divide " .. job.number .. " by zero") end
    process.reply(from, job.number // job.by)
  end
end

return { main = main }
