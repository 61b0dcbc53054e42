-- Releases a key that is an RReadWriteLock. It follows shared_release.lua, has its KEYS and ARGV,
-- and answers what that does. As Redisson does, it publishes 1 for a hold alone, which wakes all
-- waiters of a client, and 0 for the last shared one, which wakes one.
local release_any = serve

local function serve(i)
  if leave == '' then
    -- The quick way if the key has this hold and no other. It has not ended, or the key would
    -- have.
    local held = redis.call('HGETALL', lock)
    if #held == 4 and held[1] == 'mode' and held[3] == 'onerun:' .. ARGV[1]
      and string.sub(held[4], 1, 1) == 'H' then
      redis.call('DEL', lock)
      publish_to(how, KEYS[2], FREE)
      return 1
    end
  end
  return release_any(i)
end
