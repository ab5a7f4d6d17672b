#!lua
-- Gives a tree that has no search index an empty one, and one that has no vectors yet its dimension; repeating it is harmless.
--
-- KEYS  1 standing of the tree (hash)  2 last generation (string)
-- ARGV  1 place: 'shared' or 'own'  2 dimension
-- REPLY the tree's generation
-- COST  O(1)

local held = redis.call('HMGET', KEYS[1], 'generation', 'dimension')
if held[1] then
  if held[2] == '0' then redis.call('HSET', KEYS[1], 'place', ARGV[1], 'dimension', ARGV[2]) end
  return held[1]
end
local made = tostring(redis.call('INCR', KEYS[2]))
redis.call(
  'HSET', KEYS[1], 'generation', made, 'place', ARGV[1], 'dimension', ARGV[2],
  'seq', 0, 'stamp', '', 'nodes', 0, 'texts', 0, 'length', 0, 'writes', 0
)
return made
