#!lua flags=no-writes
-- A tree's identity and sequence number.
--
-- KEYS  1 identity  2 state
-- REPLY {identity, seq}; both missing when there is no such tree
-- COST  O(1)

return {redis.call('GET', KEYS[1]), redis.call('HGET', KEYS[2], 'seq')}
