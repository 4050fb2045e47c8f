-- visitor.lua - visits a number of times, and reports when it is done.
local function main(boss, name, visits)
  for _ = 1, visits do
    process.send("tally", { visitor = name })
    time.sleep(math.random() / 1000)
  end
  process.send(boss, "done")
end

return { main = main }
