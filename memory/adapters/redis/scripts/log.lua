#!lua flags=no-writes
-- Log entries after a commit, with the vectors of the leaves they made.
--
-- KEYS  1 state  2 nodes  3 content  4 log  5 bodies of log entries
-- ARGV  1 commits after this one  2 at most so many  3 bytes after which no more are added  4 a commit that the caller has seen, or
--       "0"  5 its name
-- REPLY {dimension, 1 when there are more or 0, last commit, its name, {seq, names, body, vectors}, …}; {} when the commit that the
--       caller has seen is not in this history. Vectors of leaves that were removed are zeros
-- ERROR NOTREE
-- COST  O(entries + their leaves, bounded by the arguments)
-- include: lib_rows
-- include: lib_log

local found = redis.call('HMGET', KEYS[1], 'dimension', 'floor', 'seq', 'head')
if not found[1] then return NO_TREE end
if lost(KEYS[1], KEYS[4], ARGV[4], ARGV[5]) then return {} end
local tree = {log = KEYS[4], bodies = KEYS[5], nodes = KEYS[2], content = KEYS[3]}
tree.dimension, tree.floor = tonumber(found[1]), tonumber(found[2] or 0)
local entries, more = entries_after(tree, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
for position, value in ipairs({tree.dimension, more, found[3], found[4] or ''}) do table.insert(entries, position, value) end
return entries
