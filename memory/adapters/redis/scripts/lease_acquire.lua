#!lua
-- Take all nodes of a lease or none, or wait in the queue for them. Repeating it for the same waiter is harmless.
--
-- KEYS  1 ends  2 held  3 nodes  4 granted  5 queue  6 seen  7 wants  8 token (see lib_leases)
-- ARGV  1 waiter (a name nobody else has)  2 msgpack {shared nodes, exclusive nodes, time-to-live in ms}
--       3 "1" to queue up when it cannot be had, "0" to give up  4 ms after which a waiter that does not come back is gone
--       5 what a waiter's name is added to for the name of the list that wakes it (same slot)  6 most waiters in the queue
-- REPLY {token, "0"}, or {"", ms until it may be worth asking again}, or {"", "-1"} when it cannot be had
-- COST  O(nodes of the lease + leases that ended + nodes of the first 64 waiters)
-- include: lib_leases

local keys = lease_keys(0)
local waiter, wants, grants = ARGV[1], cmsgpack.unpack(ARGV[2]), ARGV[5]
local now, micros = clock()
purge_leases(keys, now)
purge_queue(keys, now)

local granted = redis.call('HGET', keys.granted, waiter)
if granted then return {granted, '0'} end

local before = serve(keys, now, micros, grants, waiter)
granted = redis.call('HGET', keys.granted, waiter)
if granted then return {granted, '0'} end

if not redis.call('ZSCORE', keys.queue, waiter) then
  local ahead = redis.call('ZCARD', keys.queue)
  if ahead <= QUEUE_SERVED and free(keys, wants, before) then return {grant(keys, waiter, wants, now, micros), '0'} end
  if ARGV[3] == '0' or ahead >= tonumber(ARGV[6]) then return {'', '-1'} end
  local last = redis.call('ZRANGE', keys.queue, -1, -1, 'WITHSCORES')
  redis.call('ZADD', keys.queue, tonumber(last[2] or '0') + 1, waiter)
  redis.call('HSET', keys.wants, waiter, ARGV[2])
end
redis.call('ZADD', keys.seen, digits(now + tonumber(ARGV[4])), waiter)

local next_end = now + tonumber(ARGV[4])
for _, key in ipairs({keys.ends, keys.seen}) do
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[2] then next_end = math.min(next_end, tonumber(first[2])) end
end
return {'', digits(math.max(next_end - now, 1))}
