-- Asks for a key that claims may share. It follows acquire.lua, whose serve handles a key that is
-- free or held alone.
--   KEYS  those of acquire.lua, holders, limits, wanted
--   ARGV  those of acquire.lua, MaxHolders, for how many ms the claim is wanted if it is refused
--         (or 0)
--
-- A claim                        gets
--   granted, with a seat         {1, fence, clock as a fence or 0, fences reserved, seat}
--   refused for those that share {0, ms left, label, holder, 0, 0, 1 if it is wanted or 0}
--   in all other cases           what acquire.lua answers
local acquire_alone = serve
local max_holders, wanted_for = tonumber(ARGV[5]), tonumber(ARGV[6])
-- survey sets these:
local count -- of the holders, or nil if the key is not shared
local own, mark -- the claim as a holder or nil; the wanted claim or nil
local limit -- how many may hold the key

local function survey(id)
  if max_holders > 1 then
    count = count_holders()
  else
    count = count_if_shared()
  end
  if count then
    own, mark, limit = count > 0 and find_holder(id), read_wanted(), math.min(max_holders, smallest(count))
  end
end

local function is_admitted(id)
  return count and not own and not keeps_away(mark, id, max_holders) and count < limit
end

-- is_free reports whether the claim would be granted, and is not granted already.
local function is_free(id)
  survey(id)
  return is_admitted(id)
end

-- new_seat returns the seat of a claim that is granted: the smallest that no holder has, or 0 if
-- the claim has none.
local function new_seat()
  if max_holders == 1 or max_holders > MAX_SEATS then
    return 0
  end
  local taken, seat = {}, 1
  if count > 0 then
    local ids = redis.call('ZRANGE', lease, 0, -1) -- few, as each has a seat
    for _, text in ipairs(redis.call('HMGET', holders, unpack(ids))) do
      taken[parse_holder(text or '').seat or 0] = true
    end
  end
  while taken[seat] do
    seat = seat + 1
  end
  return seat
end

local function refuse(id)
  if keeps_away(mark, id, max_holders) then
    return kept_away(mark)
  end
  local rank = max_holders == 1 and -1 or 0 -- all holders must have gone, or one
  local other, expires = unpack(redis.call('ZRANGE', lease, rank, rank, 'WITHSCORES'))
  local label = parse_holder(redis.call('HGET', holders, other) or '').label
  local is_wanted = want(mark, id, max_holders, wanted_for) and 1 or 0
  return {0, left(expires), string.sub(label, 1, 512), string.sub(other, 1, 128), 0, 0, is_wanted}
end

local function grant(id)
  local new, reserved = new_fence(KEYS[2])
  if not new then
    return reserved -- the error
  end
  local seat = new_seat()
  if count == 0 then
    redis.call('DEL', holders, limits) -- what remains if the lease was deleted by hand
  end
  -- The lease comes last: nobody holds the key if one of the others cannot be written.
  local expires = from_now(ttl)
  write_holder(id, {letter = 'H', max_holders = digits(max_holders), fence = new, seat = seat, label = label})
  redis.call('ZADD', limits, digits(max_holders), id)
  redis.call('ZADD', lease, digits(expires), id)
  last_until(expires)
  if forget_wanted(mark, id) and count + 1 < limit then
    publish(lease, ALL) -- for those that were refused meanwhile
  end
  return granted(new, reserved, seat)
end

local function serve()
  local id = ARGV[1]
  if not limit then
    survey(id)
  end
  if not count then
    local answer = acquire_alone(1) -- a claim holds it alone, it is done, or it is not ours
    mark = read_wanted()
    forget_wanted(mark, id) -- either this claim holds it, or it is not made again
    return answer
  end
  read_special(ARGV[2])
  if own and own.letter == 'H' then -- a claim that is repeated
    local expires = from_now(ttl)
    last_until(expires)
    redis.call('ZADD', lease, digits(expires), id)
    return granted(-own.fence, 0, own.seat)
  end
  if not is_admitted(id) then
    return refuse(id)
  end
  if max_holders > 1 then
    return grant(id)
  end
  local answer = acquire_alone(1)
  if type(answer) == 'number' or answer[1] == 1 then
    forget_wanted(mark, id)
  end
  return answer
end
