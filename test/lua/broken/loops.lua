-- Loops for ever when it is loaded.
while true do end
