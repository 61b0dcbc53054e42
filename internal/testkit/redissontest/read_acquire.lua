-- KEYS: lock, the timeout keys' prefix. ARGV: lease in ms, the field of a reader, that of a writer
-- of the same thread. Answers nil if it granted, else the ms that the holder has left.
local mode = redis.call('HGET', KEYS[1], 'mode')
local own = mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1
if mode and mode ~= 'read' and not own then
  return redis.call('PTTL', KEYS[1])
end
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
local nth = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('SET', KEYS[2] .. ':' .. nth, 1, 'PX', ARGV[1])
local rest = mode and redis.call('PTTL', KEYS[1]) or 0
redis.call('PEXPIRE', KEYS[1], math.max(rest, tonumber(ARGV[1])))
return nil
