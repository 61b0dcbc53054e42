-- The claim of a key for which others are refused, for scripts of claims that share keys. Answers
-- nothing. It follows times.lua, and Lua that has the string wanted: the name of a Redis key with
-- the claim's ID, its MaxHolders, and until when it is wanted, separated by spaces. It may last
-- longer than the holders, so that no other claim is granted before the wanted claim was made
-- again.

-- read_wanted returns the wanted claim, or nil.
local function read_wanted()
  local text = redis.pcall('GET', wanted)
  if type(text) ~= 'string' then
    return nil -- another type is not ours
  end
  local id, max_holders, expires = string.match(text, '^(%S+) (%d+) (%d+)$')
  if not id or tonumber(expires) <= now then
    return nil
  end
  return {id = id, max_holders = tonumber(max_holders), expires = tonumber(expires)}
end

-- keeps_away reports whether mark, the wanted claim or nil, keeps another claim away.
local function keeps_away(mark, id, max_holders)
  return mark and mark.id ~= id and max_holders > mark.max_holders
end

-- kept_away is the answer to a claim that the mark keeps away.
local function kept_away(mark)
  return {0, left(mark.expires), '', string.sub(mark.id, 1, 128), 0, 0, 0}
end

-- forget_wanted ends that the claim is wanted. It returns true if it was.
local function forget_wanted(mark, id)
  if not mark or mark.id ~= id then
    return false
  end
  redis.call('DEL', wanted)
  return true
end

-- want makes a refused claim wanted for some ms, unless a claim is that has no larger MaxHolders.
-- It returns false if it cannot.
local function want(mark, id, max_holders, ms)
  if ms == 0 or mark and mark.id ~= id and mark.max_holders <= max_holders then
    return false
  end
  local text = id .. ' ' .. digits(max_holders) .. ' ' .. digits(from_now(ms))
  local set = redis.pcall('SET', wanted, text, 'PX', digits(ms))
  return not set.err -- memory may be full
end
