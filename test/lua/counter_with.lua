-- counter_with.lua - a module that calls what it is given.
return { main = function(f) return f() end }
