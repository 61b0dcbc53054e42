-- Releases keys. KEYS: the lease of each claim. ARGV: the ID of each claim; what to leave ('' for
-- nothing, K for the minimum hold, D for a done marker) and for how long in ms ('K1000'), the label
-- of the marker, the record. Each claim gets 1, or 0 if it does not hold the lease.
local leave, label, record = shared(1), shared(2), shared(3)

-- publish notifies waiters, who subscribe to a channel of the key's name. A release that cannot be
-- published is a release all the same: waiters also look for themselves, now and then.
local function publish(key)
  local said = sharded and redis.pcall('SPUBLISH', key, '')
  if not sharded or type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', key, '') -- SPUBLISH came with Redis 7
  end
end

local function serve(i)
  local key, id = KEYS[i], ARGV[i]
  local lease = redis.call('GET', key)
  if not lease or string.sub(lease, 2, #id + 1) ~= id or not string.find(lease, '^[\n ]', #id + 2) then
    return 0
  end
  if string.sub(lease, 1, 1) ~= 'H' then
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
    lease = 'K' .. string.sub(lease, 2)
  else
    lease = 'D' .. id .. ' ' .. #label .. '\n' .. label .. record
  end
  redis.call('SET', key, lease, 'KEEPTTL')
  publish(key) -- waiters learn that it is done, or how long it takes now
  return 1
end
