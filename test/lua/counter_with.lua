-- counter_with.lua - a module that calls its argument.
return { main = function(f) return f() end }
