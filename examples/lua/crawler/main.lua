-- main.lua - crawls a small web with three processes at a time: filch run examples/lua/crawler [LIMIT]
local limit = tonumber((...)) or 3
local found, failed, peak = require("crawler").crawl("home", limit)
print(#found .. " pages: " .. table.concat(found, ", "))
for _, page in ipairs { "broken", "missing" } do print(page .. " failed: " .. failed[page]) end
print("at most " .. peak .. " at once")
