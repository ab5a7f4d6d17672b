#!lua flags=no-writes
-- Log entries after a commit, with the vectors of the leaves they made.
--
-- KEYS  1 state  2 content  3 log
-- ARGV  1 commits after this one  2 at most so many  3 bytes after which no more are added  4 a commit that the caller has seen, or
--       "0"  5 its name
-- REPLY {dimension, 1 when there are more or 0, last commit, its name, {seq, names, body, vectors}, …}; {} when the commit that the
--       caller has seen is not in this history
-- ERROR NOTREE
-- COST  O(entries + their leaves, bounded by the arguments)
-- include: lib_rows
-- include: lib_log

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
if lost(KEYS[1], KEYS[3], ARGV[4], ARGV[5]) then return {} end
local entries, more = entries_after(KEYS[3], KEYS[2], dimension, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
local last = redis.call('HMGET', KEYS[1], 'seq', 'head')
for position, value in ipairs({dimension, more, last[1], last[2] or ''}) do table.insert(entries, position, value) end
return entries
