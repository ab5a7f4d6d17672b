#!lua flags=no-writes
-- Children of a node in order of creation.
--
-- KEYS  1 state  2 nodes  3 content  4 children of the node (sorted set by mark)
-- ARGV  1 only those with a greater mark  2 at most so many
-- REPLY {id, row, content, …}, contents without vectors
-- ERROR NOTREE
-- COST  O(log children + limit)
-- include: lib_rows

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
local ids = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[1], '+inf', 'LIMIT', 0, ARGV[2])
local rows, contents, reply = hmget(KEYS[2], ids), hmget(KEYS[3], ids), {}
for index, id in ipairs(ids) do
  reply[#reply + 1] = id
  reply[#reply + 1] = rows[index]
  reply[#reply + 1] = slice(contents[index], 'c', dimension)
end
return reply
