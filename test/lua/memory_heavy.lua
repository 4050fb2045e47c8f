-- memory_heavy.lua - uses most of 100 KB from its start, so that messages do not fit. For lua_upgrade_test.
local held = {}
for i = 1, 30 do held[i] = ("y"):rep(2000) .. i end
return { main = function() process.receive({ never = held[1] }) end }
