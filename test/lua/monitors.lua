-- monitors.lua - makes monitors until the memory limit refuses one, upgrades, and tries again. For lua_relations_test.
local function fill(pid)
  local n = 0
  while process.monitor(pid) do n = n + 1 end
  return n
end

return { main = function(pid, before)
  local n = fill(pid)
  if before then return { before, n } end
  process.upgrade("monitors", pid, n)
end }
