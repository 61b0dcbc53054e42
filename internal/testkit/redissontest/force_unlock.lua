-- KEYS: lock, channel. ARGV: message, publish command. Answers 1 if there was a lock, else 0.
local deleted = redis.call('DEL', KEYS[1])
if deleted == 1 then
  redis.call(ARGV[2], KEYS[2], ARGV[1])
end
return deleted
