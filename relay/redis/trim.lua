-- Looks at the head of a stream, or trims it, never past what a group needs.
--   KEYS[1]  the stream
--   ARGV     'look', how many entries, the namespace of our events
--            'trim', the id before which all goes
-- look returns: the server's time in ms, the length, the id that the first group
-- has not passed ('' without groups), the size of the entries, and for each its id
-- and the id of its event ('' if it is none of ours).
local key = KEYS[1]

local function less(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  if am == bm then
    am, bm = as, bs -- up to 20 digits: no number of Lua's
  end
  if #am ~= #bm then
    return #am < #bm
  end
  return am < bm
end

-- The least id that some group wants to be there: the last that it was handed, so
-- that its position is one of the stream, or the first that it has not confirmed.
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
