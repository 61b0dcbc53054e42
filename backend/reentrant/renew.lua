-- Renews holds. It follows shared.lua, and rlock.lua or readwrite.lua.
--   KEYS  of each claim: lock, fence counter; in an RReadWriteLock its timeout key
--   ARGV  of each claim: ID, fence in use; of all: TTL in ms, how many fences to reserve above a
--         fence that is new
-- Each claim gets 1, or 0 if it does not hold the lock.
local ttl, reserve = shared(1), shared(2)

local function serve(i)
  lock = KEYS[2 * i - 1]
  local own, others = survey(ARGV[2 * i - 1])
  if not own or own.letter ~= 'H' and own.letter ~= 'S' or own.ends <= now then
    return 0
  end
  own.ends = from_now(ttl)
  last_until(math.max(others.last, own.ends))
  put(own)
  local fence = tonumber(ARGV[2 * i])
  if fence > own.fence then
    local last, refusal = last_fence(KEYS[2 * i])
    if not last then
      return refusal
    end
    remember(KEYS[2 * i], last, fence + reserve)
    raise({own}, fence)
    raise(held_by(others, own.owner), fence)
  end
  return 1
end
