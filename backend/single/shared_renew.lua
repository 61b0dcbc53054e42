-- Renews a claim that shares its key.
--   KEYS  lease, fence counter, holders, limits, wanted
--   ARGV  those of renew.lua
-- Answers 1, or 0 if the claim does not hold the key.
local ttl, reserve = shared(1), shared(2)

local function serve()
  local id, fence = ARGV[1], tonumber(ARGV[2])
  local own = count_holders() and find_holder(id)
  if not own or own.letter ~= 'H' then
    return 0
  end
  local expires = from_now(ttl)
  last_until(expires)
  redis.call('ZADD', lease, digits(expires), id)
  if fence <= own.fence then
    return 1 -- as nearly always
  end
  local refusal = raise_counter(KEYS[2], fence + reserve)
  if refusal then
    return refusal
  end
  own.fence = fence
  write_holder(id, own)
  return 1
end
