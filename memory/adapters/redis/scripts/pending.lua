#!lua flags=no-writes
-- What waits in a tree to be summarized.
--
-- KEYS  1 state  2 dirty
-- REPLY {contributions over all nodes, nodes that have any}
-- ERROR NOTREE
-- COST  O(1)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
return {tonumber(redis.call('HGET', KEYS[1], 'pending') or '0'), redis.call('ZCARD', KEYS[2])}
