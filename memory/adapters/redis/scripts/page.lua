#!lua flags=no-writes
-- A page of all nodes in order of creation, and the commit it is of.
--
-- KEYS  1 state  2 nodes  3 content  4 order (where a node was removed, a zero byte and its mark)
-- ARGV  1 first position  2 how many  3 what of the content: see `slice` in lib_rows
-- REPLY {seq, positions in all, dimension, id, row, content, …}, without nodes that were removed
-- ERROR NOTREE
-- COST  O(page)
-- include: lib_rows

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
local first = tonumber(ARGV[1])
local ids = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[4], first, first + tonumber(ARGV[2]) - 1)) do
  if string.byte(id) ~= 0 then ids[#ids + 1] = id end
end
local reply = {redis.call('HGET', KEYS[1], 'seq'), redis.call('LLEN', KEYS[4]), dimension}
local contents = ARGV[3] ~= 'n' and hmget(KEYS[3], ids) or {}
for index, row in ipairs(hmget(KEYS[2], ids)) do
  reply[#reply + 1] = ids[index]
  reply[#reply + 1] = row
  reply[#reply + 1] = slice(contents[index], ARGV[3], dimension) or ''
end
return reply
