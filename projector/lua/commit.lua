-- Verifies everything, then writes: the one way in which a projection changes.
--
-- KEYS     every key that is checked or written, all of one partition
-- ARGV[1]  msgpack {lengths, checks, writes, sizes}
--   lengths  the commands of a LENGTHS check
--   check    {command, key, field or false, expected}      all of them hold, or nothing is written
--            {"LENGTHS", key, {expected, …}}               the same for that key and those that follow it
--   write    {command, key or 0, count}                    the command with the next `count` values
--            {"COPY", key, source, from, to}               list items from..to of KEYS[source], pushed to KEYS[key]
--            {"TAKE", key, source}                         the staged list KEYS[source] becomes KEYS[key]
--            {"FEED", key, source, command, count}         the command with the items of the staged KEYS[source]
--   sizes    of the values, in the order of their writes
-- ARGV[2]  the values, one behind the other
-- answers the numbers of the checks that failed; none means that everything was written
--
-- A script that fails half-way keeps what it wrote, hence the order, and the lists of commands.
local CHECKS = {HGET = true, HLEN = true, LLEN = true, STRLEN = true, EXISTS = true}
local WRITES = {
  HSET = true, HDEL = true, SET = true, SETNX = true, APPEND = true, RPUSH = true, LTRIM = true, LPOP = true,
  DEL = true, PEXPIRE = true, PERSIST = true, SPUBLISH = true, COPY = true,
  TAKE = true, FEED = true
}
local STEP = 500 -- unpack puts its values on the C stack, which holds some thousands

local program = cmsgpack.unpack(ARGV[1])
local lengths, checks, writes, sizes = program[1], program[2], program[3], program[4]
local blob = ARGV[2]

for _, command in ipairs(lengths) do assert(CHECKS[command], 'unknown check') end
local failed = {}
for i, check in ipairs(checks) do
  local command, key = check[1], check[2]
  if command == 'LENGTHS' then
    for place, expected in ipairs(check[3]) do
      if redis.pcall(lengths[place], KEYS[key + place - 1]) ~= expected then
        failed[#failed + 1] = i
        break
      end
    end
  else
    assert(CHECKS[command], 'unknown check')
    local found
    if check[3] then
      found = redis.pcall(command, KEYS[key], check[3])
    else
      found = redis.pcall(command, KEYS[key])
    end
    if found ~= check[4] then failed[#failed + 1] = i end
  end
end
for _, write in ipairs(writes) do assert(WRITES[write[1]], 'unknown write') end
if #failed > 0 then return failed end

local function feed(key, source, command, count)
  if command == 'SET' then
    redis.call('DEL', key)
    command = 'APPEND'
  end
  for from = 0, count - 1, STEP do
    local items = redis.call('LRANGE', source, from, from + STEP - 1)
    if command == 'APPEND' then
      for _, item in ipairs(items) do redis.call('APPEND', key, item) end
    else
      redis.call(command, key, unpack(items))
    end
  end
  redis.call('DEL', source)
end

local taken, at = 0, 1
local function take(count)
  local found = {}
  for place = 1, count do
    taken = taken + 1
    local behind = at + sizes[taken]
    found[place] = string.sub(blob, at, behind - 1)
    at = behind
  end
  return unpack(found)
end

for _, write in ipairs(writes) do
  local command, key = write[1], KEYS[write[2]]
  if command == 'COPY' then
    local source, to = KEYS[write[3]], write[5]
    for from = write[4], to, STEP do
      redis.call('RPUSH', key, unpack(redis.call('LRANGE', source, from, math.min(from + STEP - 1, to))))
    end
  elseif command == 'TAKE' then
    redis.call('RENAME', KEYS[write[3]], key)
    redis.call('PERSIST', key)
  elseif command == 'FEED' then
    feed(key, KEYS[write[3]], write[4], write[5])
  elseif not key then
    redis.call(command, take(write[3]))
  elseif write[3] == 0 then
    redis.call(command, key)
  else
    for left = write[3], 1, -STEP do redis.call(command, key, take(math.min(left, STEP))) end
  end
end
return failed
