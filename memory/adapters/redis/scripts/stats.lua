#!lua flags=no-writes
-- Counters of a tree.
--
-- KEYS  1 state  2 dirty
-- REPLY {dirty nodes, field, value, …}
-- ERROR NOTREE
-- COST  O(depths of the tree)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
return {redis.call('ZCARD', KEYS[2]), unpack(redis.call('HGETALL', KEYS[1]))}
