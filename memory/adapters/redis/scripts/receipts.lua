#!lua flags=no-writes
-- Receipts of events.
--
-- KEYS  1 state  2 events
-- ARGV  1 msgpack event ids
-- REPLY a receipt or nothing for each
-- ERROR NOTREE
-- COST  O(events)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
return hmget(KEYS[2], cmsgpack.unpack(ARGV[1]))
