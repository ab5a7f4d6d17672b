#!lua flags=no-writes
-- The nodes that commits after one touched, as they are now, or, when those are many, their names alone.
--
-- KEYS  1 state  2 nodes  3 content  4 log
-- ARGV  1 commits after this one  2 commits at most  3 names at most  4 what of the content: see `slice` in lib_rows
--       5 msgpack ids of more nodes that are wanted
-- REPLY {seq, 1, dimension, id, row, content, …} all of them, as of seq, the rows of those that were removed missing ·
--       {seq, 0, id, …} those named by the commits up to seq,
--       where there are more
-- ERROR NOTREE
-- COST  O(commits + names, both bounded by the arguments)
-- include: lib_rows

local dimension = dimension_of(KEYS[1])
if not dimension then return NO_TREE end
local seq = tonumber(redis.call('HGET', KEYS[1], 'seq'))
local ids, known = cmsgpack.unpack(ARGV[5]), {}
for _, id in ipairs(ids) do known[id] = true end
local extra, at = #ids, tonumber(ARGV[1])
for _, entry in ipairs(redis.call('XRANGE', KEYS[4], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])) do
  if #ids > tonumber(ARGV[3]) then break end
  at = tonumber((string.match(entry[1], '^(%d+)')))
  for index = 1, #entry[2], 2 do
    if entry[2][index] == 'n' then
      for _, id in ipairs(cmsgpack.unpack(entry[2][index + 1])) do
        if not known[id] then
          known[id] = true
          ids[#ids + 1] = id
        end
      end
    end
  end
end
if at < seq or #ids > tonumber(ARGV[3]) then
  local names = {string.format('%.0f', at), 0}
  for index = extra + 1, #ids do names[#names + 1] = ids[index] end
  return names
end
local reply = {string.format('%.0f', seq), 1, dimension}
local contents = ARGV[4] ~= 'n' and hmget(KEYS[3], ids) or {}
for index, row in ipairs(hmget(KEYS[2], ids)) do
  reply[#reply + 1] = ids[index]
  reply[#reply + 1] = row
  reply[#reply + 1] = slice(contents[index], ARGV[4], dimension) or ''
end
return reply
