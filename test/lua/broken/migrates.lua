-- Its function upgrade fails for any state.
local function main() end
local function upgrade(state)
  error("cannot use " .. state)
end
return { main = main, upgrade = upgrade }
