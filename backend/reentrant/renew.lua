-- Renews holds.
--   KEYS  of each claim: lock, fence counter
--   ARGV  of each claim: ID, fence in use; of all: TTL in ms, how many fences to reserve above a
--         fence that is new
-- Each claim gets 1, or 0 if it does not hold the lock.
local ttl, reserve = shared(1), shared(2)

local function serve(i)
  lock = KEYS[2 * i - 1]
  local own, others = survey(ARGV[2 * i - 1])
  if not own or own.letter ~= 'H' or own.ends <= now then
    return 0
  end
  own.ends = from_now(ttl)
  last_until(math.max(others.last, own.ends))
  write(own)
  local fence = tonumber(ARGV[2 * i])
  if fence > own.fence then
    local last, refusal = last_fence(KEYS[2 * i])
    if not last then
      return refusal
    end
    remember(KEYS[2 * i], last, fence + reserve)
    others.held[#others.held + 1] = own
    raise(others.held, fence)
    raise(others.shared, fence) -- the same owner's
  end
  return 1
end
