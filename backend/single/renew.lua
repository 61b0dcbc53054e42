-- Renews leases.
--   KEYS  of each claim: lease, fence counter
--   ARGV  of each claim: ID, fence in use; of all: TTL in ms, how many fences to reserve above a
--         fence that is new
-- Each claim gets 1, or 0 if it does not hold the lease.
local ttl, reserve = shared(1), shared(2)

local function serve(i)
  local key, counter, fence = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i]
  local lease = redis.call('GET', key)
  local mine = HELD .. ARGV[2 * i - 1] .. '\n'
  if not lease or string.sub(lease, 1, #mine) ~= mine then
    return 0
  end
  -- first, as it is allowed when memory is full; what follows then is, too
  redis.call('PEXPIRE', key, ttl)

  local fence_end = string.find(lease, '\n', #mine + 1, true)
  if tonumber(fence) <= tonumber(string.sub(lease, #mine + 1, fence_end - 1)) then
    return 1 -- as nearly always
  end
  local refusal = raise_counter(counter, fence + reserve)
  if refusal then
    return refusal
  end
  redis.call('SET', key, mine .. fence .. string.sub(lease, fence_end), 'KEEPTTL')
  return 1
end
