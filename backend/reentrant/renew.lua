-- Renews holds. It follows shared.lua, and rlock.lua or readwrite.lua. There may be many holds, so
-- it reads the others only if it has to.
--   KEYS  of each claim: lock, fence counter; in an RReadWriteLock its timeout key
--   ARGV  of each claim: ID, fence in use; of all: TTL in ms, how many fences to reserve above a
--         fence that is new
-- Each claim gets 1, or 0 if it does not hold the lock.
local ttl, reserve = shared(1), shared(2)

-- FEW is how many fields a renewal reads.
local FEW = 100

-- lasts returns when the key is to end, if that is not before a hold does. If the key lasts longer
-- than this hold, that may be due to another one, or to PERSIST, or to a clock that was set back:
-- then the holds tell. If they are many, the key goes on lasting as long as it does.
local function lasts(hold)
  local ms = redis.call('PTTL', lock)
  if ms >= 0 and (ms <= tonumber(ttl) or redis.call('HLEN', lock) > FEW) then
    return math.max(from_now(ms), hold.ends)
  end
  local _, others = survey(hold.id)
  return math.max(others.last, hold.ends)
end

local function serve(i)
  lock = KEYS[2 * i - 1]
  local field = 'onerun:' .. ARGV[2 * i - 1]
  local own = parse(field, redis.call('HGET', lock, field) or '')
  if not own or own.letter ~= 'H' and own.letter ~= 'S' or own.ends <= now then
    return 0
  end
  own.ends = from_now(ttl)
  last_until(lasts(own))
  put(own)
  local fence = tonumber(ARGV[2 * i])
  if fence > own.fence then
    local refusal = raise_counter(KEYS[2 * i], fence + reserve)
    if refusal then
      return refusal
    end
    local _, others = survey(own.id)
    raise({own}, fence)
    raise(held_by(others, own.owner), fence)
  end
  return 1
end
