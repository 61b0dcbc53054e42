-- KEYS: lease, fence counter. ARGV: ID, TTL in ms, label, what else it asks for; what is empty at
-- the end is not sent. Answers what acquire does. The quick way for a claim that asks for nothing
-- special: it takes a free key under the clock as its fence.
if not ARGV[4] then
  local last = redis.pcall('GET', KEYS[2])
  local fence = digits(clock)
  -- Digits of the same length are in the order of their numbers. Any other counter is left to
  -- last_fence.
  if last and #last == #fence and last < fence and not string.find(last, '%D') then
    local set = redis.pcall('SET', KEYS[1], 'H' .. ARGV[1] .. '\n' .. fence .. '\n' .. (ARGV[3] or ''), 'PX', ARGV[2], 'NX')
    if set and not set.err then -- when memory is full, who has the key is told all the same
      redis.call('SET', KEYS[2], fence)
      return clock
    end
  end
end
