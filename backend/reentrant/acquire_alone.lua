-- KEYS: lock, fence counter. ARGV: ID, owner, TTL in ms, label, what else it asks for; what is
-- empty at the end is not sent. Answers what acquire does. The quick way for a claim that asks for
-- nothing special: it takes a free key under the clock as its fence.
if not ARGV[5] then
  local last = redis.pcall('GET', KEYS[2])
  local fence = digits(clock)
  -- Digits of the same length are in the order of their numbers. Any other counter is left to
  -- last_fence.
  if last and #last == #fence and last < fence and not string.find(last, '%D')
    and redis.call('EXISTS', KEYS[1]) == 0 then
    local ends = digits(time[1] * 1000 + math.ceil(time[2] / 1000) + ARGV[3])
    redis.call('HSET', KEYS[1], 'onerun:' .. ARGV[1], 'H' .. ends .. ' ' .. fence .. ' ' .. #ARGV[2] .. ' ' .. ARGV[2] .. (ARGV[4] or ''))
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    redis.call('SET', KEYS[2], fence)
    return clock
  end
end
