-- Raises a counter in a hash of counters. KEYS: counters. ARGV: counter, number to raise it to,
-- TTL of the counters in ms. Answers the counter's value before.
local was = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if tonumber(ARGV[2]) > was then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return was
