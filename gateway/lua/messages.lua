-- The hot path: what the model should see next, in one round trip. Bodies pass through as they are.
--
-- KEYS  5 messages, without generation and nonce
-- ARGV  3, 4, 5 open id, content generation and count of a token: only what is behind it, if they still hold
--       6, 7, 8 open id, seq and generation of an etag: no bodies at all when the state is the same
-- answers the gate, then the place of the first message in the list (-1: unchanged) and the messages
local seen = gate()
local meta = seen[4]
if not meta or not meta[1] then return seen end
local from = 0
if meta[2] == ARGV[6] and meta[3] == ARGV[7] and meta[4] == ARGV[8] then
  seen[5] = -1
  return seen
end
if meta[2] == ARGV[3] and meta[4] == ARGV[4] then from = tonumber(ARGV[5]) end
seen[5], seen[6] = from, quiet('LRANGE', KEYS[5] .. (meta[6] or ''), from, -1)
return seen
