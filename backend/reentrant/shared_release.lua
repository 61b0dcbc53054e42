-- Releases a key that claims may share, and forgets that the claim is wanted. It follows
-- release.lua, whose serve handles a key that the claim holds alone.
--   KEYS  lock, channel, wanted; in an RReadWriteLock the timeout key of the claim
--   ARGV  those of release.lua
-- Answers 1, or 0 if the claim does not hold the lock.
local release_alone = serve

-- publish_if_useful notifies waiters if one of them may be granted, now that the others hold the
-- key, or if only minimum holds are left, so that they learn for how long. before is the smallest
-- MaxHolders of the holds before that.
local function publish_if_useful(others, before, mark)
  local count, limit = count_holders(others)
  if mark then
    limit = math.min(limit, mark.max_holders) -- others are refused
  end
  local nobody_holds = not (others.H or others.S or others.reader)
  if nobody_holds or count < limit and (before < ANY or mark) then
    publish_to(how, KEYS[2], '0', true)
  end
end

-- release_shared is serve for an S. It leaves a minimum hold, but no marker.
local function release_shared(own, others, mark)
  if leave ~= '' then
    own.letter, own.ends = 'M', from_now(string.sub(leave, 2))
    last_until(math.max(others.last, own.ends))
    put(own)
    publish_to(how, KEYS[2], '0', true) -- waiters learn how long it takes now
    return 1
  end
  remove(own.id)
  if others.last > 0 then
    last_until(others.last)
  else
    redis.call('DEL', lock)
  end
  local _, before = count_holders(others)
  publish_if_useful(others, math.min(before, max_holders_of(own)), mark)
  return 1
end

local function serve(i)
  if READ_WRITE and leave == '' and release_only(i) then
    return 1
  end
  local id = ARGV[1]
  local own, others = survey(id)
  local mark = read_wanted()
  if forget_wanted(mark, id) then
    mark = nil
    publish_to(how, KEYS[2], '0', true) -- for those that were refused meanwhile
  end
  if not own or own.ends <= now then
    return 0
  end
  if own.letter == 'H' then
    return release_alone(i)
  end
  return own.letter == 'S' and release_shared(own, others, mark) or 1
end
