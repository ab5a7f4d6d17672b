#!lua
-- Take the claim on a node, or extend it, unless another has it. Repeating it with the same token is harmless.
--
-- KEYS  1 claim (string that ends by itself)  2 failures (hash, node to its record)
-- ARGV  1 token (a name no other claim has)  2 time-to-live in ms  3 node
-- REPLY {1, record of the node's failures or ""}, or {0, ms until the other's claim ends by itself}
-- COST  O(1)

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, redis.call('PTTL', KEYS[1])} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, redis.call('HGET', KEYS[2], ARGV[3]) or ''}
