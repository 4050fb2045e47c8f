-- room_test.lua - filch test examples/lua/chat
local room = require "room"
local tests = {}

function tests.a_guest_gets_the_lines_of_others_but_not_its_own()
  local r = room.new()
  local ann, bob = r:enter("ann"), nil
  bob = r:enter("bob")
  assert(ann:receive() == "* bob has come in")
  r:say("ann", "hello")
  assert(bob:receive() == "ann: hello" and #ann == 0)
  r:leave("ann")
  assert(bob:receive() == "* ann has left" and r.count == 1)
end

function tests.names_are_checked()
  local r = room.new()
  assert(r:enter("ann"))
  assert(select(2, r:enter("ann")) == "ann is taken")
  assert(r:enter("a b") == nil and r:enter("") == nil and r.count == 1)
end

function tests.a_guest_that_does_not_read_delays_no_other()
  local r = room.new()
  r:enter("deaf")
  local ann = r:enter("ann")
  for i = 1, 1000 do r:say("bob", tostring(i)) end
  assert(ann:receive() == "bob: 1" and r.guests.deaf and #r.guests.deaf == 100)
end

return tests
