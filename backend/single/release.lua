-- Releases keys. KEYS: the lease of each claim. ARGV: the ID of each claim; what to leave ('' for
-- nothing, K for the minimum hold, D for a done marker) and for how long in ms ('K1000'), the label
-- of the marker, the record. Each claim gets 1, or 0 if it does not hold the lease.
local leave, label, record = shared(1), shared(2), shared(3)

local function serve(i)
  local key, id = KEYS[i], ARGV[i]
  local lease = redis.call('GET', key)
  local id_end = #LEAD + 1 + #id
  if not lease or string.sub(lease, 1, #LEAD) ~= LEAD then
    return 0
  end
  if string.sub(lease, #LEAD + 2, id_end) ~= id or not string.find(lease, '^[\n ]', id_end + 1) then
    return 0
  end
  if string.sub(lease, #LEAD + 1, #LEAD + 1) ~= 'H' then
    return 1 -- released before: the answer to that was lost
  end
  if leave == '' then
    redis.call('DEL', key)
    publish(key)
    return 1
  end
  -- first, as it is allowed when memory is full; what follows then is, too
  redis.call('PEXPIRE', key, string.sub(leave, 2))
  if string.sub(leave, 1, 1) == 'K' then
    lease = LEAD .. 'K' .. string.sub(lease, #LEAD + 2)
  else
    lease = LEAD .. 'D' .. id .. ' ' .. #label .. '\n' .. label .. record
  end
  redis.call('SET', key, lease, 'KEEPTTL')
  publish(key) -- waiters learn that it is done, or how long it takes now
  return 1
end
