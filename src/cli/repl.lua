-- repl.lua - the process behind `filch repl`: evaluates what the terminal sends, and tells it how that went.
-- The terminal is a process too: it sends { text }, and gets "done", "failed", or "more" when a piece is not whole yet.
local evaluate

-- What an expression or statement gives: true and its values, or false and the error. "more": it is not finished.
function evaluate(text)
  local chunk, wrong = load("return " .. text, "=line")
  if not chunk then
    local why
    chunk, why = load(text, "=line")
    if not chunk then
      if why:find("<eof>", 1, true) or wrong:find("<eof>", 1, true) then return "more" end
      -- Of something that cannot be a statement, tell what is wrong with the expression.
      return false, why:find("unexpected symbol", 1, true) and wrong or why
    end
  end
  return xpcall(chunk, function(e)
    return type(e) == "string" and debug.traceback(e, 3):gsub("\n[^\n]*'xpcall'.*$", "") or e
  end)
end

local function show(value, depth)
  if type(value) == "string" then return string.format("%q", value) end
  if type(value) ~= "table" or depth > 2 then return tostring(value) end
  local parts, length = {}, #value
  for i = 1, math.min(length, 20) do parts[#parts + 1] = show(value[i], depth + 1) end
  for k, v in pairs(value) do
    if not (math.type(k) == "integer" and k >= 1 and k <= length) then
      local key = type(k) == "string" and k:match("^[%a_][%w_]*$") or "[" .. show(k, depth + 1) .. "]"
      parts[#parts + 1] = key .. " = " .. show(v, depth + 1)
    end
    if #parts >= 40 then parts[#parts + 1] = "..." break end
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

local function answer(fine, ...)
  if fine == "more" then return "more" end
  local values = table.pack(...)
  if not fine then
    print("error: " .. (type(values[1]) == "string" and values[1] or show(values[1], 0)))
    return "failed"
  end
  for i = 1, values.n do values[i] = show(values[i], 0) end
  if values.n > 0 then print(table.concat(values, "\t")) end
  return "done"
end

while true do
  local fine, text, terminal = pcall(process.receive, function(m) return type(m) == "string" and m:sub(1, 1) == "\1" end)
  -- A cancel that came too late for the last line interrupts the waiting for the next: there is nothing to interrupt.
  -- Without memory for the answer the terminal would wait for ever: then this process ends, and it hears of that.
  if fine then assert(process.send(terminal, answer(evaluate(text:sub(2))))) end
end
