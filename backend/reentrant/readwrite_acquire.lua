-- Asks for a key that is an RReadWriteLock. It follows shared_acquire.lua, has its KEYS and ARGV,
-- and answers what that does. A claim alone takes a free key without looking further.
local acquire_shared = serve
local fence = digits(clock)

local function serve()
  local id, special, owner = ARGV[1], ARGV[2], ARGV[3]
  if special == '' and among == 1 and is_behind(redis.pcall('GET', counter), fence)
    and redis.call('EXISTS', lock, wanted) == 0 then
    local ends = digits(from_now(ttl))
    local hold = 'H' .. ends .. ' ' .. fence .. ' ' .. #owner .. ' ' .. owner .. label
    local set = redis.pcall('HSET', lock, 'mode', 'write', 'onerun:' .. id, hold)
    if type(set) == 'number' then
      redis.call('PEXPIRE', lock, ttl)
      redis.call('SET', counter, fence)
      return clock
    end
  end
  return acquire_shared()
end
