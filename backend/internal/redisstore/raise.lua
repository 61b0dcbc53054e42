-- KEYS: counters. ARGV: counter, number to raise it to, ms to keep the counters for. Answers what
-- it was before. Counters are a hash.
local was = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if tonumber(ARGV[2]) > was then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return was
