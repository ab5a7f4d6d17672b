#!lua
-- Lets another index, made beside it, be a tree's search index from now on; without another, lets the tree have none.
--
-- KEYS  1 standing of the tree (hash)  2 standing of the other (hash), or ''
--       3 what is to be cleared away (hash, generation to place)
-- ARGV  1 generation that must be the tree's, or '' for any
-- REPLY 1, or 0 when the tree has another generation, or the other covers less than the tree's: nothing was done
-- COST  O(1)

local held = redis.call('HMGET', KEYS[1], 'generation', 'place', 'dimension', 'seq')
if ARGV[1] ~= '' and held[1] ~= ARGV[1] then return 0 end
if KEYS[2] ~= '' then
  local seq = redis.call('HGET', KEYS[2], 'seq')
  if not seq or tonumber(seq) < tonumber(held[4] or 0) then return 0 end
end
if held[1] then redis.call('HSET', KEYS[3], held[1], held[2] .. ' ' .. held[3]) end
redis.call('DEL', KEYS[1])
if KEYS[2] ~= '' then redis.call('RENAME', KEYS[2], KEYS[1]) end
return 1
