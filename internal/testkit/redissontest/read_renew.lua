-- KEYS: lock, the prefix of all readers' timeout keys. ARGV: lease in ms, the field of the reader,
-- 1 if the timeout keys of all readers are renewed, else 0. Answers for the lock 1, or 0 if the
-- field does not hold it.
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return {0}
end
for _, field in ipairs(ARGV[3] == '1' and redis.call('HKEYS', KEYS[1]) or {ARGV[2]}) do
  for nth = tonumber(redis.call('HGET', KEYS[1], field)) or 0, 1, -1 do
    redis.call('PEXPIRE', KEYS[2] .. ':' .. field .. ':rwlock_timeout:' .. nth, ARGV[1])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {1}
