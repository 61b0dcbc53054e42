-- KEYS: lease, fence counter. ARGV: ID, TTL in ms, fence in use, fences to reserve above it if it
-- is new. Answers 1, or 0 if the claim does not hold the lease.
local lease = redis.call('GET', KEYS[1])
local mine = 'H' .. ARGV[1] .. '\n'
if not lease or string.sub(lease, 1, #mine) ~= mine then
  return 0
end
-- first, as it is allowed when memory is full; what follows then is, too
redis.call('PEXPIRE', KEYS[1], ARGV[2])

local fence_end = string.find(lease, '\n', #mine + 1, true)
if tonumber(ARGV[3]) <= tonumber(string.sub(lease, #mine + 1, fence_end - 1)) then
  return 1 -- as nearly always: what raises a fence comes after this
end
