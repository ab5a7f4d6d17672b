#!lua flags=no-writes
-- Rows and contents of nodes, of one commit.
--
-- KEYS  1 state  2 nodes  3 content
-- ARGV  1 msgpack node ids  2 what of the content: see `slice` in lib_rows
-- REPLY {dimension, row, content, row, content, …}, both missing for a node that does not exist
-- ERROR NOTREE
-- COST  O(nodes)
-- include: lib_rows

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
local ids = cmsgpack.unpack(ARGV[1])
local reply = {dimension}
local contents = ARGV[2] ~= 'n' and hmget(KEYS[3], ids) or {}
for index, row in ipairs(hmget(KEYS[2], ids)) do
  reply[2 * index] = row
  reply[2 * index + 1] = slice(contents[index], ARGV[2], dimension) or ''
end
return reply
