#!lua
-- Put redacted bodies in the place of log entries' bodies; or note how far everything is redacted. Repeating it is harmless.
--
-- KEYS  1 state  2 bodies of log entries
-- ARGV  1 commit up to which nothing that was removed is left in the log, or "0"
--       2 msgpack of {seq, SHA-1 of the body that was read in hexadecimal digits, body} each
-- REPLY {seq, …} of those that have another body by now: they were not changed
-- ERROR NOTREE
-- COST  O(bodies and their bytes)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
local others = {}
for _, one in ipairs(cmsgpack.unpack(ARGV[2])) do
  local body = redis.call('HGET', KEYS[2], one[1])
  if body and redis.sha1hex(body) == one[2] then
    redis.call('HSET', KEYS[2], one[1], one[3])
  else
    others[#others + 1] = one[1]
  end
end
local redacted = tonumber(redis.call('HGET', KEYS[1], 'redacted') or 0)
if redacted < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'redacted', ARGV[1]) end
return others
