#!lua
-- Let a lease that has not ended last from now, or ask whether it has.
--
-- KEYS  1 ends (sorted set of tokens by end in ms)
-- ARGV  1 token  2 time-to-live in ms, or "0" to change nothing
-- REPLY 1, or 0 when it has ended
-- COST  O(log leases)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then return 0 end
if ARGV[2] ~= '0' then redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1]) end
return 1
