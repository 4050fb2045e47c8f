-- tree.lua - a process that starts two others, until it is a leaf, and adds up their leaves.
local function main(parent, level)
  if level == 0 then return process.send(parent, 1) end
  local leaves = 0
  for _ = 1, 2 do process.spawn("tree", process.self(), level - 1) end
  for _ = 1, 2 do leaves = leaves + process.receive() end
  process.send(parent, leaves)
end

return { main = main }
