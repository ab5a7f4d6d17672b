#!lua
-- Takes nodes over into a tree's search index, if the index still is as the caller read it. Repeating it with the same token is
-- harmless.
--
-- KEYS  1 standing of the tree (hash)
-- ARGV  1 generation  2 writes that the caller saw  3 what the keys of its documents begin with  4 of its sequences
--       5 key of its terms  6 key of its speakers  7 seq, or '' while more is to come  8 stamp
--       9 MessagePack of {removes: {node, line, place} each; upserts: {node, line, place, fields} each; terms and speakers: name
--       and difference in turn; nodes, texts, length: differences}  10 token (a name no other write has)
-- REPLY 1, or 0 when it is not as the caller read it: nothing was done
-- COST  O(nodes and their terms), and what the search module takes to index them

local held = redis.call('HMGET', KEYS[1], 'generation', 'writes', 'writer')
if held[3] == ARGV[10] then return 1 end
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
local change = cmsgpack.unpack(ARGV[9])
local function leave(node, line, place)
  if line ~= '' then redis.call('ZREM', ARGV[4] .. line, place) end
end
for _, gone in ipairs(change.removes) do
  leave(gone[1], gone[2], gone[3])
  redis.call('DEL', ARGV[3] .. gone[1])
end
for _, made in ipairs(change.upserts) do
  redis.call('HSET', ARGV[3] .. made[1], unpack(made[4]))
  if made[2] ~= '' then redis.call('ZADD', ARGV[4] .. made[2], 0, made[3]) end
end
local function count(key, differences)
  for each = 1, #differences, 2 do
    if redis.call('HINCRBY', key, differences[each], differences[each + 1]) <= 0 then redis.call('HDEL', key, differences[each]) end
  end
end
count(ARGV[5], change.terms)
count(ARGV[6], change.speakers)
for _, name in ipairs({'nodes', 'texts', 'length'}) do
  if change[name] ~= 0 then redis.call('HINCRBY', KEYS[1], name, change[name]) end
end
redis.call('HINCRBY', KEYS[1], 'writes', 1)
redis.call('HSET', KEYS[1], 'writer', ARGV[10])
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'seq', ARGV[7], 'stamp', ARGV[8]) end
return 1
