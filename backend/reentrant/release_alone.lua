-- KEYS: lock, channel. ARGV: ID, how to publish, what to leave, label, record; what is empty at
-- the end is not sent. Answers what release does. The quick way for one that leaves nothing and
-- publishes plainly, where the key has the claim's hold and no other: that has not ended, or the
-- key would have, too.
if not ARGV[2] then
  local held = redis.call('HGETALL', KEYS[1])
  if #held == 2 and held[1] == 'onerun:' .. ARGV[1] and string.sub(held[2], 1, 1) == 'H' then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', KEYS[2], '0')
    return 1
  end
end
