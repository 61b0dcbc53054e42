-- Asks for a key that claims may share. It follows acquire.lua, whose serve handles a key that is
-- free or held alone. KEYS, after those of acquire.lua: holders, limits, wanted. ARGV, after those
-- of acquire.lua: Among; for how many ms the claim is wanted if it is refused, or 0; the seat that
-- a quorum asks for, or -1 for any, or 0 if the claim is not of a quorum.
--
-- Answers what acquire.lua answers. A claim that is granted, and has a seat, gets {1, fence, clock
-- as a fence or 0, fences reserved, seat, open}. A claim that is refused, but not because another
-- one holds the key alone, gets {0, ms left, label, holder, 0, 0, 1 if it is wanted or 0, open}.
-- open is the seats that a quorum's claim could have: the sum of 2^seat. To such a claim, holder is
-- the beginnings of the holders' IDs by seat, with a space before each, if all of them have seats.
local acquire_alone = serve
local among, wanted_for, wish = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local has_seat = among > 1 and among <= MAX_SEATS
local count, own, mark, limit -- what survey has found
-- for a quorum's claim: the seats that it could have, and the holders as the reply names them
local open, open_sum, seated = {}, 0, ''

-- read_seats returns a table of the holders' IDs by seat. It leaves out the holder with an ID. A
-- holder without a seat counts as 0.
local function read_seats(except)
  local taken = {}
  if count == 0 then
    return taken
  end
  local ids = redis.call('ZRANGE', lease, 0, -1) -- few, as each has a seat
  for i, text in ipairs(redis.call('HMGET', holders, unpack(ids))) do
    if ids[i] ~= except then
      taken[parse_holder(text or '').seat or 0] = ids[i]
    end
  end
  return taken
end

-- find_open finds the seats that the claim could have beside each of the other holders. If a holder
-- has no seat, or one that is larger than among, there is none.
local function find_open(id)
  if count > MAX_SEATS then
    return
  end
  local taken = read_seats(id)
  if taken[0] then
    return
  end
  for seat = 1, MAX_SEATS do
    seated = seated .. (taken[seat] and ' ' .. string.sub(taken[seat], 1, 7) or '')
  end
  for seat = among + 1, MAX_SEATS do
    if taken[seat] then
      return
    end
  end
  local bit = 1
  for seat = 1, limit do
    bit = bit * 2
    if not taken[seat] then
      open[seat], open_sum = true, open_sum + bit
    end
  end
end

-- survey finds out who shares the key. count is nil if that is not how it is held.
local function survey(id)
  count = count_holders()
  if count then
    own, mark, limit = find_holder(id), read_wanted(), math.min(among, smallest(count))
    if wish ~= 0 and has_seat then
      find_open(id)
    end
  end
end

local function is_admitted(id)
  if not count or own or keeps_away(mark, id, among) then
    return false
  end
  if wish == 0 or among == 1 then
    return count < limit
  end
  if not has_seat then
    return limit > MAX_SEATS and count < limit
  end
  return wish < 0 and open_sum > 0 or open[wish]
end

-- is_free reports whether the claim would be granted, and is not granted already.
local function is_free(id)
  survey(id)
  return is_admitted(id)
end

-- new_seat returns the seat of a claim that is granted: the one that it asks for, or the smallest
-- that no holder has. It returns 0 if the claim has none.
local function new_seat()
  if not has_seat then
    return 0
  end
  if wish > 0 then
    return wish
  end
  local taken, seat = read_seats(), 1
  while taken[seat] do
    seat = seat + 1
  end
  return seat
end

-- with_seat returns the answer for a grant with a seat.
local function with_seat(answer, seat)
  if seat == 0 then
    return answer
  end
  if type(answer) == 'number' then
    answer = {1, answer, 0, 0}
  end
  answer[5], answer[6] = seat, open_sum
  return answer
end

local function refuse(id)
  if keeps_away(mark, id, among) then
    return kept_away(mark)
  end
  local rank = among == 1 and -1 or 0 -- all holders must have gone, or one
  local other, expires = unpack(redis.call('ZRANGE', lease, rank, rank, 'WITHSCORES'))
  local label = parse_holder(redis.call('HGET', holders, other) or '').label
  local is_wanted, holder = want(mark, id, among, wanted_for) and 1 or 0, seated == '' and string.sub(other, 1, 128) or seated
  return {0, left(expires), string.sub(label, 1, 512), holder, 0, 0, is_wanted, open_sum}
end

local function grant(id)
  local refusal = restarted()
  if refusal then
    return refusal
  end
  local new, reserved = new_fence(KEYS[2])
  if not new then
    return reserved -- which is an error then
  end
  local seat = new_seat()
  if count == 0 then
    redis.call('DEL', holders, limits) -- what remains if the lease was deleted by hand
  end
  -- The lease comes last: nobody holds the key if one of the others cannot be written.
  local expires = from_now(ttl)
  write_holder(id, {letter = 'H', among = digits(among), fence = new, seat = seat, label = label})
  redis.call('ZADD', limits, digits(among), id)
  redis.call('ZADD', lease, digits(expires), id)
  last_until(expires)
  if forget_wanted(mark, id) and count + 1 < limit then
    publish(lease) -- for those that were refused meanwhile
  end
  return with_seat(granted(new, reserved), seat)
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
    return with_seat(granted(-own.fence, 0), own.seat)
  end
  if not is_admitted(id) then
    return refuse(id)
  end
  if among > 1 then
    return grant(id)
  end
  local answer = acquire_alone(1)
  if type(answer) == 'number' or answer[1] == 1 then
    forget_wanted(mark, id)
  end
  return answer
end
