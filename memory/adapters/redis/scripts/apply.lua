#!lua
-- Compare and apply one change set: all of it or nothing (memory/ports/store.py; decision 0006).
--
-- KEYS  1 state  2 nodes  3 content  4 events  5 order  6 log  7 bodies of log entries  8 dirty  9 strays (see lib_waiting)
--       10 … 17 leases (ends, held, nodes, granted, queue, seen, wants, token: see lib_leases)  18 … children, contributions, edges
--       and failures that the request names by number
-- ARGV  1 msgpack request (memory/adapters/redis/request.py)  2 msgpack names  3 body of the log entry  4 name of this commit
--       5 token of a lease, or ""  6 "1" when this is asked again after an answer was lost  7 "1" to write even when nothing is
--       changed, so that a WAIT that follows covers what was found  8 "1" to refuse what would change the children of a node that
--       another's lease has
--       9 a commit that the caller has seen, or "0"  10 its name
--       11 the commit that the caller's view is of, or "-1"  12 log entries after it at most 13 bytes after which no more are added
--       14 "1" to give the lease back when it is applied  15 what a waiter's name is added to for its list (same slot)
-- REPLY {1, seq, dimension, "1" when the lease was given back, {entry, …}} applied, with the commits between the caller's view
--       and this one, each as in `log` · {2, event, receipt, …} seen ·
--       {3, seq, dimension, its name, {node, …}, {entry, …}} stale · {4, node} of the wrong kind ·
--       {5, dimension} the vectors have another · {6} the lease has ended ·
--       {7} the commit that the caller has seen is not in this history
-- ERROR NOTREE
-- COST  O(steps + names + contributions added, trimmed or taken over + log of children of the parents + entries asked for, bounded
--       by the arguments); no other reads or writes. Taking leaves out: for each node that they lie below, O(leaves + contributions
--       of the commits that made them), and one pass in C through its list; for each node that is removed O(log nodes)
-- include: lib_leases
-- include: lib_rows
-- include: lib_log
-- include: lib_waiting
-- include: lib_taking

local request, names = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
local STATE, NODES, CONTENT, EVENTS, ORDER, LOG, BODIES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local DIRTY, STRAYS = KEYS[8], KEYS[9]
local keys = lease_keys(9)

local found = redis.call('HMGET', STATE, 'seq', 'dimension', 'head', 'floor', 'redacted')
if not found[1] then return NO_TREE end
local last, dimension, floor = tonumber(found[1]), tonumber(found[2]), tonumber(found[4] or 0)
local now = clock()

-- ------------------------------------------------------------------------------------------------------------ compare

if lost(STATE, LOG, ARGV[9], ARGV[10]) then return {7} end
if ARGV[6] == '1' then
  -- Asked again: was it applied then, and only the answer lost?
  for _, entry in ipairs(redis.call('XREVRANGE', LOG, '+', '-', 'COUNT', 64)) do
    for index = 1, #entry[2], 2 do
      if entry[2][index] == 'x' and entry[2][index + 1] == ARGV[4] then
        if ARGV[7] == '1' then redis.call('HSET', STATE, 'asked', digits(now)) end
        return {1, tonumber(string.match(entry[1], '^(%d+)')), dimension, '0', {}}
      end
    end
  end
end

if ARGV[5] ~= '' then
  local ends = redis.call('ZSCORE', keys.ends, ARGV[5])
  if not ends or tonumber(ends) <= now then return {6} end
end

local known = {} -- receipts of events that are forgotten now
if #request.events + #request.forgets > 0 then
  local seen = {2}
  for index, receipt in ipairs(hmget(EVENTS, request.events)) do
    if receipt then
      seen[#seen + 1] = request.events[index]
      seen[#seen + 1] = receipt
    end
  end
  for index, receipt in ipairs(hmget(EVENTS, request.forgets)) do
    if receipt and #receipt == TOMBSTONE then
      seen[#seen + 1] = request.forgets[index]
      seen[#seen + 1] = receipt
    elseif receipt then
      known[#known + 1] = receipt
    end
  end
  if #seen > 1 then
    if ARGV[7] == '1' then redis.call('HSET', STATE, 'asked', digits(now)) end
    return seen
  end
end
if request.dimension > 0 and request.dimension ~= dimension then return {5, dimension} end

-- By number of the name: {kind, provisional, depth, version, routing, descendants, pending, mark, cohesion, parent, attributes}.
local rows = {}
for index, packed in ipairs(hmget(NODES, names)) do
  if packed then
    local kind, provisional, depth, version, routing, descendants, pending, mark, cohesion = struct.unpack(ROW, packed)
    local parent, attributes = tail_of(packed)
    rows[index] = {kind, provisional, depth, version, routing, descendants, pending, mark, cohesion, parent, attributes}
  end
end

local stale, is_stale = {}, {}
local function misfit(index)
  if not is_stale[index] then
    is_stale[index] = true
    stale[#stale + 1] = names[index]
  end
end

for _, index in ipairs(request.contradictions) do misfit(index) end
for _, index in ipairs(request.new) do if rows[index[1]] then misfit(index[1]) end end
for _, index in ipairs(request.present) do if not rows[index] then misfit(index) end end
for _, index in ipairs(request.summaries) do
  if rows[index] and rows[index][1] ~= 1 then return {4, names[index]} end
end
for _, index in ipairs(request.taken) do
  if rows[index] and rows[index][1] ~= 2 then return {4, names[index]} end
end
for index = 1, #request.expects, 3 do
  local row, version, routing = rows[request.expects[index]], request.expects[index + 1], request.expects[index + 2]
  if not row or (version and version ~= row[4]) or (routing and routing ~= row[5]) then misfit(request.expects[index]) end
end
for index = 1, #request.parents, 2 do
  local row = rows[request.parents[index]]
  if row and row[10] ~= names[request.parents[index + 1]] then misfit(request.parents[index]) end
end
misfits_of_removes(request, rows, names, known, misfit, stale)
if ARGV[8] == '1' and #request.guarded > 0 and redis.call('EXISTS', keys.ends) == 1 then
  -- Children of these change: whoever has them under a lease must not have its plan refused for that.
  purge_leases(keys, now)
  local mine = {}
  local record = ARGV[5] ~= '' and redis.call('HGET', keys.held, ARGV[5])
  if record then
    local lease = cmsgpack.unpack(record)
    for _, node in ipairs(lease[1]) do mine[node] = 1 end
    for _, node in ipairs(lease[2]) do mine[node] = -1 end
  end
  local guarded = {}
  for position, index in ipairs(request.guarded) do guarded[position] = names[index] end
  for position, holders in ipairs(hmget(keys.nodes, guarded)) do
    if holders and tonumber(holders) ~= mine[guarded[position]] then misfit(request.guarded[position]) end
  end
end
local missed = {} -- what the caller's view lacks of the commits before this one
if tonumber(ARGV[11]) >= 0 and tonumber(ARGV[11]) < last then
  local tree = {log = LOG, bodies = BODIES, nodes = NODES, content = CONTENT, dimension = dimension, floor = floor}
  missed = entries_after(tree, ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13]))
end
if #stale > 0 then return {3, digits(last), dimension, found[3] or '', stale, missed} end

-- -------------------------------------------------------------------------------------------------------------- apply

local seq = last + 1
local base = seq * MARKS
local counts = {}
local function count(field, change) counts[field] = (counts[field] or 0) + change end
local changed = {} -- numbers of the names whose rows are written
local written = {} -- for the hash of contents

local function place(row, index, oldest) return struct.pack('>dd', oldest, row[8]) .. names[index] end

local ids = {}
for position, new in ipairs(request.new) do
  local index = new[1]
  rows[index] = {new[2], new[3], new[4], new[5], new[6], new[7], 0, base + new[10], new[8], names[new[9]], new[12]}
  ids[position] = names[index]
  changed[#changed + 1] = index
  written[#written + 1] = names[index]
  written[#written + 1] = new[11]
end
for _, over in ipairs(request.over) do
  -- What the other node has in the store, before this set changes it.
  local row, other = rows[over[1]], rows[over[2]]
  row[6], row[7] = row[6] + other[6], other[7]
  if other[7] > 0 then
    redis.call('COPY', KEYS[FIRST_KEY + over[3]], KEYS[FIRST_KEY + over[4]])
    keep_strays(STRAYS, names[over[1]], strays_of(STRAYS, names[over[2]]))
    local own = of_commit(KEYS[FIRST_KEY + over[3]], other[7], math.floor(other[8] / MARKS))
    add_strays(STRAYS, names[over[1]], own)
    redis.call('ZADD', DIRTY, -row[3], place(row, over[1], mark_at(KEYS[FIRST_KEY + over[4]], 0)))
    count('pending', other[7])
  end
end
local before = {} -- depths of dirty nodes as they were
for _, change in ipairs(request.changed) do
  local index = change[1]
  local row = rows[index]
  row[4], row[5], row[6] = row[4] + change[3], row[5] + change[2], row[6] + change[4]
  if change[5] > 0 then
    local letter = row[1] == 2 and 'l' or 's'
    count(letter .. row[3], -1)
    count(letter .. change[6], 1)
    before[index] = row[3]
    row[10], row[3] = names[change[5]], change[6]
  end
  if change[7] then
    row[9], row[2] = change[7], change[8]
    written[#written + 1] = names[index]
    written[#written + 1] = change[9]
  end
  changed[#changed + 1] = index
end

for _, annotated in ipairs(request.annotated) do
  local row = rows[annotated[1]]
  local attributes = row[11] == '' and {} or cmsgpack.unpack(string.sub(row[11], 2))
  for name, value in pairs(annotated[2]) do attributes[name] = value end
  row[11] = '\0' .. cmsgpack.pack(attributes)
end
for _, link in ipairs(request.links) do
  redis.call('RPUSH', KEYS[FIRST_KEY + link[1]], struct.pack('>d', base + link[2]) .. link[3])
end

local contributions = {}
for position, grow in ipairs(request.grows) do contributions[position] = struct.pack('>d', base + grow[1]) .. names[grow[2]] end
for _, grown in ipairs(request.grown) do
  local index, key, through = grown[1], KEYS[FIRST_KEY + grown[2]], grown[3]
  local row = rows[index]
  local size, depth_before = row[7], before[index] or row[3]
  local oldest = size > 0 and mark_at(key, 0) or nil
  local left, oldest_left = size, oldest
  if size > 0 and through >= oldest then
    left = size - trimmed(key, size, through)
    if left == 0 then redis.call('DEL', key) else redis.call('LTRIM', key, size - left, -1) end
    oldest_left = left > 0 and mark_at(key, 0) or nil
  end
  local added, strays = {}, {}
  for reference = 1, #grown[4], 2 do
    local grow = grown[4][reference]
    if base + request.grows[grow][1] > grown[4][reference + 1] then
      oldest_left = oldest_left or base + request.grows[grow][1]
      added[#added + 1] = contributions[grow]
      if row[8] < base and rows[request.grows[grow][2]][8] < base then strays[#strays + 1] = contributions[grow] end
    end
  end
  if #strays > 0 then add_strays(STRAYS, names[index], strays) end
  many('RPUSH', key, added)
  row[7] = left + #added
  count('pending', row[7] - size)
  if oldest ~= oldest_left or depth_before ~= row[3] then
    if oldest then redis.call('ZREM', DIRTY, place(row, index, oldest)) end
    if oldest_left then redis.call('ZADD', DIRTY, -row[3], place(row, index, oldest_left)) end
  end
end

for _, shrunk in ipairs(request.waiting) do
  local index, key = shrunk[1], KEYS[FIRST_KEY + shrunk[2]]
  local row, size = rows[index], rows[index][7]
  local oldest = size > 0 and mark_at(key, 0) or nil
  local of = {key = key, size = size, row = row, rows = rows, names = names, name = names[index], strays = STRAYS}
  of.contributions = contributions
  row[7] = waiting_after(shrunk[3], of)
  local oldest_left = row[7] > 0 and mark_at(key, 0) or nil
  count('pending', row[7] - size)
  if oldest ~= oldest_left then
    if oldest then redis.call('ZREM', DIRTY, place(row, index, oldest)) end
    if oldest_left then redis.call('ZADD', DIRTY, -row[3], place(row, index, oldest_left)) end
  end
end
remove_nodes(request, rows, names, count, place)

local packed = {}
for _, index in ipairs(changed) do
  local row = rows[index]
  packed[#packed + 1] = names[index]
  packed[#packed + 1] = struct.pack(ROW, unpack(row, 1, 9)) .. row[10] .. row[11]
end
many('HSET', NODES, packed)
many('HSET', CONTENT, written)
many('RPUSH', ORDER, ids)
for _, gone in ipairs(request.leaving) do redis.call('ZREM', KEYS[FIRST_KEY + gone[1]], names[gone[2]]) end
for _, coming in ipairs(request.coming) do
  local members = {}
  for _, index in ipairs(coming[2]) do
    members[#members + 1] = rows[index][8]
    members[#members + 1] = names[index]
  end
  many('ZADD', KEYS[FIRST_KEY + coming[1]], members)
end
local receipts = {}
for position, event in ipairs(request.events) do
  receipts[#receipts + 1] = event
  receipts[#receipts + 1] = struct.pack('>d', seq) .. request.receipts[position]
end
for _, event in ipairs(request.forgets) do
  receipts[#receipts + 1] = event
  receipts[#receipts + 1] = struct.pack('>d', seq)
end
count('events', -#known)
many('HSET', EVENTS, receipts)
for index = 1, #request.counts, 2 do count(request.counts[index], request.counts[index + 1]) end
for field, change in pairs(counts) do
  if change ~= 0 then redis.call('HINCRBY', STATE, field, change) end
end
redis.call('HSET', STATE, 'seq', seq, 'head', ARGV[4])
if #request.removes > 0 then
  if floor <= tonumber(found[5] or 0) then redis.call('HSET', STATE, 'redacted', digits(last)) end
  redis.call('HSET', STATE, 'floor', digits(seq))
end
redis.call('HSET', BODIES, digits(seq), ARGV[3])
redis.call('XADD', LOG, digits(seq) .. '-0', 'n', ARGV[2], 'l', request.leaves, 'x', ARGV[4])
local released = ARGV[14] == '1' and give_back(keys, ARGV[5], now, ARGV[15])
return {1, digits(seq), dimension, released and '1' or '0', missed}
