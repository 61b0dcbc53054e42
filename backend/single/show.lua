-- Shows what is kept about a key, and changes nothing. It follows shared.lua. KEYS: the lease and
-- the fence counter, holders, limits, wanted, queue, waiters.
--
-- Answers {seconds and microseconds since 1970, number of subscribers or -1, what another program
-- keeps there or '', wanted ID or '', {IDs in the queue}, {label, ms left, bytes of the record} of
-- the done marker or {}, {holder, ...}}. A holder is {ID, owner, label, fence, ms left, MaxHolders,
-- seat, 1 if it is kept or 0, 1 if it is foreign or 0}.
local SHOWN = 1000 -- holders or waiters at most

local function show_string(answer)
  local head = redis.call('GETRANGE', lease, 0, 2047) -- longer than all that comes before a record
  local left = redis.call('PTTL', lease)
  local letter, id, length, rest
  if string.sub(head, 1, #LEAD) == LEAD then
    letter, id, length, rest = string.match(head, '^([HKD])(%S+) ?(%d*)\n(.*)$', #LEAD + 1)
  end
  if letter == 'D' then
    length = tonumber(length) or 0
    local record = redis.call('STRLEN', lease) - (#head - #rest) - length
    answer[6] = {string.sub(rest, 1, length), left, record}
    return
  end
  local fence, label = string.match(rest or '', '^(%d+)\n(.*)$')
  if fence then
    answer[7] = {{id, '', label, tonumber(fence), left, 1, 0, letter == 'K' and 1 or 0, 0}}
  else
    answer[3] = 'string "' .. string.sub(head, 1, 100) .. '"'
    if LEAD ~= '' and is_lock(head) then
      answer[7] = {{foreign_id(head), '', '', 0, left, 1, 0, 0, 1}}
    end
  end
end

local function show_holders(answer)
  local ids = redis.call('ZRANGE', lease, digits(now + 1), '+inf', 'BYSCORE', 'LIMIT', 0, SHOWN, 'WITHSCORES')
  for i = 1, #ids, 2 do
    local h = parse_holder(redis.call('HGET', holders, ids[i]) or '')
    answer[7][#answer[7] + 1] = {
      ids[i], '', h.label, h.fence or 0, left(tonumber(ids[i + 1])), tonumber(h.max_holders) or 1, h.seat or 0,
      h.letter == 'K' and 1 or 0, 0,
    }
  end
end

local function serve()
  local mark = read_wanted()
  local waiting = redis.pcall('ZRANGE', KEYS[6], 0, SHOWN - 1)
  local answer = {{time[1], time[2]}, subscribers(HOW, channel), '', mark and mark.id or '', waiting, {}, {}}
  local kind = redis.call('TYPE', lease).ok
  if kind == 'string' then
    show_string(answer)
  elseif kind == 'zset' and LEAD == '' then
    show_holders(answer)
  elseif kind ~= 'none' then
    answer[3] = kind
  end
  return answer
end
