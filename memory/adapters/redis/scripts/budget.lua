#!lua
-- A provider's budget: give a call its turn, put its cost right, or hold everybody back.
--
-- A bucket is kept as the time (ms since 1970) at which it is out of debt; it never lies further back than the burst.
--
-- KEYS  1 budget (hash: `requests` and `tokens`, the buckets; `until`, the end of a pause); ends by itself an hour after it means
--       anything
-- ARGV  1 "take", "correct" or "pause"  2 tokens, or ms of the pause  3 ms a request costs, 0 without limit  4 ms a token costs,
--       0 without limit  5 ms that a bucket may lie back  6 for "take": the longest wait in ms
-- REPLY {1, ms until the call may be made} · {0, ms until it is worth asking again}: nothing was taken
-- COST  O(1)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
local found = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'until')
local amount, request_ms, token_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local back = now - tonumber(ARGV[5])
local requests = math.max(tonumber(found[1] or '0'), back)
local tokens = math.max(tonumber(found[2] or '0'), back)
local paused = tonumber(found[3] or '0')
local wait = 0

if ARGV[1] == 'pause' then
  paused = math.max(paused, now + amount)
  requests, tokens = math.max(requests, paused), math.max(tokens, paused)
elseif ARGV[1] == 'correct' then
  tokens = tokens + amount * token_ms
else
  wait = math.max(0, paused - now)
  if request_ms > 0 then wait = math.max(wait, requests - now) end
  if token_ms > 0 then wait = math.max(wait, tokens - now) end
  if wait > tonumber(ARGV[6]) then return {0, math.ceil(wait)} end
  requests, tokens = requests + request_ms, tokens + amount * token_ms
end

local function digits(number) return string.format('%.3f', number) end
redis.call('HSET', KEYS[1], 'requests', digits(requests), 'tokens', digits(tokens), 'until', digits(paused))
redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(requests, tokens, paused, now) - now) + 3600000)
return {1, math.ceil(wait)}
