#!lua flags=no-writes
-- What the commits after one say of the nodes they made, rewrote and removed, without any vectors of leaves.
--
-- KEYS  1 state  2 log  3 bodies of log entries
-- ARGV  1 commits after this one  2 at most so many  3 bytes after which no more are added  4 a commit that the caller has seen, or
--       "0"  5 its name
-- REPLY {last commit, its name, body of the commit given (false for 0, and where it is not in the log), {seq, names, body}, …};
--       {} when the commit that the caller has seen is not in this history
-- ERROR NOTREE
-- COST  O(entries, bounded by the arguments and, beyond those, 16: they are read 16 at a time); two reads where there is nothing
--       new
-- include: lib_rows
-- include: lib_log

local state = redis.call('HMGET', KEYS[1], 'seq', 'head')
if not state[1] then return NO_TREE end
if lost(KEYS[1], KEYS[2], ARGV[4], ARGV[5]) then return {} end
local reply = {state[1], state[2] or '', false}
if tonumber(state[1]) == tonumber(ARGV[1]) then return reply end
local limit, bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local from, size, count = ARGV[1] .. '-0', 0, 0
while count < limit and size < bytes do
  local some = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', 16)
  for _, one in ipairs(with_bodies(KEYS[3], some)) do
    local seq, fields = one[1], one[2]
    if seq == ARGV[1] then
      reply[3] = fields.b
    elseif size < bytes and count < limit then
      reply[#reply + 1] = {seq, fields.n, fields.b}
      size, count = size + #fields.n + #fields.b, count + 1
    end
  end
  if #some < 16 then return reply end
  from = '(' .. some[16][1]
end
return reply
