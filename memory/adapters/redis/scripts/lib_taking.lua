-- Taking leaves out of a tree; put in front of `apply`, whose keys it uses (after lib_waiting).

local FIRST_KEY = 17 -- the request numbers its keys from 1

local TOMBSTONE = 8 -- bytes of the receipt of a forgotten event: the number of the commit alone

-- The leaves that a receipt names: number, then msgpack of the digest (of which Redis's msgpack does not know the type) and leaves.
local function leaves_of(receipt) return cmsgpack.unpack(string.sub(receipt, 12 + string.byte(receipt, 11))) end

-- Tells what keeps nodes from being removed: a child that stays, or a leaf of a forgotten event that stays.
local function misfits_of_removes(request, rows, names, known, misfit, stale)
  local gone = {}
  for _, one in ipairs(request.removes) do
    gone[names[one[1]]] = true
    local row = rows[one[1]]
    if row and row[1] == 1 and redis.call('ZCARD', KEYS[FIRST_KEY + one[3]]) ~= one[2] then misfit(one[1]) end
  end
  for _, receipt in ipairs(known) do
    for _, leaf in ipairs(leaves_of(receipt)) do
      if not gone[leaf] then stale[#stale + 1] = leaf end
    end
  end
end

local function add_strays(key, node, more)
  local strays = strays_of(key, node)
  for _, one in ipairs(more) do strays[#strays + 1] = one end
  keep_strays(key, node, strays)
end

-- Notes which of a node's contributions are a leaf's; `of` as in `waiting_after`.
local function gather(of, leaf, row)
  for _, mark in ipairs({row[8], of.row[8]}) do
    local seq = math.floor(mark / MARKS)
    if not of.commits[seq] then
      local places, some, first = {}, of_commit(of.key, of.size, seq)
      for at, one in ipairs(some) do
        local waits = string.sub(one, 9)
        places[waits] = places[waits] or {}
        table.insert(places[waits], first + at - 1)
      end
      of.commits[seq] = places
    end
    for _, place in ipairs(of.commits[seq][leaf] or {}) do of.gone[place] = true end
  end
  of.stray = of.stray or strays_of(of.strays, of.name)
  for at = #of.stray, 1, -1 do
    local one = of.stray[at]
    if string.sub(one, 9) == leaf then
      local place = trimmed(of.key, of.size, struct.unpack('>d', one) - 1)
      if redis.call('LINDEX', of.key, place) == one then of.gone[place] = true end
      table.remove(of.stray, at)
      of.fewer = true
    end
  end
end

-- Takes out what was noted, in one pass however many they are.
local function take_out(of)
  local count = 0
  for place in pairs(of.gone) do
    redis.call('LSET', of.key, place, '')
    count = count + 1
  end
  if count > 0 then redis.call('LREM', of.key, 0, '') end
  if of.fewer then keep_strays(of.strays, of.name, of.stray) end
  of.size, of.gone, of.commits, of.stray, of.fewer = of.size - count, {}, {}, nil, false
end

-- Does what a set asks of a node's contributions, in its order, and gives how many there are then. `of` has the key and size of the
-- list, the node's row and name, rows and names of the set, the contributions that it adds, and the key of strays.
local function waiting_after(steps, of)
  of.gone, of.commits = {}, {}
  for at = 1, #steps, 2 do
    local what, value = steps[at], steps[at + 1]
    if what ~= 0 then take_out(of) end
    if what == 0 then -- a leaf goes
      if of.size > 0 then gather(of, of.names[value], of.rows[value]) end
    elseif what == 1 then -- those up to a mark are covered
      if of.size > 0 and value >= mark_at(of.key, 0) then
        local covered = trimmed(of.key, of.size, value)
        redis.call('LTRIM', of.key, covered, -1)
        of.size = of.size - covered
      end
    elseif what == 2 or of.size == 0 then -- another waits, or (3) does so where nothing did
      redis.call('RPUSH', of.key, of.contributions[value])
      if what == 3 then keep_strays(of.strays, of.name, {}) end
      add_strays(of.strays, of.name, {of.contributions[value]})
      of.size = of.size + 1
    end
  end
  take_out(of)
  return of.size
end

-- Where a node is in the list of all, which is in order of marks. Those made together are neighbours: `near` is the last found.
local function place_of(order, nodes, name, mark, near)
  for at, one in ipairs(near and redis.call('LRANGE', order, near + 1, near + 16) or {}) do
    if one == name then return near + at end
  end
  local low, high = 0, redis.call('LLEN', order)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local one = redis.call('LINDEX', order, middle)
    local at = string.byte(one) == 0 and struct.unpack('>d', one, 2) or mark_of(redis.call('HGET', nodes, one))
    if at < mark then low = middle + 1 else high = middle end
  end
  return low
end

-- Removes nodes: nothing of them is left but their ids in the log. In the list of all a zero byte and the mark take a node's place,
-- so that the others keep theirs, and their order.
local function remove_nodes(request, rows, names, count, place)
  local gone, beside, at = {}, {}, nil
  for position, one in ipairs(request.removes) do
    local index, waiting = one[1], KEYS[FIRST_KEY + one[4]]
    local row, is_leaf = rows[index], rows[index][1] == 2
    gone[position] = names[index]
    count((is_leaf and 'l' or 's') .. row[3], -1)
    count(is_leaf and 'leaves' or 'summaries', -1)
    if is_leaf then rows[request.root][6] = rows[request.root][6] - 1 end
    if row[7] > 0 then
      redis.call('ZREM', KEYS[8], place(row, index, mark_at(waiting, 0)))
      count('pending', -row[7])
    end
    if not is_leaf then redis.call('DEL', waiting, KEYS[FIRST_KEY + one[3]]) end
    beside[one[5]] = beside[one[5]] or {}
    table.insert(beside[one[5]], names[index])
    at = place_of(KEYS[5], KEYS[2], names[index], row[8], at)
    redis.call('LSET', KEYS[5], at, '\0' .. struct.pack('>d', row[8]))
  end
  for key, members in pairs(beside) do many('ZREM', KEYS[FIRST_KEY + key], members) end
  if #gone > 0 then
    for _, key in ipairs({KEYS[2], KEYS[3], KEYS[9], KEYS[FIRST_KEY + request.removes[1][6]]}) do many('HDEL', key, gone) end
  end
end
