-- A page of a session's transcript: seqs of append-origin events, with bodies where the tail still holds them.
--
-- KEYS  5 tail, 6 offsets, 7 transcript
-- ARGV  3 first place in the transcript, 4 place to stop before, 5 the most events, 6 the most entries of `offsets`
-- answers the gate, then the seq of the first event that the tail holds, the page's seqs, the tail from the first
--       of them on, and entries of `offsets` from the first seq on, up to the last that the tail does not hold,
--       and whether the transcript is as long as the state says (1, or nothing)
local seen = gate()
local meta = seen[4]
if not meta or not meta[1] then return seen end
local first, stop, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local tail = tonumber(meta[3]) - (quiet('LLEN', KEYS[5]) or 0)
local seqs = first < stop and quiet('LRANGE', KEYS[7], first, math.min(stop, first + limit) - 1) or {}
seen[5], seen[6], seen[7], seen[8] = tail, seqs, {}, ''
-- A list that was lost must not read as the end of the transcript.
seen[9] = quiet('LLEN', KEYS[7]) == tonumber(quiet('HGET', KEYS[4], 'transcript') or 0)
if #seqs == 0 then return seen end
local low, high = tonumber(seqs[1]), tonumber(seqs[#seqs])
if high >= tail then
  seen[7] = redis.call('LRANGE', KEYS[5], math.max(low - tail, 0), high - tail)
end
if low < tail then
  local entries = math.floor((quiet('STRLEN', KEYS[6]) or 0) / 16)
  local place = place_of(KEYS[6], entries, low)
  local last = place_of(KEYS[6], entries, math.min(high, tail - 1))
  seen[8] = quiet('GETRANGE', KEYS[6], place * 16, math.min(last + 1, place + tonumber(ARGV[6])) * 16 - 1) or ''
end
return seen
