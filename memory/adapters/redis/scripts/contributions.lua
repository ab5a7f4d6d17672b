#!lua flags=no-writes
-- Contributions of a node, oldest first.
--
-- KEYS  1 state  2 contributions of the node (list of mark and leaf)
-- ARGV  1 at most so many
-- REPLY {mark (double, big endian) and leaf's id, …}
-- ERROR NOTREE
-- COST  O(limit)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
return redis.call('LRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1)
