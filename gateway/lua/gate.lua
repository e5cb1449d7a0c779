-- Stands before every reading script: what decides whether a session can be read at all, read at one moment.
--
-- KEYS  1 serving, 2 cp, 3 dir, 4 meta; those behind them are the script's own
-- ARGV  1 the version that the keys are of, 2 the session's record key; those behind them are the script's own
-- gate() answers {serving, {cp fields}, dir entry, {meta fields}}; only {serving} when another version serves.
-- A key of another type reads as missing: the projector finds such a session and refolds it.
local function quiet(command, ...)
  local found = redis.pcall(command, ...)
  if type(found) == 'table' and found.err then return false end
  return found
end

local function gate()
  local serving = quiet('GET', KEYS[1])
  if serving ~= ARGV[1] then return {serving} end
  return {
    serving, quiet('HMGET', KEYS[2], 'next', 'target', 'halted'), quiet('HGET', KEYS[3], ARGV[2]),
    quiet('HMGET', KEYS[4], 'status', 'open', 'next', 'content', 'messages', 'mk')
  }
end

-- The place (in entries of 16 bytes) of the last entry of an offsets string whose seq is not above `seq`; 0 if none.
local function place_of(key, entries, seq)
  local low, high = 0, entries - 1
  while low < high do
    local middle = math.ceil((low + high) / 2)
    local found = struct.unpack('>I8', redis.call('GETRANGE', key, middle * 16, middle * 16 + 7))
    if found <= seq then low = middle else high = middle - 1 end
  end
  return low
end
