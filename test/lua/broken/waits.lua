-- Calls process functions while it is loaded, before it runs as a process.
process.send(process.self(), "I am here")
return { main = function() end }
