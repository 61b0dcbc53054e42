-- KEYS: lock, channel, latch. ARGV: message, lease in ms, field, publish command, the latch's ms.
-- Answers 1 if the lock is free now, 0 if it was taken more often, nil if the field does not hold
-- it.
local answered = redis.call('GET', KEYS[3])
if answered then
  return tonumber(answered) -- this very request came before
end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
  return nil
end

local free = redis.call('HINCRBY', KEYS[1], ARGV[3], -1) <= 0 and 1 or 0
if free == 1 then
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('SET', KEYS[3], free, 'PX', ARGV[5])
return free
