-- Appends events to a stream, if the last event of the stream is the one that the
-- caller expects.
--   KEYS[1]  the stream
--   ARGV[1]  id of the expected last event, '' if there is none, '?' to read it
--   ARGV[2]  CloudEvents source of the relay
--   then for each event: id, type, time, subject, tags, metadata, data
-- Returns the number of events that were appended. If the last event is another one,
-- nothing is appended, and its id is returned as a string.
local key, prev, source = KEYS[1], ARGV[1], ARGV[2]

-- The id of the last event of this source, skipping a few entries of other programs.
local function last(count)
  local found = redis.call('XREVRANGE', key, '+', '-', 'COUNT', count)
  for _, entry in ipairs(found) do
    local fields, id, from = entry[2], nil, nil
    for i = 1, #fields, 2 do
      if fields[i] == 'source' then
        from = fields[i + 1]
      elseif fields[i] == 'id' then
        id = fields[i + 1]
      end
    end
    if from == source and id then
      return id, nil
    elseif from and string.sub(from, 1, 9) == 'posthorn:' then
      return nil, from
    end
  end
  if count == 1 and #found == 1 then
    return last(10)
  end
  return ''
end

local is, other = last(1)
if other then
  return redis.error_reply('OTHERLOG ' .. other)
end
if is ~= prev then
  return is
end
if #ARGV == 2 then
  -- A change that leaves nothing behind. WAIT returns at once on a connection without a
  -- write; after this one it waits until the replicas have all that the stream has.
  redis.call('XGROUP', 'DESTROY', key, 'posthorn:confirm') -- Redis 7.0 may have left one, see doc.go
  redis.call('XGROUP', 'CREATE', key, 'posthorn:confirm', '$')
  redis.call('XGROUP', 'DESTROY', key, 'posthorn:confirm')
  return 0
end

local call = redis.call
for i = 3, #ARGV, 7 do
  local subject, tags, metadata = ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  if tags == '' and metadata == '' then
    if subject == '' then
      call('XADD', key, '*', 'specversion', '1.0', 'id', ARGV[i], 'source', source, 'type', ARGV[i + 1],
        'time', ARGV[i + 2], 'datacontenttype', 'application/json', 'data', ARGV[i + 6])
    else
      call('XADD', key, '*', 'specversion', '1.0', 'id', ARGV[i], 'source', source, 'type', ARGV[i + 1],
        'time', ARGV[i + 2], 'subject', subject, 'datacontenttype', 'application/json', 'data', ARGV[i + 6])
    end
  else
    local fields = { 'specversion', '1.0', 'id', ARGV[i], 'source', source, 'type', ARGV[i + 1], 'time', ARGV[i + 2] }
    local function add(name, value)
      if value ~= '' then
        fields[#fields + 1] = name
        fields[#fields + 1] = value
      end
    end
    add('subject', subject)
    fields[#fields + 1] = 'datacontenttype'
    fields[#fields + 1] = 'application/json'
    add('tags', tags)
    add('metadata', metadata)
    fields[#fields + 1] = 'data'
    fields[#fields + 1] = ARGV[i + 6]
    call('XADD', key, '*', unpack(fields))
  end
end
return (#ARGV - 2) / 7
