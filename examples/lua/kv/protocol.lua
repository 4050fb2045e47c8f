-- protocol.lua - each request and each reply is one line: SET name value, GET name, ADD name number, DEL name, COUNT, QUIT.
local protocol = {}

-- Asks the process `store` for the answer to the request `line`, and returns the answer; nil for QUIT.
function protocol.answer(store, line)
  local verb, name, rest = line:match("^(%u+) ?(%S*) ?(.*)$")
  if verb == "QUIT" then return nil end
  local ask
  if verb == "GET" and name ~= "" then ask = { get = name }
  elseif verb == "SET" and name ~= "" then ask = { set = name, to = rest }
  elseif verb == "DEL" and name ~= "" then ask = { del = name }
  elseif verb == "ADD" and name ~= "" and math.tointeger(tonumber(rest)) then ask = { add = name, by = math.tointeger(tonumber(rest)) }
  elseif verb == "COUNT" then ask = { count = true }
  else return "ERROR what is that?" end
  local answer, why = process.request(store, ask)
  if why then return "ERROR " .. why end
  if answer == nil or answer == false then return "NONE" end
  return answer == true and "OK" or tostring(answer)
end

return protocol
