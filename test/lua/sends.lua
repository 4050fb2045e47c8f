-- sends.lua - sends messages that wait for space until the memory limit refuses one, upgrades, and tries again. For
-- lua_pending_sends_test.
local function fill(to)
  local text, n, why = ("x"):rep(50000), 0, nil
  while not why and n < 100 do
    local t = task.spawn(function()
      local fine, sent, reason = pcall(process.send, to, text)
      if fine and not sent then why = reason end
    end)
    time.sleep(0)
    t:cancel()
    time.sleep(0)
    n = n + 1
  end
  return n - 1, why
end

return { fill = fill, main = function(to, before)
  local n, why = fill(to)
  if before then return { before, n, why } end
  process.upgrade("sends", to, n)
end }
