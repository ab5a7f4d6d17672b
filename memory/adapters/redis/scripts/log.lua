#!lua flags=no-writes
-- Log entries after a commit, with the vectors of the leaves they made.
--
-- KEYS  1 state  2 content  3 log
-- ARGV  1 commits after this one  2 at most so many  3 bytes after which no more are added
-- REPLY {dimension, 1 when there are more or 0, {seq, names, body, vectors}, …}
-- ERROR NOTREE
-- COST  O(entries + their leaves, bounded by the arguments)
-- include: lib_rows
-- include: lib_log

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
local entries, more = entries_after(KEYS[3], KEYS[2], dimension, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
table.insert(entries, 1, dimension)
table.insert(entries, 2, more)
return entries
