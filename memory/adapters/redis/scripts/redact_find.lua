#!lua flags=no-writes
-- The next log entries that speak of some nodes.
--
-- KEYS  1 state  2 log  3 bodies of log entries
-- ARGV  1 commits after this one  2 up to this one  3 entries that are looked at at most  4 bytes after which no more are given
--       5 msgpack node ids
-- REPLY {commit after which to go on, or "0" at the end, seq, names, body, …}, the body '' where the stream has it
-- ERROR NOTREE
-- COST  O(entries and their names + ids, bounded by the arguments)
-- include: lib_rows
-- include: lib_log

if not dimension_of(KEYS[1]) then return NO_TREE end
local wanted = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[5])) do wanted[id] = true end
local some = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-0', ARGV[2] .. '-0', 'COUNT', ARGV[3])
local reply, size, at = {'0'}, 0, '0'
for _, one in ipairs(some) do
  local seq, fields = string.match(one[1], '^(%d+)'), fields_of(one[2])
  for _, name in ipairs(cmsgpack.unpack(fields.n)) do
    if wanted[name] then
      local body = not fields.b and redis.call('HGET', KEYS[3], seq) or ''
      size = size + #fields.n + #body
      for _, part in ipairs({seq, fields.n, body}) do reply[#reply + 1] = part end
      break
    end
  end
  at = seq
  if size >= tonumber(ARGV[4]) then break end
end
if tonumber(at) < tonumber(ARGV[2]) and (#some == tonumber(ARGV[3]) or size >= tonumber(ARGV[4])) then reply[1] = at end
return reply
