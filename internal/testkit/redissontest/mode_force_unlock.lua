-- KEYS: lock, channel. ARGV: message, publish command, mode. Answers 1 if the lock was in that
-- mode, else 0.
if redis.call('HGET', KEYS[1], 'mode') ~= ARGV[3] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1
