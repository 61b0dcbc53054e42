-- KEYS: lock. ARGV: lease in ms, the field of a writer. Answers nil if it granted, else the ms that
-- the holder has left.
local mode = redis.call('HGET', KEYS[1], 'mode')
local again = mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
if mode and not again then
  return redis.call('PTTL', KEYS[1])
end
local rest = again and redis.call('PTTL', KEYS[1]) or 0
redis.call('HSET', KEYS[1], 'mode', 'write')
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], rest + ARGV[1])
return nil
