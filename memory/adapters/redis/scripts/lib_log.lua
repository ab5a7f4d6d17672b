-- The change log; put in front of the scripts that say `-- include: lib_log` (after lib_rows).
--
-- A stream with an entry a commit, numbered seq-0: n = msgpack of the names that the commit names, the leaves it made first;
-- l = how many those are; b = the body; x = the name of the commit. The state has the last one's as `head`.

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

-- Entries after `after`, at most `limit` and not many more than `bytes`, each {seq, names, body, vectors of the leaves joined};
-- and 0 when there are no more.
local function entries_after(log, content, dimension, after, limit, bytes)
  local entries, size = {}, 0
  local from = '(' .. after .. '-0'
  while #entries < limit and size < bytes do
    local wanted = math.min(16, limit - #entries)
    local some = redis.call('XRANGE', log, from, '+', 'COUNT', wanted)
    for _, one in ipairs(some) do
      local fields = fields_of(one[2])
      local leaves, vectors = tonumber(fields.l), {}
      if leaves > 0 then
        local names, made = cmsgpack.unpack(fields.n), {}
        for index = 1, leaves do made[index] = names[index] end
        for index, blob in ipairs(hmget(content, made)) do vectors[index] = slice(blob, 'v', dimension) end
      end
      local joined = table.concat(vectors)
      entries[#entries + 1] = {string.match(one[1], '^(%d+)'), fields.n, fields.b, joined}
      size = size + #fields.n + #fields.b + #joined
      if size >= bytes then return entries, 1 end
    end
    if #some < wanted then return entries, 0 end
    from = '(' .. some[#some][1]
  end
  return entries, 1
end

