#!lua
-- Take edges to nodes that are not there any more out of some elements of the list of edges. Each keeps its place, so that readers'
-- pages fit together; one of which nothing is left keeps when it was made. Repeating it is harmless.
--
-- KEYS  1 state  2 nodes  3 edges
-- ARGV  1 place of the first element, from 0  2 elements that are looked at at most
-- REPLY place at which to go on, or 0 at the end
-- ERROR NOTREE
-- COST  O(place + edges of these elements)
-- include: lib_rows

if not dimension_of(KEYS[1]) then return NO_TREE end
local NONE = cmsgpack.pack({'', {}, {}})
local first = tonumber(ARGV[1])
local some = redis.call('LRANGE', KEYS[3], first, first + tonumber(ARGV[2]) - 1)
local links, names, known = {}, {}, {}
for at, one in ipairs(some) do
  local link = cmsgpack.unpack(string.sub(one, 9))
  links[at] = link
  for place = 0, #link[2] do
    local name = place == 0 and link[1] or link[2][place]
    if not known[name] then
      known[name] = true
      names[#names + 1] = name
    end
  end
end
local marks = {}
for index, row in ipairs(hmget(KEYS[2], names)) do
  if row then marks[names[index]] = mark_of(row) end
end
for at, one in ipairs(some) do
  local node, others, weights = unpack(links[at])
  -- One made after the edge has the id of one that was removed.
  local made = struct.unpack('>d', one)
  local function stands(name) return marks[name] and marks[name] < made end
  local kept, weighed = {}, {}
  for place, other in ipairs(stands(node) and others or {}) do
    if stands(other) then
      kept[#kept + 1] = other
      weighed[#weighed + 1] = weights[place]
    end
  end
  if node ~= '' and (#kept < #others or not stands(node)) then
    local left = #kept > 0 and cmsgpack.pack({node, kept, weighed}) or NONE
    redis.call('LSET', KEYS[3], first + at - 1, string.sub(one, 1, 8) .. left)
  end
end
return #some == tonumber(ARGV[2]) and first + #some or 0
