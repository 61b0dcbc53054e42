-- Raises a counter in a hash of counters. KEYS: counters. ARGV: counter, number to raise it to,
-- TTL of the counter in ms. Answers the counter's value before. A counter that is read is kept,
-- too: its TTL begins anew if less than half of it is left. The TTL of the hash is that of the
-- counter that is kept longest.
local was, ttl = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0), tonumber(ARGV[3])
local least = ttl / 2
if tonumber(ARGV[2]) > was then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  least = ttl
elseif was == 0 then
  return 0
end
if redis.call('PTTL', KEYS[1]) < least then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return was
