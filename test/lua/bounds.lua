-- bounds.lua - boundary values of every format of the codecs, compared with independent codecs written in Lua.
local bounds = {}

local sizes = { 0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1024, 16384, 65535, 65536 }

-- Floats, and the whole numbers next to every power of two, positive and negative.
local numbers = { 0.0, 0.5, 1 / 3, -1.25, 1e15, 1e16, 1e300, -1e-300, math.pi, 2.0 ^ 53, 2.0 ^ 53 + 2, 2.0 ^ 63, -2.0 ^ 63, 2.0 ^ 64 }
for bit = 0, 62 do
  for off = -1, 1 do
    numbers[#numbers + 1] = (1 << bit) + off
    numbers[#numbers + 1] = -(1 << bit) + off
  end
end
for _, n in ipairs { math.maxinteger, math.maxinteger - 1, math.mininteger, math.mininteger + 1 } do numbers[#numbers + 1] = n end

local function same(a, b)
  if type(a) ~= type(b) or math.type(a) ~= math.type(b) then return false end
  if type(a) ~= "table" then return a == b end
  for k, v in pairs(a) do if not same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end

local function is(got, expected, what)
  if not same(got, expected) then
    local function show(v) return type(v) == "table" and "a table" or tostring(v):sub(1, 60) end
    error(("%s: %s is not %s"):format(what, show(got), show(expected)), 2)
  end
end

local function list(n, first)
  local t = {}
  for i = 1, n do t[i] = (first or 0) + i end
  return t
end

local function map(n)
  local t = {}
  for i = 1, n do t["key" .. i] = i end
  return t
end

local function both(n, m)
  local t = map(m)
  for i = 1, n do t[i] = i end
  return t
end

-- Calls f(value, what) with each number and with values of each size; `what` describes the value.
local function each(f)
  for _, n in ipairs(numbers) do f(n, "number " .. n) f({ n }, "in a list " .. n) f({ [n] = n }, "as a key " .. n) end
  for _, n in ipairs(sizes) do
    local text = ("x"):rep(n - 1) .. (n > 0 and "y" or "")
    f(text, "string of " .. n)
    f({ text, [text .. "k"] = text }, "in a table, string of " .. n)
    f(list(n), "list of " .. n)
    f(map(n), "map of " .. n)
    if n <= 257 then
      f({ list(n, 1000), "after" }, "in a list, list of " .. n)
      f({ a = map(n), b = "after" }, "in a map, map of " .. n)
      f(both(n, 1), "list of " .. n .. " and one more key")
      f(both(1, n), "map of " .. n .. " and one value")
    end
  end
end

function bounds.messages()
  local me = process.self()
  each(function(value, what)
    process.send(me, value)
    is(process.receive(), value, what)
  end)
end

function bounds.results()
  for _, n in ipairs { 0, 15, 16, 63, 64, 255, 256 } do
    is(process.exec(function(n) local t = {} for i = 1, n do t[i] = i end return t end, n), list(n), "result of " .. n)
    is(process.exec(function(t) return #t end, list(n)), n, "argument of " .. n)
  end
end

-- ---- MessagePack ----

-- Returns the shortest encoding of `value` that the specification allows.
local function packed(value)
  if value == nil then return "\xc0" end
  if type(value) == "boolean" then return value and "\xc3" or "\xc2" end
  if math.type(value) == "float" then return "\xcb" .. string.pack(">d", value) end
  if math.type(value) == "integer" then
    if value >= 0 then
      if value <= 0x7f then return string.char(value) end
      if value <= 0xff then return "\xcc" .. string.pack(">I1", value) end
      if value <= 0xffff then return "\xcd" .. string.pack(">I2", value) end
      if value <= 0xffffffff then return "\xce" .. string.pack(">I4", value) end
      return "\xcf" .. string.pack(">I8", value)
    end
    if value >= -32 then return string.pack(">i1", value) end
    if value >= -0x80 then return "\xd0" .. string.pack(">i1", value) end
    if value >= -0x8000 then return "\xd1" .. string.pack(">i2", value) end
    if value >= -0x80000000 then return "\xd2" .. string.pack(">i4", value) end
    return "\xd3" .. string.pack(">i8", value)
  end
  local function head(n, fix, fix_max, of8, of16)
    if n <= fix_max then return string.char(fix | n) end
    if of8 and n <= 0xff then return string.char(of8, n) end
    if n <= 0xffff then return string.char(of16) .. string.pack(">I2", n) end
    return string.char(of16 + 1) .. string.pack(">I4", n)
  end
  if type(value) == "string" then return head(#value, 0xa0, 31, 0xd9, 0xda) .. value end
  local count, parts = 0, {}
  for _ in pairs(value) do count = count + 1 end
  if count > 0 and count == #value then
    for i = 1, count do parts[i] = packed(value[i]) end
    return head(count, 0x90, 15, nil, 0xdc) .. table.concat(parts)
  end
  for k, v in pairs(value) do parts[#parts + 1] = packed(k) .. packed(v) end
  return head(count, 0x80, 15, nil, 0xde) .. table.concat(parts)
end

function bounds.msgpack()
  each(function(value, what)
    local bytes = packed(value)
    is(msgpack.encode(value), bytes, "msgpack, " .. what)
    is(msgpack.decode(bytes), value, "msgpack back, " .. what)
    local again, after = msgpack.decode("\1" .. bytes .. "\2", 2)
    is(again, value, "msgpack one of several, " .. what)
    is(after, #bytes + 2, "msgpack next, " .. what)
  end)
end

-- Decodes encodings that are longer than necessary, and encodings that Filch never writes.
function bounds.msgpack_forms()
  for _, n in ipairs { 0, 1, 127, 128, 255 } do is(msgpack.decode("\xcc" .. string.pack(">I1", n)), n, "uint8 " .. n) end
  for _, n in ipairs { 0, 1, 255, 256, 65535 } do is(msgpack.decode("\xcd" .. string.pack(">I2", n)), n, "uint16 " .. n) end
  for _, n in ipairs { 0, 65536, 0x7fffffff, 0x80000000, 0xffffffff } do is(msgpack.decode("\xce" .. string.pack(">I4", n)), n, "uint32 " .. n) end
  for _, n in ipairs { 0, 1 << 32, 1 << 53, math.maxinteger } do is(msgpack.decode("\xcf" .. string.pack(">I8", n)), n, "uint64 " .. n) end
  is(msgpack.decode("\xcf\x80\0\0\0\0\0\0\0"), 2.0 ^ 63, "uint64 2^63")
  is(msgpack.decode("\xcf\x80\0\0\0\0\0\x10\0"), 2.0 ^ 63 + 4096, "uint64 2^63 and a little")
  is(msgpack.decode("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), 2.0 ^ 64, "uint64 2^64 - 1")
  for _, n in ipairs { -128, -1, 0, 127 } do is(msgpack.decode("\xd0" .. string.pack(">i1", n)), n, "int8 " .. n) end
  for _, n in ipairs { -32768, -129, 0, 32767 } do is(msgpack.decode("\xd1" .. string.pack(">i2", n)), n, "int16 " .. n) end
  for _, n in ipairs { -(1 << 31), 0, (1 << 31) - 1 } do is(msgpack.decode("\xd2" .. string.pack(">i4", n)), n, "int32 " .. n) end
  for _, n in ipairs { math.mininteger, 0, math.maxinteger } do is(msgpack.decode("\xd3" .. string.pack(">i8", n)), n, "int64 " .. n) end
  for _, n in ipairs { 0.0, 0.5, -1.25, 65536.0, 2.0 ^ 100 } do is(msgpack.decode("\xca" .. string.pack(">f", n)), n, "float32 " .. n) end
  local lengths = { { "\xd9", ">s1" }, { "\xda", ">s2" }, { "\xdb", ">s4" }, { "\xc4", ">s1" }, { "\xc5", ">s2" }, { "\xc6", ">s4" } }
  for _, n in ipairs { 0, 1, 31, 32, 255 } do
    for _, form in ipairs(lengths) do
      is(msgpack.decode(form[1] .. string.pack(form[2], ("t"):rep(n))), ("t"):rep(n), "text of " .. n .. " " .. form[2])
    end
  end
  for _, n in ipairs { 0, 1, 15, 16 } do
    for _, form in ipairs { { "\xdc", ">I2" }, { "\xdd", ">I4" } } do
      is(msgpack.decode(form[1] .. string.pack(form[2], n) .. ("\7"):rep(n)), (function() local t = {} for i = 1, n do t[i] = 7 end return t end)(), "array of " .. n)
    end
    for _, form in ipairs { { "\xde", ">I2" }, { "\xdf", ">I4" } } do
      local t, parts = {}, {}
      for i = 1, n do t["k" .. i] = i parts[i] = packed("k" .. i) .. packed(i) end
      is(msgpack.decode(form[1] .. string.pack(form[2], n) .. table.concat(parts)), t, "map of " .. n)
    end
  end
  for _, n in ipairs { 0, 1, 31, 32, 255, 256, 65535, 65536 } do
    local head = n <= 255 and "\xc4" .. string.pack(">I1", n) or n <= 65535 and "\xc5" .. string.pack(">I2", n) or "\xc6" .. string.pack(">I4", n)
    is(msgpack.encode(blob.new(("b"):rep(n))), head .. ("b"):rep(n), "blob of " .. n)
  end
end

-- Every proper prefix of an encoded value is refused.
function bounds.msgpack_cut()
  for _, value in ipairs { 200, 60000, 70000, 1 << 40, -100, -1000, -70000, -(1 << 40), 1.5, ("x"):rep(20), ("x"):rep(40), ("x"):rep(300), list(3), list(20), map(3), map(20) } do
    local bytes = packed(value)
    for size = 0, #bytes - 1 do
      local got, why = msgpack.decode(bytes:sub(1, size))
      if got ~= nil or not why:find("^byte %d+") then error(("%d of %d bytes are read"):format(size, #bytes)) end
    end
  end
end

-- ---- JSON ----

function bounds.json()
  for _, n in ipairs(numbers) do
    local text = json.encode(n)
    is(json.decode(text), n, "json " .. text)
    if math.type(n) == "integer" then is(text, ("%d"):format(n), "json of " .. n) end
    is(json.decode("[" .. text .. "]")[1], n, "json in a list " .. text)
  end
  for _, n in ipairs { "9223372036854775807", "-9223372036854775808" } do is(math.type(json.decode(n)), "integer", n) end
  for _, n in ipairs { "9223372036854775808", "-9223372036854775809", "18446744073709551615", "1e2", "1.0" } do
    is(json.decode(n), tonumber(n) + 0.0, n)
  end
  for _, n in ipairs(sizes) do
    local text = ("x"):rep(n)
    is(json.encode(text), '"' .. text .. '"', "json string of " .. n)
    is(json.decode('"' .. text .. '"'), text, "json string back " .. n)
    if n > 0 then
      is(json.encode(list(n)), "[" .. table.concat(list(n), ",") .. "]", "json list of " .. n)
      is(json.decode("[" .. table.concat(list(n), ",") .. "]"), list(n), "json list back " .. n)
      if n <= 1024 then is(json.decode(json.encode(map(n))), map(n), "json map of " .. n) end
    end
  end
  for code = 0, 255 do
    local c = string.char(code)
    if code < 128 then is(json.decode(json.encode(c)), c, "json character " .. code) end
    if code < 32 then is(json.decode('"' .. c .. '"'), nil, "json raw control character " .. code) end
    is(json.decode(('"\\u%04x"'):format(code)), utf8.char(code), "json \\u " .. code)
  end
end

-- ---- table.move, insert, remove and string.rep, compared with their definitions ----

function bounds.moves()
  for from = 0, 5 do
    for last = from - 1, 6 do
      for to = -1, 7 do
        local expected, t = list(5, 10), list(5, 10)
        local copy = {}
        for i = from, last do copy[i] = expected[i] end
        for i = from, last do expected[to + i - from] = copy[i] end
        local what = ("move %d to %d onto %d"):format(from, last, to)
        is(table.move(t, from, last, to) == t, true, what)
        is(t, expected, what)
        local other, wanted = list(5, 20), list(5, 20)
        for i = from, last do wanted[to + i - from] = copy[i] end
        is(table.move(list(5, 10), from, last, to, other) == other, true, what)
        is(other, wanted, what .. " of another")
      end
    end
  end
  for count = 1, 3 do -- moves to the last `count` integers, then one place too far
    local t, to = {}, math.maxinteger - count + 1
    is(table.move(list(count), 1, count, to, t) == t, true, "move to the last places")
    for i = 1, count do is(t[to + i - 1], i, "moved to the last places") end
    if count > 1 then is((pcall(table.move, list(count), 1, count, to + 1, t)), false, "move behind the last place") end
  end
  for _, bad in ipairs { 5, true } do -- refused, even if there is nothing to move
    is((pcall(table.move, bad, 1, 0, 1)), false, "move of no table")
    is((pcall(table.move, bad, 1, 0, 1, {})), false, "move of no table to one")
    is((pcall(table.move, {}, 1, 0, 1, bad)), false, "move to no table")
    is((pcall(table.insert, bad, 1)), false, "insert into no table")
    is((pcall(table.remove, bad)), false, "remove from no table")
  end
  for n = 0, 5 do
    for at = 1, n + 1 do
      local t, expected = list(n, 10), list(n, 10)
      for i = n, at, -1 do expected[i + 1] = expected[i] end
      expected[at] = "new"
      table.insert(t, at, "new")
      is(t, expected, "insert at " .. at)
      local removed = table.remove(t, at)
      is(removed, "new", "removed from " .. at)
      is(t, list(n, 10), "remove at " .. at)
    end
    for _, at in ipairs { -1, 0, n + 2 } do
      is(pcall(table.insert, list(n), at, 1), false, "insert outside at " .. at)
      if not (n == 0 and at == 0) and at ~= n + 1 then is((pcall(table.remove, list(n), at)), false, ("remove outside at %d of %d"):format(at, n)) end
    end
    local t = list(n)
    table.insert(t, "last")
    is(t[n + 1], "last", "insert at the end")
    is(table.remove(t), "last", "remove at the end")
    is(table.remove(list(n), n + 1), nil, "remove behind the end")
  end
end

function bounds.repeated()
  for _, unit in ipairs { "", "a", "ab", "abc" } do
    for _, between in ipairs { "", ",", ", " } do
      for n = -1, 17 do
        local parts = {}
        for i = 1, n do parts[i] = unit end
        is(unit:rep(n, between), table.concat(parts, between), ("rep of %q %d times with %q"):format(unit, n, between))
      end
    end
  end
end

-- ---- blobs, compared with strings ----

function bounds.blobs()
  local text = "0123456789"
  local b = blob.new(text)
  for from = -12, 12 do
    is(tostring(b:sub(from)), text:sub(from), "sub from " .. from)
    for to = -12, 12 do is(tostring(b:sub(from, to)), text:sub(from, to), ("sub %d to %d"):format(from, to)) end
  end
  is(#b, #text, "length")
end

-- ---- math.random, compared with a second implementation: xoshiro256** seeded through splitmix64 ----

local function mix(x)
  x = x + 0x9e3779b97f4a7c15
  x = (x ~ (x >> 30)) * 0xbf58476d1ce4e5b9
  x = (x ~ (x >> 27)) * 0x94d049bb133111eb
  return x ~ (x >> 31)
end

local function generator(a, b)
  local s0 = mix(a)
  local s1 = mix(s0 ~ b)
  local s2 = mix(s1)
  local s3 = mix(s2) | 1
  local function turn(x, by) return x << by | x >> (64 - by) end
  return function()
    local result = turn(s1 * 5, 7) * 9
    local moved = s1 << 17
    s2, s3 = s2 ~ s0, s3 ~ s1
    s1, s0 = s1 ~ s2, s0 ~ s3
    s2, s3 = s2 ~ moved, turn(s3, 45)
    return result
  end
end

function bounds.random()
  for _, seed in ipairs { { 0, 0 }, { 1, 0 }, { 42, 7 }, { math.mininteger, -1 } } do
    local a, b = math.randomseed(seed[1], seed[2])
    is({ a, b }, seed, "seed")
    local draw = generator(seed[1], seed[2])
    for i = 1, 20 do is(math.random(0), draw(), "draw " .. i) end
    for i = 1, 20 do is(math.random(), (draw() >> 11) * 2.0 ^ -53, "float " .. i) end
    for _, high in ipairs { 1, 2, 3, 4, 7, 8, 9, 255, 256, 257, 65536, math.maxinteger } do
      local limit, mask = high - 1, 0
      while math.ult(mask, limit) do mask = mask << 1 | 1 end
      local number
      repeat number = draw() & mask until not math.ult(limit, number)
      is(math.random(high), number + 1, "up to " .. high)
    end
  end
  math.randomseed(5)
  local draw = generator(5, 0)
  is(math.random(0), draw(), "one seed")
  math.randomseed(1.5)
  draw = generator(string.unpack("<i8", string.pack("<d", 1.5)), 0)
  is(math.random(0), draw(), "a seed that is a float")
  for _, range in ipairs { { 1, 1 }, { -3, 3 }, { math.mininteger, math.maxinteger }, { 5, 6 } } do
    local least, most = math.huge, -math.huge
    for _ = 1, 200 do
      local n = math.random(range[1], range[2])
      least, most = math.min(least, n), math.max(most, n)
    end
    assert(least >= range[1] and most <= range[2])
    if range[2] - range[1] >= 0 and range[2] - range[1] < 7 then assert(least == range[1] and most == range[2], "both ends") end
  end
  for _, bad in ipairs { { 2, 1 }, { -1 }, { 1, 2, 3 }, { 1, 0 } } do is((pcall(math.random, table.unpack(bad))), false, "no such range") end
end

-- ---- spans of time ----

function bounds.spans()
  local ns = { ns = 1, us = 1000, ms = 1000000, s = 1000000000, m = 60000000000, h = 3600000000000, d = 86400000000000 }
  for unit, length in pairs(ns) do
    for _, n in ipairs { 0, 1, 2, 9, 10, 99, 1.5 } do is(time.span(n .. unit), math.floor(n * length + 0.5) / 1e9, n .. unit) end
  end
  is(time.span("1h30m"), 5400.0, "two units")
  is(time.span("1d1h1m1s1ms1us1ns"), 90061.001001001, "all units")
  is(time.span(1.5), 1.5, "seconds")
  is(time.span(0), 0.0, "none")
  is(time.span(-1), 0.0, "the past")
  is(time.span(9.1e9), 9.1e9, "three hundred years")
  for _, long in ipairs { 9.3e9, 1e300, math.huge, "200000000000000h" } do is(time.span(long), math.huge, "for ever") end
  for _, bad in ipairs { "", "s", "1", "1x", "x1s", "1s ", " 1s", "1s2", "-1s", "1 s", ".5s", "1S", "1min", "1sm", "1s-1s", 0 / 0, true, {} } do
    is((pcall(time.span, bad)), false, tostring(bad))
  end
  -- Regression: time.span() accepted a text of any length, and could not be interrupted: 3 million units took 60 ms.
  is(time.span(("1s"):rep(500)), 500.0, "the longest text")
  is(time.span(("0"):rep(998) .. "7s"), 7.0, "the longest number")
  for _, long in ipairs { ("1s"):rep(499) .. "10s", ("0"):rep(999) .. "7s" } do
    local fine, why = pcall(time.span, long)
    is(fine, false, "too long")
    is(why:find("the text is too long for a time: at most 1000 bytes", 1, true) ~= nil, true, why)
  end
  local fine, why = pcall(time.span, ("x"):rep(1000))
  is(fine, false, "not too long")
  is(why:find("a time must be a number of seconds", 1, true) ~= nil, true, why)
  local long = ("1s"):rep(501)
  process.send(process.self(), long)
  is(process.receive(long), long, "a pattern, because no time is so long")
  is((pcall(process.spawn, { function() end, memory = ("0"):rep(1000) .. "1000000" })), false, "no size is so long")
  is((pcall(process.spawn, { function() end, mailbox_bytes = ("0"):rep(999) .. "1" })), true, "the longest size")
end

-- ---- how errors name a place in a value ----

function bounds.paths()
  local function named(key, expected)
    local fine, why = pcall(msgpack.encode, { [key] = { print } })
    is(why:match("msgpack.encode: (value.*)%[1%]: a function"), "value" .. expected, tostring(key))
  end
  named("a", ".a")
  named("_", "._")
  named("aZ09_z", ".aZ09_z")
  named("9a", '["9a"]')
  named("", '[""]')
  named("a b", '["a b"]')
  for _, odd in ipairs { "a/", "a:", "a@", "a[", "a`", "a{", "é" } do named(odd, '["' .. odd .. '"]') end
  for _, edge in ipairs { "z0", "z9", "za", "zz", "zA", "zZ" } do named(edge, "." .. edge) end
  named(("n"):rep(40), "." .. ("n"):rep(40))
  named(("n"):rep(41), '["' .. ("n"):rep(40) .. '"]')
  named(0, "[0]")
  named(-5, "[-5]")
  named(2.5, "[2.5]")
  named(true, "[true]")
  named(false, "[false]")
  local deep = { print }
  for i = 1, 90 do deep = { abcdefgh = deep } end
  local _, why = pcall(msgpack.encode, deep)
  is(#why:match("value[%.%a]*") < 160, true, "a path has an end")
end

return bounds
