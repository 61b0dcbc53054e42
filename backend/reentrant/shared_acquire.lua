-- Asks for a key that claims may share.
--   KEYS  those of acquire.lua for one claim, wanted, channel; in an RReadWriteLock the timeout key
--         of the claim
--   ARGV  those of acquire.lua for one claim, how to publish, MaxHolders, for how many ms the claim
--         is wanted if it is refused (or 0)
--
-- A claim                        gets
--   granted, with a seat         {1, fence, clock as a fence or 0, fences reserved, seat}
--   refused for those that share {0, ms left, label, holder, 0, 0, 1 if it is wanted or 0}
--   in all other cases           what acquire.lua answers
local counter, channel = KEYS[2], KEYS[4]
local max_holders, wanted_for, how = tonumber(ARGV[7]), tonumber(ARGV[8]), shared(3)
-- read_key sets these:
local own, others -- the claim's hold or nil, and a summary of all others
local mine -- the holds of the claim's owner, without minimum holds
local count, last_of -- how many other owners hold the key; by owner, the hold that ends last
local limit -- how many owners may hold the key
local mark -- the wanted claim or nil

local function read_key(id, owner)
  own, others = survey(id)
  mine = held_by(others, owner)
  if READ_WRITE and max_holders == 1 and not others.H then
    mine = {} -- an owner that reads is refused as a writer, like all others
  end
  if own and own.letter ~= 'H' and own.letter ~= 'S' then
    add(others, own) -- it was released, and left this
  end
  local smallest
  count, smallest, last_of = count_holders(others, #mine > 0 and owner or nil)
  limit, mark = math.min(max_holders, smallest), read_wanted()
end

local function is_own()
  return own and own.ends > now
end

-- is_kept_away reports whether the claim is refused for one that is wanted. An owner that holds
-- the key is let in: the wanted claim may wait for it.
local function is_kept_away(id)
  return #mine == 0 and keeps_away(mark, id, max_holders)
end

-- is_free tells the queue whether the claim could be granted, but not as one more of its owner's:
-- that is granted whatever the queue holds.
local function is_free(id)
  read_key(id, ARGV[3])
  return not (is_own() or others.D or others.foreign) and #mine == 0
    and count < limit and not is_kept_away(id)
end

local function refuse(id)
  if is_kept_away(id) then
    return kept_away(mark)
  end
  -- All other owners must have gone, or one.
  local first
  for _, hold in pairs(last_of) do
    if not first or (max_holders == 1) == (hold.ends > first.ends) then
      first = hold
    end
  end
  local answer = busy(first, first.ends)
  if others.H or others.K then
    forget_wanted(mark, id) -- the claim is not made again
  else
    local noted = want(mark, id, max_holders, wanted_for)
    if not noted then
      forget_wanted(mark, id)
    end
    answer[5], answer[6], answer[7] = 0, 0, noted and 1 or 0
  end
  return answer
end

-- choose_seat returns the smallest seat that the owner has, if the claim may have that, or that
-- nobody has, or 0 if the claim has none.
local function choose_seat()
  if max_holders == 1 or max_holders > MAX_SEATS then
    return 0
  end
  local kept = ANY
  for _, hold in ipairs(mine) do
    if hold.seat and hold.seat > 0 then
      kept = math.min(kept, hold.seat)
    end
  end
  if kept <= max_holders then
    return kept
  end
  local taken = {}
  for _, list in ipairs({others.shared, others.kept}) do
    for _, hold in ipairs(list) do
      taken[hold.seat or 0] = true
    end
  end
  local seat = 1
  while taken[seat] do
    seat = seat + 1
  end
  return seat
end

-- enters_again returns the fence of the claim's owner if it holds the key, and not with more
-- others than the claim allows. Other claims of that owner have new fences: they must be larger
-- than those of all earlier holders.
local function enters_again()
  local fence, smallest = 0, ANY
  for _, hold in ipairs(mine) do
    fence, smallest = math.max(fence, hold.fence), math.min(smallest, max_holders_of(hold))
  end
  return #mine > 0 and max_holders >= smallest and fence
end

-- choose_fence returns the fence of a claim that is granted and the number of reserved fences above
-- it, or nil and an error. The fence is negative if the owner holds the key already.
local function choose_fence()
  local held = enters_again()
  if not held then
    return new_fence(counter)
  end
  local fence, refusal = reentry_fence(counter, held)
  return fence and -fence, fence and 0 or refusal
end

-- remove_ended removes the holds that have ended, at most 1000, to bound the time that it takes.
local function remove_ended()
  if others.any and others.last == 0 then
    redis.call('DEL', lock)
    return
  end
  for i = 1, math.min(#others.ended, 1000) do
    remove(others.ended[i])
  end
end

local function grant(id, owner)
  local answered, reserved = choose_fence()
  if not answered then
    return reserved -- the error
  end
  local fence = math.abs(answered)
  remove_ended()
  local hold = {id = id, letter = 'H', ends = ends, fence = fence, owner = owner, text = label}
  if READ_WRITE then
    -- a writer that also reads is a writer twice
    hold.letter = (max_holders == 1 or others.H) and 'H' or 'S'
  elseif max_holders > 1 then
    hold.letter, hold.max_holders, hold.seat = 'S', max_holders, choose_seat()
  end
  put(hold)
  last_until(math.max(others.last, ends))
  raise(mine, fence)
  if forget_wanted(mark, id) and count + 1 < limit then
    publish_to(how, channel, '0', true) -- for those that were refused meanwhile
  end
  return granted(answered, reserved, hold.seat)
end

local function serve()
  local id, owner = ARGV[1], ARGV[3]
  if not limit then
    read_key(id, owner)
  end
  read_special(ARGV[2])
  if is_own() and (own.letter == 'H' or own.letter == 'S') then -- a claim that is repeated
    own.ends = ends
    last_until(math.max(others.last, own.ends))
    put(own)
    forget_wanted(mark, id)
    return granted(-own.fence, 0, own.seat)
  end
  local refusal = done_or_foreign(others) or is_own() and busy(own, own.ends)
  if refusal then
    forget_wanted(mark, id)
    return refusal
  end
  if count >= limit or is_kept_away(id) then
    return refuse(id)
  end
  return grant(id, owner)
end
