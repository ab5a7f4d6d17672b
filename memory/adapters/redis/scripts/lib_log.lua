-- The change log; put in front of the scripts that say `-- include: lib_log` (after lib_rows).
--
-- A stream with an entry a commit, numbered seq-0: n = msgpack of the names that the commit names, the leaves it made first;
-- l = how many those are; x = the name of the commit. The state has the last one's as `head`. The bodies are in a hash, by seq:
-- an entry of a stream cannot be changed (logs begun before that have them in the stream, as b).

-- Fields of a stream entry's flat list, by name.
local function fields_of(flat)
  local fields = {}
  for index = 1, #flat, 2 do fields[flat[index]] = flat[index + 1] end
  return fields
end

-- Whether the commit that the caller has seen is not in this history: a failover or a restart lost it. `known` "0" asks nothing.
local function lost(state, log, known, name)
  if known == '0' then return false end
  local found = redis.call('HMGET', state, 'seq', 'head')
  if tonumber(found[1]) < tonumber(known) then return true end
  if found[1] == known then return found[2] ~= name end
  local entry = redis.call('XRANGE', log, known .. '-0', known .. '-0')[1]
  return entry ~= nil and fields_of(entry[2]).x ~= name
end

-- Entries as the stream gives them, each as {seq, fields}, with their bodies.
local function with_bodies(bodies, entries)
  local seqs, found = {}, {}
  for index, one in ipairs(entries) do
    seqs[index] = string.match(one[1], '^(%d+)')
    found[index] = {seqs[index], fields_of(one[2])}
  end
  for index, body in ipairs(hmget(bodies, seqs)) do found[index][2].b = found[index][2].b or body or '' end
  return found
end

-- Vectors of the leaves that a commit made, joined; zeros for those that were removed since. `tree` as in `entries_after`.
local function leaf_vectors(tree, seq, names, count)
  local made, vectors = {}, {}
  for index = 1, count do made[index] = names[index] end
  local contents = hmget(tree.content, made)
  if tree.floor == 0 then
    for index, blob in ipairs(contents) do vectors[index] = slice(blob, 'v', tree.dimension) or '' end
    return table.concat(vectors)
  end
  local first = tonumber(seq) * 1048576
  for index, row in ipairs(hmget(tree.nodes, made)) do
    local mark = row and mark_of(row)
    local there = mark and mark >= first and mark < first + 1048576 -- else another node has the id now
    vectors[index] = there and slice(contents[index], 'v', tree.dimension) or string.rep('\0', 2 * tree.dimension)
  end
  return table.concat(vectors)
end

-- Entries after `after`, at most `limit` and not many more than `bytes`, each {seq, names, body, vectors of the leaves joined};
-- and 0 when there are no more. `tree` has the keys log, bodies, nodes and content, and the tree's dimension and floor.
local function entries_after(tree, after, limit, bytes)
  local entries, size = {}, 0
  local from = '(' .. after .. '-0'
  while #entries < limit and size < bytes do
    local wanted = math.min(16, limit - #entries)
    local some = redis.call('XRANGE', tree.log, from, '+', 'COUNT', wanted)
    for _, one in ipairs(with_bodies(tree.bodies, some)) do
      local seq, fields, joined = one[1], one[2], ''
      local leaves = tonumber(fields.l)
      if leaves > 0 then joined = leaf_vectors(tree, seq, cmsgpack.unpack(fields.n), leaves) end
      entries[#entries + 1] = {seq, fields.n, fields.b, joined}
      size = size + #fields.n + #fields.b + #joined
      if size >= bytes then return entries, 1 end
    end
    if #some < wanted then return entries, 0 end
    from = '(' .. some[#some][1]
  end
  return entries, 1
end
