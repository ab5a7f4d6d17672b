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

-- Takes a leaf out of what waits at a node. `of` as in `waiting_after`.
local function drop(of, leaf, row)
  local strays, left = strays_of(of.strays, of.name), {}
  local function all_of(elements)
    for _, one in ipairs(elements) do
      if string.sub(one, 9) == leaf then of.size = of.size - redis.call('LREM', of.key, 1, one) end
    end
  end
  for _, mark in ipairs({row[8], of.row[8]}) do
    local seq = math.floor(mark / MARKS)
    of.commits[seq] = of.commits[seq] or of_commit(of.key, of.size, seq)
    all_of(of.commits[seq])
  end
  all_of(strays)
  for _, one in ipairs(strays) do
    if string.sub(one, 9) ~= leaf then left[#left + 1] = one end
  end
  if #left < #strays then keep_strays(of.strays, of.name, left) end
end

-- Does what a set asks of a node's contributions, in its order, and gives how many there are then. `of` has the key and size of the
-- list, the node's row and name, rows and names of the set, the contributions that it adds, and the key of strays.
local function waiting_after(steps, of)
  of.commits = {}
  for at = 1, #steps, 2 do
    local what, value = steps[at], steps[at + 1]
    if what == 0 then -- a leaf goes
      if of.size > 0 then drop(of, of.names[value], of.rows[value]) end
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
  return of.size
end

-- Puts a zero byte and the mark in the place of a node in the list of all: the others keep their positions, and their order.
local function leave_hole(order, nodes, mark)
  local low, high = 0, redis.call('LLEN', order)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local one = redis.call('LINDEX', order, middle)
    local at = string.byte(one) == 0 and struct.unpack('>d', one, 2) or mark_of(redis.call('HGET', nodes, one))
    if at < mark then low = middle + 1 else high = middle end
  end
  redis.call('LSET', order, low, '\0' .. struct.pack('>d', mark))
end

-- Removes nodes: nothing of them is left but their ids in the log.
local function remove_nodes(request, rows, names, count, place)
  for _, gone in ipairs(request.removes) do
    local index, waiting = gone[1], KEYS[FIRST_KEY + gone[4]]
    local row, is_leaf = rows[index], rows[index][1] == 2
    count((is_leaf and 'l' or 's') .. row[3], -1)
    count(is_leaf and 'leaves' or 'summaries', -1)
    if is_leaf then rows[request.root][6] = rows[request.root][6] - 1 end
    if row[7] > 0 then
      redis.call('ZREM', KEYS[8], place(row, index, mark_at(waiting, 0)))
      count('pending', -row[7])
    end
    redis.call('DEL', waiting, KEYS[FIRST_KEY + gone[3]])
    redis.call('ZREM', KEYS[FIRST_KEY + gone[5]], names[index])
    leave_hole(KEYS[5], KEYS[2], row[8])
    for _, key in ipairs({KEYS[2], KEYS[3], KEYS[9], KEYS[FIRST_KEY + gone[6]]}) do redis.call('HDEL', key, names[index]) end
  end
end
