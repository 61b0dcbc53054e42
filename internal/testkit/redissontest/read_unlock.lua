-- KEYS: lock, channel, the timeout keys' prefix, the prefix of all readers' timeout keys, latch.
-- ARGV: message, field, publish command, the latch's ms. Answers 1 if nobody has the lock now, 0 if
-- somebody has, nil if the field does not hold it.
local answered = redis.call('GET', KEYS[5])
if answered then
  return tonumber(answered) -- this very request came before
end
local function answer(number)
  redis.call('SET', KEYS[5], number, 'PX', ARGV[4])
  return number
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  return answer(1)
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return nil
end

local count = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
if count == 0 then
  redis.call('HDEL', KEYS[1], ARGV[2])
end
redis.call('DEL', KEYS[3] .. ':' .. (count + 1))
if redis.call('HLEN', KEYS[1]) > 1 then
  local longest = 0
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    for nth = tonumber(fields[i + 1]) or 0, 1, -1 do
      longest = math.max(longest, redis.call('PTTL', KEYS[4] .. ':' .. fields[i] .. ':rwlock_timeout:' .. nth))
    end
  end
  if longest > 0 then
    redis.call('PEXPIRE', KEYS[1], longest)
    return answer(0)
  elseif mode == 'write' then
    return answer(0)
  end
end
redis.call('DEL', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
return answer(1)
