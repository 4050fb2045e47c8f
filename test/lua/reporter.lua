-- told.lua - reports its start and end, and fails on request. For lua_supervisor_test.
local function main(whom, who)
  process.send(whom, "+" .. who)
  local fine, why = pcall(function()
    while process.receive() ~= "fail" do end
    error("told to", 0)
  end)
  process.send(whom, "-" .. who)
  if not fine then error(why, 0) end
end

return { main = main }
