-- A page of a session's events: the events themselves as long as the tail still holds them, else where they stand
-- in the log.
--
-- KEYS  5 tail, 6 offsets
-- ARGV  3 first seq, 4 seq to stop before, 5 the most events
-- answers the gate, then the seq of the first event that the tail holds, the events from the first seq on (false
--       when the tail no longer has it), and entries of `offsets` that cover the page
local seen = gate()
local meta = seen[4]
if not meta or not meta[1] then return seen end
local first, stop, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local tail = tonumber(meta[3]) - (quiet('LLEN', KEYS[5]) or 0)
stop = math.min(stop, first + limit, tonumber(meta[3]))
seen[5], seen[6], seen[7] = tail, false, ''
if first >= stop then
  seen[6] = {}
elseif first >= tail then
  seen[6] = redis.call('LRANGE', KEYS[5], first - tail, stop - tail - 1)
else
  local entries = math.floor((quiet('STRLEN', KEYS[6]) or 0) / 16)
  local place = place_of(KEYS[6], entries, first)
  -- A commit holds at least one event, so as many entries as events cover the page.
  seen[7] = quiet('GETRANGE', KEYS[6], place * 16, (place + stop - first) * 16 - 1) or ''
end
return seen
