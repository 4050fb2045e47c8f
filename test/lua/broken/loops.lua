-- Never comes to its end.
while true do end
