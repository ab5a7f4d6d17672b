-- Rows of nodes; put in front of the scripts that say `-- include: lib_rows`.
--
-- A row: kind, provisional (bytes), depth (2), version, routing, descendants, pending (4 each), mark, cohesion (doubles), big
-- endian, then the parent's id; then, of the few nodes that have attributes, a zero byte and those as msgpack. The text, item and
-- vector are in another hash: vector first (2 bytes a dimension), then the rest.

local ROW = '>BBHI4I4I4I4dd'
local ROW_SIZE = 36
local CHUNK = 2000

-- A row's parent, and its attributes with the zero byte before them, or ''.
local function tail_of(row)
  local zero = string.find(row, '\0', ROW_SIZE + 1, true)
  if not zero then return string.sub(row, ROW_SIZE + 1), '' end
  return string.sub(row, ROW_SIZE + 1, zero - 1), string.sub(row, zero)
end

-- When a row's node was made.
local function mark_of(row) return (struct.unpack('>d', row, 21)) end

-- Values of the fields of a hash, `false` for those that are missing; any number of fields.
local function hmget(key, fields)
  local found = {}
  for first = 1, #fields, CHUNK do
    local some = redis.call('HMGET', key, unpack(fields, first, math.min(first + CHUNK - 1, #fields)))
    for index = 1, #some do found[first + index - 1] = some[index] end
  end
  return found
end

-- `HSET key field value field value …`, or another command that takes any number of arguments.
local function many(command, key, arguments)
  for first = 1, #arguments, CHUNK do
    redis.call(command, key, unpack(arguments, first, math.min(first + CHUNK - 1, #arguments)))
  end
end

-- What is wanted of a node's vector and rest: 'v' the vector, 'c' the rest, 'b' both, 'n' neither.
local function slice(blob, mode, dimension)
  if mode == 'b' or not blob then return blob end
  if mode == 'v' then return string.sub(blob, 1, 2 * dimension) end
  if mode == 'c' then return string.sub(blob, 2 * dimension + 1) end
  return ''
end

-- The tree's dimension; an error of the script's caller when there is no such tree.
local function dimension_of(key)
  local dimension = redis.call('HGET', key, 'dimension')
  return dimension and tonumber(dimension)
end

local NO_TREE = {err = 'NOTREE there is no such tree'}

