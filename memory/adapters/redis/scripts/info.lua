#!lua flags=no-writes
-- A tree's identity and sequence numbers.
--
-- KEYS  1 identity  2 state
-- REPLY {identity, seq, floor, redacted}; the first two missing when there is no such tree, the last two while they are 0
-- COST  O(1)

return {redis.call('GET', KEYS[1]), unpack(redis.call('HMGET', KEYS[2], 'seq', 'floor', 'redacted'))}
