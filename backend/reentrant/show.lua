-- Shows what is kept about a key, and changes nothing. It follows shared.lua and wanted.lua. KEYS:
-- the lock, its channel, the key of wanted.lua, queue, waiters. ARGV: how to publish, as in
-- release.lua. It answers what show.lua of backend/single does. A hold of Redisson's is shown with
-- its field as the ID.
local SHOWN = 1000 -- holders or waiters at most
-- The UUID of a client, and what distinguishes its threads: of Redisson, a number, and perhaps what
-- the thread does with an RReadWriteLock; of node-redisson, another UUID.
local REDISSON = '^%x+%-%x+%-%x+%-%x+%-%x+:.+$'
local holders, marker, foreign, mode = {}, {}, '', nil

local function show(hold)
  if hold.ends <= now then
    return
  end
  if hold.letter == 'D' then
    marker = {hold.label or '', left(hold.ends), #hold.text}
    return
  end
  local kept = hold.letter == 'K' or hold.letter == 'M'
  holders[#holders + 1] = {
    hold.id, hold.owner, hold.text, hold.fence, left(hold.ends), max_holders_of(hold), hold.seat or 0, kept and 1 or 0, 0,
  }
end

local function show_foreign(field)
  if field == 'mode' or string.find(field, '^onerun:.*:read$') then
    return
  end
  if string.find(field, REDISSON) then
    local max_holders = mode == 'read' and ANY or 1
    holders[#holders + 1] = {field, '', '', 0, redis.call('PTTL', lock), max_holders, 0, 0, 1}
  elseif foreign == '' then
    foreign = 'hash with the field "' .. string.sub(field, 1, 100) .. '"'
  end
end

local function show_fields()
  mode = redis.call('HGET', lock, 'mode')
  local fields = redis.call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local hold = #holders < SHOWN and parse(fields[i], fields[i + 1])
    if hold then
      show(hold)
    else
      show_foreign(fields[i])
    end
  end
  if #fields == 2 and mode then
    foreign = 'hash with the field "mode"'
  end
end

local function serve()
  local kind = redis.call('TYPE', lock).ok
  if kind == 'hash' then
    show_fields()
  elseif kind ~= 'none' then
    foreign = kind
  end
  local mark = read_wanted()
  local waiting = redis.pcall('ZRANGE', KEYS[4], 0, SHOWN - 1)
  return {{time[1], time[2]}, subscribers(shared(1), KEYS[2]), foreign, mark and mark.id or '', waiting, marker, holders}
end
