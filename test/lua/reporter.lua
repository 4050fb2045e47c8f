-- reporter.lua - reports its start and end, and fails on request. For lua_supervisor_test.
local function main(parent, id)
  process.send(parent, "+" .. id)
  local fine, why = pcall(function()
    while process.receive() ~= "fail" do end
    error("on request", 0)
  end)
  process.send(parent, "-" .. id)
  if not fine then error(why, 0) end
end

return { main = main }
