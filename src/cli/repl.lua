-- repl.lua - the process behind `filch repl` that evaluates lines. The terminal process sends a string, "\1" and the text, and
-- gets the reply "done", "failed", or "more" if the text is not complete.
local evaluate

-- Evaluates an expression or statements. Returns true and the values, false and the error, or "more" if the text is not complete.
function evaluate(text)
  local chunk, wrong = load("return " .. text, "=line")
  if not chunk then
    local why
    chunk, why = load(text, "=line")
    if not chunk then
      if why:find("<eof>", 1, true) or wrong:find("<eof>", 1, true) then return "more" end
      -- If the text cannot be a statement, returns the error of the text as an expression.
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
  -- A cancel that arrives after a line has ended interrupts this receive; then `fine` is false, and the loop receives again.
  -- If there is no memory for the reply, this process ends, so that the terminal process does not wait for ever.
  if fine then assert(process.send(terminal, answer(evaluate(text:sub(2))))) end
end
