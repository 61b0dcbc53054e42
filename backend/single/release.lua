-- release gives a key back: the lease, the claim's ID, what to leave ('' nothing, K the minimum
-- hold, D a done marker) and for how long in ms, 'K1000', label of the marker, record. Answers 1,
-- or 0 if the lease is not this claim's.
local function release(key, id, leave, label, record)
  local lease = redis.call('GET', key)
  if not lease or string.sub(lease, 2, #id + 1) ~= id or not string.find(lease, '^[\n ]', #id + 2) then
    return 0
  end
  if string.sub(lease, 1, 1) ~= 'H' then
    return 1 -- released before: the answer to that was lost
  end
  if leave == '' then
    redis.call('DEL', key)
    freed(key)
    return 1
  end
  -- first, as it is allowed when memory is full; what follows then is, too
  redis.call('PEXPIRE', key, string.sub(leave, 2))
  if string.sub(leave, 1, 1) == 'K' then
    lease = 'K' .. string.sub(lease, 2)
  else
    lease = 'D' .. id .. ' ' .. #label .. '\n' .. label .. record
  end
  redis.call('SET', key, lease, 'KEEPTTL')
  freed(key) -- who waits may like to know that it is done, or how long it takes now
  return 1
end
