-- Wants to act before it is there.
process.send(process.self(), "I am here")
return { main = function() end }
