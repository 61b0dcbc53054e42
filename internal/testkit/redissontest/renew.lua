-- KEYS: locks. ARGV: lease in ms, the field of each lock. Answers for each lock 1, or 0 if the
-- field does not hold it.
local held = {}
for i, lock in ipairs(KEYS) do
  held[i] = redis.call('HEXISTS', lock, ARGV[i + 1])
  if held[i] == 1 then
    redis.call('PEXPIRE', lock, ARGV[1])
  end
end
return held
