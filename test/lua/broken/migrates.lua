-- Cannot use the state that it is given.
local function main() end
local function upgrade(state)
  error("cannot use " .. state)
end
return { main = main, upgrade = upgrade }
