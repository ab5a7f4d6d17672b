#!lua flags=no-writes
-- Nodes with contributions, deepest first, then oldest first.
--
-- KEYS  1 state  2 nodes  3 dirty (sorted set by depth from below; members: oldest mark, own mark, id)
-- ARGV  1 at most so many
-- REPLY {member, row, …}
-- ERROR NOTREE
-- COST  O(log dirty + limit)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
local members, ids, reply = redis.call('ZRANGE', KEYS[3], 0, tonumber(ARGV[1]) - 1), {}, {}
for index, member in ipairs(members) do ids[index] = string.sub(member, 17) end
for index, row in ipairs(hmget(KEYS[2], ids)) do
  reply[#reply + 1] = members[index]
  reply[#reply + 1] = row
end
return reply
