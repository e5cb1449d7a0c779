-- What a writer or a projector needs to know of sessions of one partition, read at one moment.
--
-- KEYS  serving, cp, dir; then for each session: meta surface transcript tail offsets recent keys headers tools
--       messages (the last one without its generation and nonce)
-- ARGV  1 when the tail is wanted, else 0; then for each session: its record key, the chain the caller knows
-- answers {serving, cp as a flat list, sessions}; a session is {dir entry, meta as a flat list} when its chain is
--       the known one, else with {surface, headers, tools, recent, keys, lengths, tail} behind it
local function length(command, key)
  local found = redis.pcall(command, key)
  return type(found) == 'number' and found or -1
end

local function read(command, key, ...)
  local found = redis.pcall(command, key, ...)
  return type(found) == 'table' and found.err and false or found
end

local sessions = {}
for i = 0, (#ARGV - 1) / 2 - 1 do
  local at = 3 + i * 10
  local meta = read('HGETALL', KEYS[at + 1]) or {}
  local chain, pointer
  for f = 1, #meta, 2 do
    if meta[f] == 'chain' then chain = meta[f + 1] end
    if meta[f] == 'mk' then pointer = meta[f + 1] end
  end
  local found = {redis.call('HGET', KEYS[3], ARGV[2 + i * 2]), meta}
  if chain and chain ~= ARGV[3 + i * 2] then
    found[3] = read('GET', KEYS[at + 2])
    found[4] = read('HGETALL', KEYS[at + 8]) or {}
    found[5] = read('HGETALL', KEYS[at + 9]) or {}
    found[6] = read('HGETALL', KEYS[at + 6]) or {}
    found[7] = read('HGETALL', KEYS[at + 7]) or {}
    found[8] = {
      length('LLEN', KEYS[at + 10] .. (pointer or '')), length('STRLEN', KEYS[at + 2]),
      length('LLEN', KEYS[at + 3]), length('LLEN', KEYS[at + 4]), length('STRLEN', KEYS[at + 5]),
      length('HLEN', KEYS[at + 6]), length('HLEN', KEYS[at + 7]), length('HLEN', KEYS[at + 8]),
      length('HLEN', KEYS[at + 9])
    }
    found[9] = ARGV[1] == '1' and read('LRANGE', KEYS[at + 4], 0, -1) or {}
  end
  sessions[i + 1] = found
end
return {redis.call('GET', KEYS[1]), redis.call('HGETALL', KEYS[2]), sessions}
