-- tally_test.lua - filch test examples/lua/tally
local tests = {}

local function start()
  return assert(supervisor.start { children = { { id = "tally", "tally_1", 0, name = "tally" } } })
end

local function visit(count, visits)
  for i = 1, count do process.spawn("visitor", process.self(), "visitor " .. i, visits) end
end

local function wait_for(count)
  for _ = 1, count do process.receive(function(message) return message == "done" end) end
end

function tests.no_visit_is_lost_in_an_upgrade_at_any_time()
  local top = start()
  visit(3, 5)
  time.sleep(math.random() / 200)
  assert(process.request("tally", "upgrade") == 2)
  wait_for(3)
  assert(process.request("tally", "total") == 15)
  supervisor.stop(top)
end

function tests.counts_of_the_second_version_add_up()
  local top = start()
  assert(process.request("tally", "upgrade") == 2)
  visit(2, 4)
  wait_for(2)
  local seen = process.request("tally", "visitors")
  assert(seen["visitor 1"] == 4 and seen["visitor 2"] == 4)
  supervisor.stop(top)
end

-- A supervisor restarts a child from its specification. The specification of `tally` names the first version, which can
-- be upgraded again.
function tests.a_crashed_tally_restarts_with_the_first_version()
  local top = start()
  assert(process.request("tally", "upgrade") == 2)
  local before = process.lookup("tally")
  process.send("tally", "crash")
  repeat time.sleep(0.001) until process.lookup("tally") and process.lookup("tally") ~= before
  assert(process.request("tally", "version") == 1 and process.request("tally", "total") == 0)
  assert(process.request("tally", "upgrade") == 2)
  supervisor.stop(top)
end

return tests
