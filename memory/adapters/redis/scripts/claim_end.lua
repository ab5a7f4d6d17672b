#!lua
-- Give a claim back, and write down how it went. Giving it back, and forgetting failures, is harmless to repeat; a failure that is
-- asked for again with the same token is counted once.
--
-- KEYS  1 claim  2 failures (hash, node to msgpack {failures, ms since 1970, reason, token})
-- ARGV  1 token  2 node  3 "release", "done" (failures are forgotten) or "failed" (one more)  4 reason  5 most nodes in the hash;
--       beyond that one of them is forgotten
-- REPLY failures in a row that are known now
-- COST  O(1)

if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
if ARGV[3] == 'done' then
  redis.call('HDEL', KEYS[2], ARGV[2])
  return 0
end
local known = redis.call('HGET', KEYS[2], ARGV[2])
local record = known and cmsgpack.unpack(known) or {0, 0, '', ''}
if ARGV[3] == 'release' or record[4] == ARGV[1] then return record[1] end
if not known and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[5]) then
  redis.call('HDEL', KEYS[2], redis.call('HRANDFIELD', KEYS[2]))
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[2], ARGV[2], cmsgpack.pack({record[1] + 1, now, ARGV[4], ARGV[1]}))
return record[1] + 1
