-- Does not compile.
local function = 1
