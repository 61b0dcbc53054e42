-- KEYS: lock, fence counter. ARGV: ID, TTL in ms, label, fences to reserve, fence to take the key under (or 0), hint (or 0), owner, seconds for which the server must have been up (or 0).
-- Answers the fence if it granted, negative if the claim or its owner held the key already; with a hint {1, that, clock as a fence}. Else {0 busy, ms left (-1 if it never ends), label, holder} or {2 done, ms left, record, 0, label}.
-- A record of more than 16 MiB (guard.MaxRecord) is none of ours and is answered as an empty one, and a label is cut, so that what somebody else has written is not carried around.
local own, others = survey(ARGV[1])
local ends = from_now(ARGV[2])

if own and own.letter == 'H' and own.ends > now then -- a claim that is repeated
  last_until(math.max(others.last, ends))
  own.ends = ends
  write(own)
  return granted(-own.fence, ARGV[6])
end
if own and own.ends > now then
  others[own.letter] = own
  others.last = math.max(others.last, own.ends)
end

if others.D then
  return {2, left(others.D.ends), #others.D.text <= 16777216 and others.D.text or '', 0, string.sub(others.D.label, 1, 512)}
end
if others.foreign then
  local field = string.sub(others.foreign, 1, 512)
  return {0, redis.call('PTTL', KEYS[1]), field, field}
end
local holder = others.H or others.K
if holder and (holder.letter == 'K' or holder.owner ~= ARGV[7]) then
  return {0, left(others.last), string.sub(holder.text, 1, 512), string.sub(holder.owner, 1, 128)}
end

local fence = tonumber(ARGV[5])
if holder then -- one more hold of the owner's
  fence = math.max(fence, holder.fence)
  write({id = ARGV[1], letter = 'H', ends = ends, fence = fence, owner = ARGV[7], text = ARGV[3]})
  last_until(math.max(others.last, ends))
  raise(others.held, fence)
  raise({}, fence + ARGV[4])
  return granted(-fence, ARGV[6])
end

local refusal = restarted(ARGV[8])
if refusal then
  return refusal
end
if others.any then
  redis.call('DEL', KEYS[1]) -- what has ended
end
fence = new_fence(KEYS[2], ARGV[5], ARGV[6], ARGV[4])
write({id = ARGV[1], letter = 'H', ends = ends, fence = fence, owner = ARGV[7], text = ARGV[3]})
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return granted(fence, ARGV[6])
