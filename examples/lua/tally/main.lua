-- main.lua - a counter is upgraded while visits arrive, and loses none of them: filch run examples/lua/tally
local visitors, visits = 10, 100
local top = assert(supervisor.start { children = { { id = "tally", "tally_1", 0, name = "tally" } } })
local pid = process.lookup("tally")

for i = 1, visitors do process.spawn("visitor", process.self(), "visitor " .. i, visits) end
time.sleep(0.02)
print("version", process.request("tally", "version"))
print("upgraded to", process.request("tally", "upgrade"))
for _ = 1, visitors do process.receive(function(message) return message == "done" end) end
print("version", process.request("tally", "version"))
print("visits", process.request("tally", "total"))
print("the same process", process.lookup("tally") == pid)
supervisor.stop(top)
