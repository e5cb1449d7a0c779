-- Verifies everything, then writes: the one way in which a projection changes.
--
-- KEYS     every key that is checked or written, all of one partition
-- ARGV[1]  msgpack {checks, writes}; the values that are written follow
--   check  {command, key, field or false, expected}        all of them hold, or nothing is written
--   write  {command, key or 0, first, last}                the command with ARGV[first..last]
--          {"COPY", key, source, from, to}                 list items from..to of KEYS[source], pushed to KEYS[key]
--          {"TAKE", key, source}                           the staged list KEYS[source] becomes KEYS[key]
--          {"FEED", key, source, command, count}           the command with the items of the staged KEYS[source]
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
local checks, writes = program[1], program[2]

local failed = {}
for i, check in ipairs(checks) do
  assert(CHECKS[check[1]], 'unknown check')
  local found
  if check[3] then
    found = redis.pcall(check[1], KEYS[check[2]], check[3])
  else
    found = redis.pcall(check[1], KEYS[check[2]])
  end
  if found ~= check[4] then failed[#failed + 1] = i end
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

for _, write in ipairs(writes) do
  local command, key, first, last = write[1], KEYS[write[2]], write[3], write[4]
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
    redis.call(command, unpack(ARGV, first, last))
  elseif last < first then
    redis.call(command, key)
  else
    for from = first, last, STEP do
      redis.call(command, key, unpack(ARGV, from, math.min(from + STEP - 1, last)))
    end
  end
end
return failed
