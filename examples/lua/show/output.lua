-- output.lua - the output of the show: headings, numbers with commas, and rows.
local output = {}

function output.heading(number, text)
  print(("\n%d. %s"):format(number, text))
end

function output.say(text)
  print("   " .. text)
end

-- Returns the number as a text with commas: 1,234,567.
function output.number(n)
  local text = ("%d"):format(math.floor(n + 0.5))
  local rest
  repeat text, rest = text:gsub("^(-?%d+)(%d%d%d)", "%1,%2") until rest == 0
  return text
end

function output.row(name, value, note)
  print(("   %-26s %14s%s"):format(name, type(value) == "number" and output.number(value) or value, note and "   " .. note or ""))
end

return output
