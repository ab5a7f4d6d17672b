#!lua
-- Make a tree with its root, unless it is there.
--
-- KEYS  1 identity  2 state  3 nodes  4 content  5 order
-- ARGV  1 msgpack identity  2 dimension  3 the root's row  4 the root's vector and rest
-- REPLY {identity, seq, floor, redacted} of the tree that is there now; the last two missing while they are 0
-- COST  O(1)

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], ARGV[1])
  redis.call('HSET', KEYS[2], 'seq', 0, 'dimension', ARGV[2])
  redis.call('HSET', KEYS[3], 'root', ARGV[3])
  redis.call('HSET', KEYS[4], 'root', ARGV[4])
  redis.call('RPUSH', KEYS[5], 'root')
end
return {redis.call('GET', KEYS[1]), unpack(redis.call('HMGET', KEYS[2], 'seq', 'floor', 'redacted'))}
