-- A session's head: all scalar state, and its surface when that is asked for.
--
-- KEYS  5 surface
-- ARGV  3 names what is wanted: "head" or "surface"
-- answers the gate, then meta as a flat list, and the surface's rows
local seen = gate()
if not seen[4] or not seen[4][1] then return seen end
seen[5] = quiet('HGETALL', KEYS[4])
seen[6] = ARGV[3] == 'surface' and quiet('GET', KEYS[5]) or false
return seen
