-- Leases of one tree; put in front of the scripts that say `-- include: lib_leases`.
--
-- A lease is in four places, which change together: `ends` (sorted set, token by end in milliseconds), `held` (hash, token to its
-- record {shared, exclusive, waiter}), `nodes` (hash, node to the number of its sharers, or -1 where one has it to itself) and
-- `granted` (hash, waiter to token). A waiter is in three: `queue` (sorted set by arrival), `seen` (sorted set by the time it
-- counts as gone unless it comes back) and `wants` (hash, waiter to {shared, exclusive, ttl}).

local QUEUE_SERVED = 64

-- The keys by name, where they come in KEYS after the first `offset`.
local function lease_keys(offset)
  local keys = {}
  for index, name in ipairs({'ends', 'held', 'nodes', 'granted', 'queue', 'seen', 'wants', 'token'}) do
    keys[name] = KEYS[offset + index]
  end
  return keys
end

local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function digits(number)
  return string.format('%.0f', number)
end

-- Ends one lease, wherever it is.
local function end_lease(keys, token)
  local record = redis.call('HGET', keys.held, token)
  if not record then return false end
  record = cmsgpack.unpack(record)
  for _, node in ipairs(record[1]) do
    if redis.call('HINCRBY', keys.nodes, node, -1) <= 0 then redis.call('HDEL', keys.nodes, node) end
  end
  for _, node in ipairs(record[2]) do redis.call('HDEL', keys.nodes, node) end
  redis.call('HDEL', keys.held, token)
  redis.call('ZREM', keys.ends, token)
  redis.call('HDEL', keys.granted, record[3])
  return true
end

-- Ends the leases whose time is over.
local function purge_leases(keys, now)
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', keys.ends, '-inf', digits(now))) do end_lease(keys, token) end
end

local function leave_queue(keys, waiter)
  redis.call('ZREM', keys.queue, waiter)
  redis.call('ZREM', keys.seen, waiter)
  redis.call('HDEL', keys.wants, waiter)
end

-- Takes those out of the queue who have not been heard of in time.
local function purge_queue(keys, now)
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', keys.seen, '-inf', digits(now))) do leave_queue(keys, waiter) end
end

-- Gives the lease: the token is above every earlier one, also after a failover that lost the last of them (it follows the clock).
local function grant(keys, waiter, wants, now, micros)
  local token = digits(math.max(tonumber(redis.call('GET', keys.token) or '0') + 1, micros))
  redis.call('SET', keys.token, token)
  redis.call('ZADD', keys.ends, digits(now + wants[3]), token)
  redis.call('HSET', keys.held, token, cmsgpack.pack({wants[1], wants[2], waiter}))
  for _, node in ipairs(wants[1]) do redis.call('HINCRBY', keys.nodes, node, 1) end
  for _, node in ipairs(wants[2]) do redis.call('HSET', keys.nodes, node, -1) end
  redis.call('HSET', keys.granted, waiter, token)
  return token
end

-- Whether `wants` can be had beside what is held and what `before` (those who came earlier) wait for.
local function free(keys, wants, before)
  for _, node in ipairs(wants[1]) do
    if before.exclusive[node] then return false end
    if tonumber(redis.call('HGET', keys.nodes, node) or '0') < 0 then return false end
  end
  for _, node in ipairs(wants[2]) do
    if before.exclusive[node] or before.shared[node] then return false end
    if redis.call('HEXISTS', keys.nodes, node) == 1 then return false end
  end
  return true
end

local function stands_before(before, wants)
  for _, node in ipairs(wants[1]) do before.shared[node] = true end
  for _, node in ipairs(wants[2]) do before.exclusive[node] = true end
end

-- Grants what can be, in order of arrival: nobody overtakes on a node that an earlier one waits for. Wakes those who got theirs,
-- except `self`, by a list of their own. Returns what the first of the queue still wait for.
local function serve(keys, now, micros, grants, self)
  local before = {shared = {}, exclusive = {}}
  local waiters = redis.call('ZRANGE', keys.queue, 0, QUEUE_SERVED - 1)
  if #waiters == 0 then return before end
  for index, packed in ipairs(redis.call('HMGET', keys.wants, unpack(waiters))) do
    local waiter, wants = waiters[index], cmsgpack.unpack(packed)
    if free(keys, wants, before) then
      local token = grant(keys, waiter, wants, now, micros)
      leave_queue(keys, waiter)
      if waiter ~= self then
        redis.call('RPUSH', grants .. waiter, token)
        redis.call('PEXPIRE', grants .. waiter, digits(wants[3]))
      end
    else
      stands_before(before, wants)
    end
  end
  return before
end

-- Ends one lease and serves those who wait; says whether there was one.
local function give_back(keys, token, now, grants)
  if not end_lease(keys, token) then return false end
  local _, micros = clock()
  purge_queue(keys, now)
  serve(keys, now, micros, grants, '')
  return true
end
