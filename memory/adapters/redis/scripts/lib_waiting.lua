-- Contributions; put in front of the scripts that say `-- include: lib_waiting`.
--
-- A list a node, oldest first, each the mark (double) and the leaf's id. A leaf comes to wait in the commit that makes it or in the
-- one that makes the node, and so is found without going through the list; the few that came otherwise, strays, are also in a hash
-- by node.

local MARKS = 1048576 -- of a commit

local function mark_at(key, position)
  local packed = redis.call('LINDEX', key, position)
  return packed and (struct.unpack('>d', packed))
end

-- How many of a list's elements have a mark up to `through`.
local function trimmed(key, size, through)
  local low, high = 0, size -- the first `low` are to go, those from `high` on stay
  while low < high do
    local middle = math.floor((low + high) / 2)
    if mark_at(key, middle) <= through then low = middle + 1 else high = middle end
  end
  return low
end

-- Those of a list's elements that came in a commit, and the position of the first.
local function of_commit(key, size, seq)
  local found, first = {}, trimmed(key, size, seq * MARKS - 1)
  for start = first, size - 1, 100 do
    for _, one in ipairs(redis.call('LRANGE', key, start, start + 99)) do
      if struct.unpack('>d', one) >= (seq + 1) * MARKS then return found, first end
      found[#found + 1] = one
    end
  end
  return found, first
end

local function strays_of(key, node)
  local packed = redis.call('HGET', key, node)
  return packed and cmsgpack.unpack(packed) or {}
end

local function keep_strays(key, node, strays)
  if #strays > 0 then
    redis.call('HSET', key, node, cmsgpack.pack(strays))
  else
    redis.call('HDEL', key, node)
  end
end
