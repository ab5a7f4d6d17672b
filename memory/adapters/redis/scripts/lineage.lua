#!lua flags=no-writes
-- Rows and contents of nodes and of all nodes above them, the root left out, of one commit.
--
-- KEYS  1 state  2 nodes  3 content
-- ARGV  1 msgpack node ids
-- REPLY {id, row, content, …}, contents without vectors; nodes that do not exist are missing
-- ERROR NOTREE
-- COST  O(nodes x depth)
-- include: lib_rows

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
local level, seen, reply = {}, {root = true}, {}

local function ask(ids)
  for _, id in ipairs(ids) do
    if id ~= '' and not seen[id] then
      seen[id] = true
      level[#level + 1] = id
    end
  end
end

ask(cmsgpack.unpack(ARGV[1]))
while #level > 0 do
  local ids, rows, contents, above = level, hmget(KEYS[2], level), hmget(KEYS[3], level), {}
  for index, id in ipairs(ids) do
    if rows[index] then
      reply[#reply + 1] = id
      reply[#reply + 1] = rows[index]
      reply[#reply + 1] = slice(contents[index], 'c', dimension)
      above[#above + 1] = tail_of(rows[index]) -- the first of the two
    end
  end
  level = {}
  ask(above)
end
return reply
