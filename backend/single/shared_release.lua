-- Releases a key that claims may share, and forgets that the claim is wanted. It follows
-- release.lua, whose serve handles a key that is held alone.
--   KEYS  lease, fence counter, holders, limits, wanted
--   ARGV  those of release.lua
-- Answers 1, or 0 if the claim does not hold the key.
local release_alone = serve

-- publish_if_useful notifies waiters if one of them may be granted, now that count claims share the
-- key. before is the smallest MaxHolders of the holders before that.
local function publish_if_useful(count, before, mark)
  local limit = smallest(count)
  if mark then
    limit = math.min(limit, mark.max_holders) -- others are refused
  end
  if count < limit and (count == 0 or before < ANY or mark) then
    publish(lease, ALL)
  end
end

-- release_shared releases the claim, which is one of count holders.
local function release_shared(id, count, mark)
  local own = count > 0 and find_holder(id)
  if not own then
    return 0
  end
  if own.letter == 'K' then
    return 1 -- released before: the answer to that was lost
  end
  if leave ~= '' and own.letter then
    local expires = from_now(string.sub(leave, 2))
    last_until(expires)
    redis.call('ZADD', lease, digits(expires), id)
    own.letter = 'K'
    write_holder(id, own)
    publish(lease, ALL) -- waiters learn how long it takes now
    return 1
  end
  local before = smallest(count)
  forget({id})
  publish_if_useful(count - 1, before, mark)
  return 1
end

local function serve()
  local id = ARGV[1]
  local count, mark = count_if_shared(), read_wanted()
  if forget_wanted(mark, id) then
    mark = nil
    if count then
      publish(lease, ALL) -- for those that were refused meanwhile
    end
  end
  if count then
    return release_shared(id, count, mark)
  end
  return release_alone(1)
end
