-- Renews claims that share keys. It has the KEYS and ARGV of renew.lua, and answers what that does.
-- There may be many holds, so it reads the others only if it has to.
local ttl, reserve = shared(1), shared(2)

-- lasts returns when the key is to end, if that is not before a hold does.
local function lasts(hold)
  local ms = redis.call('PTTL', lock)
  if ms < 0 then -- PERSIST has made it last for ever
    local _, others = survey(hold.id)
    return math.max(others.last, hold.ends)
  end
  return math.max(from_now(ms), hold.ends)
end

local function serve(i)
  lock = KEYS[2 * i - 1]
  local field = 'onerun:' .. ARGV[2 * i - 1]
  local own = parse(field, redis.call('HGET', lock, field) or '')
  if not own or own.letter ~= 'S' or own.ends <= now then
    return 0
  end
  own.ends = from_now(ttl)
  last_until(lasts(own))
  write(own)
  local fence = tonumber(ARGV[2 * i])
  if fence > own.fence then
    local last, refusal = last_fence(KEYS[2 * i])
    if not last then
      return refusal
    end
    remember(KEYS[2 * i], last, fence + reserve)
    local _, others = survey(own.id)
    raise({own}, fence)
    raise(held_by(others, own.owner), fence)
  end
  return 1
end
