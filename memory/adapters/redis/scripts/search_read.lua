#!lua flags=no-writes
-- Searches in a tree's index and reads the words of what was found; or reads named nodes and their neighbours.
-- All of one moment.
--
-- KEYS  1 standing of the tree (hash)  2 there while the index that it is in is being filled (string)
-- ARGV  1 generation  2 what the keys of its documents begin with  3 what the keys of its sequences begin with  4 key of its terms
--       5 neighbours on each side  6 MessagePack of {searches: each the words of an FT.SEARCH; nodes; terms}
-- REPLY {1, seq, texts, length, counts of the terms, documents}, each as {node, words, number of the search that found it}, or
--       without searches as {node, vector, words, info, rank in its sequence or -1}, the named ones first; {0} when the tree has
--       another generation now; {-1, what the search module said}; {-2} while the index is being filled
-- COST  the searches, and O(found * neighbours)

local held = redis.call('HMGET', KEYS[1], 'generation', 'seq', 'texts', 'length')
if held[1] ~= ARGV[1] then return {0} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {-2} end
local wanted = cmsgpack.unpack(ARGV[6])
local order, seen = {}, {}
local function take(key, by)
  if not seen[key] then
    seen[key] = by
    order[#order + 1] = key
  end
end
for number, words in ipairs(wanted.searches) do
  local answer = redis.pcall(unpack(words))
  if answer.err then return {-1, answer.err} end
  for each = 2, #answer do take(answer[each], number) end
end
for _, node in ipairs(wanted.nodes) do take(ARGV[2] .. node, 0) end
local found = #order
local documents, spread = {}, tonumber(ARGV[5])
local brief = #wanted.searches > 0
local prefix, ranks = #ARGV[2] + 1, {}
local each = 1
while each <= #order do
  local key = order[each]
  if brief then
    documents[#documents + 1] = {string.sub(key, prefix), redis.call('HGET', key, 'words') or '', seen[key]}
  end
  local row = {}
  if not brief and each > found then -- a neighbour: where it stands is known
    row = redis.call('HMGET', key, 'vector', 'words', 'info')
  elseif not brief then
    row = redis.call('HMGET', key, 'vector', 'words', 'info', 'line', 'place')
  end
  if row[1] then
    local rank = ranks[key] or -1
    if row[4] then
      local line = ARGV[3] .. row[4]
      rank = ranks[key] or redis.call('ZRANK', line, row[5])
      if spread > 0 and each <= found then
        local first = math.max(0, rank - spread)
        for number, place in ipairs(redis.call('ZRANGE', line, first, rank + spread)) do
          local near = ARGV[2] .. string.sub(place, 35)
          ranks[near] = first + number - 1
          take(near, 0)
        end
      end
    end
    documents[#documents + 1] = {string.sub(key, prefix), row[1], row[2], row[3], rank}
  end
  each = each + 1
end
local counts = {}
for first = 1, #wanted.terms, 1000 do
  local page = redis.call('HMGET', ARGV[4], unpack(wanted.terms, first, math.min(first + 999, #wanted.terms)))
  for number = 1, #page do counts[#counts + 1] = page[number] end
end
return {1, held[2], held[3], held[4], counts, documents}
