#!lua flags=no-writes
-- Where the search index of a tree stands, and in how many of its texts each of some terms occurs.
--
-- KEYS  1 standing of the tree (hash)
-- ARGV  1 what the keys of generations begin with  2 … terms
-- REPLY {generation, place, dimension, nodes, texts, length, seq, stamp, writes, counts}, or {} for a tree without an index;
--       a count is nil for a term that no text has
-- COST  O(terms)

local held = redis.call('HMGET', KEYS[1], 'generation', 'place', 'dimension', 'nodes', 'texts', 'length', 'seq', 'stamp', 'writes')
if not held[1] then return {} end
local counts = {}
for first = 2, #ARGV, 1000 do
  local page = redis.call('HMGET', ARGV[1] .. held[1] .. ':terms', unpack(ARGV, first, math.min(first + 999, #ARGV)))
  for each = 1, #page do counts[#counts + 1] = page[each] end
end
held[10] = counts
return held
