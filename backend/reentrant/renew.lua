-- KEYS: lock, fence counter. ARGV: ID, TTL in ms, fence in use, fences to reserve above it if it
-- is new. Answers 1, or 0 if the claim does not hold the lock.
local own, others = survey(ARGV[1])
if not own or own.letter ~= 'H' or own.ends <= now then
  return 0
end
own.ends = from_now(ARGV[2])
last_until(math.max(others.last, own.ends))
write(own)
local fence = tonumber(ARGV[3])
if fence > own.fence then
  local last, refusal = last_fence(counter)
  if not last then
    return refusal
  end
  remember(counter, last, fence + ARGV[4])
  others.held[#others.held + 1] = own
  raise(others.held, fence)
end
return 1
