-- Asks for a key that is an RReadWriteLock. It follows shared_acquire.lua, has its KEYS and ARGV,
-- and answers what that does. A claim alone takes a free key without looking further.
local acquire_shared = serve

local function serve()
  if ARGV[2] == '' and max_holders == 1 and redis.call('EXISTS', lock, wanted) == 0
    and take_free(counter, 'mode', 'write', 'onerun:' .. ARGV[1], free_hold(ARGV[3])) then
    return clock
  end
  return acquire_shared()
end
