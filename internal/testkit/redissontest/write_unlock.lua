-- KEYS: lock, channel, latch. ARGV: message, lease in ms, field, publish command, the latch's ms.
-- Answers 1 if the writer has gone, 0 if it took the lock more often, nil if the field does not
-- hold it. If it holds the lock as a reader, too, nothing is published.
local answered = redis.call('GET', KEYS[3])
if answered then
  return tonumber(answered) -- this very request came before
end
local function answer(number)
  redis.call('SET', KEYS[3], number, 'PX', ARGV[5])
  return number
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  return answer(1)
end
if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return answer(0)
end
redis.call('HDEL', KEYS[1], ARGV[3])
if redis.call('HLEN', KEYS[1]) > 1 then
  redis.call('HSET', KEYS[1], 'mode', 'read')
else
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
end
return answer(1)
