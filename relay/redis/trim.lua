-- Reads the head of a stream, or trims it. Entries that a consumer group needs are
-- never removed.
--   KEYS[1]  the stream
--   ARGV     'head', the number of entries, the namespace of the relay
--            'trim', the id before which all entries are removed
-- head returns: the time of the server in ms, the length of the stream, the id of the
-- first entry that a group needs ('' without groups), the size of the entries, and for
-- each entry its id and the id of its event ('' for an entry of another program).
-- trim returns the number of entries that were removed.
local key = KEYS[1]

local function less(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  if am == bm then
    am, bm = as, bs -- up to 20 digits, which a Lua number cannot represent
  end
  if #am ~= #bm then
    return #am < #bm
  end
  return am < bm
end

-- The smallest id that a group needs. That is the last entry that was delivered to the
-- group, so that its position still exists in the stream, or the first entry that the
-- group has not acknowledged.
local function bound()
  local least = ''
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local is = {}
    for i = 1, #group, 2 do
      is[group[i]] = group[i + 1]
    end
    local id = is['last-delivered-id']
    if is['pending'] > 0 then
      local first = redis.call('XPENDING', key, is['name'])[2]
      if less(first, id) then
        id = first
      end
    end
    if least == '' or less(id, least) then
      least = id
    end
  end
  return least
end

if redis.call('EXISTS', key) == 0 then
  return {}
end
if ARGV[1] == 'trim' then
  local upto, least = ARGV[2], bound()
  if least ~= '' and less(least, upto) then
    upto = least
  end
  return redis.call('XTRIM', key, 'MINID', upto)
end

local now = redis.call('TIME')
local size, answer = 0, { tonumber(now[1]) * 1000, redis.call('XLEN', key), bound(), 0 }
for _, entry in ipairs(redis.call('XRANGE', key, '-', '+', 'COUNT', ARGV[2])) do
  local fields, id, from = entry[2], '', ''
  for i = 1, #fields, 2 do
    size = size + #fields[i] + #fields[i + 1]
    if fields[i] == 'source' then
      from = fields[i + 1]
    elseif fields[i] == 'id' then
      id = fields[i + 1]
    end
  end
  local tail = ':' .. ARGV[3]
  if string.sub(from, 1, 9) ~= 'posthorn:' or string.sub(from, -#tail) ~= tail then
    id = ''
  end
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = id
end
answer[4] = size
return answer
