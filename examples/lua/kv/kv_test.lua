-- kv_test.lua - filch test examples/lua/kv
local protocol = require "protocol"
local tests = {}

function tests.values_are_set_changed_and_deleted()
  local store = process.spawn("store")
  local function ask(line) return protocol.answer(store, line) end
  assert(ask("GET a") == "NONE")
  assert(ask("SET a some words") == "OK" and ask("GET a") == "some words")
  assert(ask("SET a") == "OK" and ask("GET a") == "")
  assert(ask("COUNT") == "1" and ask("DEL a") == "OK" and ask("DEL a") == "NONE" and ask("COUNT") == "0")
  assert(ask("QUIT") == nil)
end

function tests.wrong_commands_get_an_error_reply()
  local store = process.spawn("store")
  for _, line in ipairs { "", "GET", "set a 1", "ADD a x", "ADD a 1.5", "HELLO", ("X"):rep(1000) } do
    assert(protocol.answer(store, line) == "ERROR what is that?", line)
  end
  protocol.answer(store, "SET a words")
  assert(protocol.answer(store, "ADD a 1") == "ERROR not a number")
end

function tests.concurrent_additions_of_two_clients_are_not_lost()
  local store, me = process.spawn("store"), process.self()
  for _ = 1, 2 do
    process.spawn(function()
      for _ = 1, 10 do require("protocol").answer(store, "ADD visits 1") end
      process.send(me, "done")
    end)
  end
  process.receive() process.receive()
  assert(protocol.answer(store, "GET visits") == "20")
end

return tests
