-- KEYS: lease, fence counter. ARGV: ID, TTL in ms, fence in use, fences to set aside behind it if it is new. Answers 1, or 0 if the claim does not hold the lease.
local lease = redis.call('GET', KEYS[1])
local mine = 'H' .. ARGV[1] .. '\n'
if not lease or string.sub(lease, 1, #mine) ~= mine then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- first, as it is allowed when memory is full; what follows then is, too

local fence_end = string.find(lease, '\n', #mine + 1, true)
if tonumber(ARGV[3]) > tonumber(string.sub(lease, #mine + 1, fence_end - 1)) then
  redis.call('SET', KEYS[1], mine .. ARGV[3] .. string.sub(lease, fence_end), 'KEEPTTL')
  local last = ARGV[3] + ARGV[4]
  if last > (tonumber(redis.call('GET', KEYS[2]) or 0) or 0) then
    redis.call('SET', KEYS[2], string.format('%.0f', last))
  end
end
return 1
