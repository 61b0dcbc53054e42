-- Releases keys.
--   KEYS  of each claim: lease
--   ARGV  of each claim: ID; of all: what to leave, the label of a done marker, its record
-- Each claim gets 1, or 0 if it does not hold the lease. What to leave is '' for nothing, or a
-- letter and for how many ms: 'K1000' for a minimum hold, 'D1000' for a done marker.
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
    publish(key, FREE)
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
  -- waiters learn that it is done, or some of them how long it takes now
  publish(key, string.sub(leave, 1, 1) == 'D' and ALL or FREE)
  return 1
end
