-- Renews a hold that may be shared. It has the KEYS and ARGV of renew.lua and the timeout key of
-- the claim, and answers what that does.
local ttl, reserve = shared(1), shared(2)

local function serve()
  lock = KEYS[1]
  local own, others = survey(ARGV[1])
  if not own or own.letter ~= 'H' and own.letter ~= 'S' or own.ends <= now then
    return 0
  end
  own.ends = from_now(ttl)
  last_until(math.max(others.last, own.ends))
  put(own)
  local fence = tonumber(ARGV[2])
  if fence > own.fence then
    local last, refusal = last_fence(KEYS[2])
    if not last then
      return refusal
    end
    remember(KEYS[2], last, fence + reserve)
    raise({own}, fence)
    raise(held_by(others, own.owner), fence)
  end
  return 1
end
