-- Puts list items behind others in a key that nobody reads yet, at most `bytes` of them a call, so that a large
-- session never holds up its neighbours. The key dies by itself unless a commit takes it over.
--
-- KEYS  the staged list, the source list
-- ARGV  ttl in ms, bytes, length that the staged list has now, first and last index of the source, items to push
-- answers {next index of the source (last + 1 when done), bytes copied}, or {-1, 0} when the length is another
local ttl, bytes, length, from, to = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]),
  tonumber(ARGV[5])
if redis.call('LLEN', KEYS[1]) ~= length then return {-1, 0} end
local copied = 0
while from <= to and copied < bytes do
  local items = redis.call('LRANGE', KEYS[2], from, math.min(from + 15, to))
  if #items == 0 then return {-1, copied} end
  for _, item in ipairs(items) do copied = copied + #item end
  redis.call('RPUSH', KEYS[1], unpack(items))
  from = from + #items
end
for first = 6, #ARGV, 500 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, first, math.min(first + 499, #ARGV)))
end
redis.call('PEXPIRE', KEYS[1], ttl)
return {from, copied}
