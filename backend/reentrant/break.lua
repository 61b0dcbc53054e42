-- Takes a key from a claim for an operator, or forgets that it is done. It follows next.lua,
-- rlock.lua or readwrite.lua, and publish.lua.
--   KEYS  lock, channel, wanted; with WithReadWrite, the timeout keys of the claim and of the ID
--         that replaces it
--   ARGV  ID of the claim, or a field of Redisson's; how to publish, as in release.lua; what to do;
--         that other ID and its label, with a newline between them
-- What to do:
--   keep    the claim of another ID keeps the key for the time that is left
--   now     the claim no longer holds the key
--   forget  the done marker is removed
-- Answers 1, or 0 if there was nothing to do.
local how, what = shared(1), shared(2)
local by, label = string.match(shared(3), '^(%S*)\n(.*)$')

-- release removes fields, and what they leave the key for.
local function release(...)
  redis.call('HDEL', lock, ...)
  local _, rest = survey('')
  if rest.last == 0 or rest.foreign == 'mode' then
    redis.call('DEL', lock)
  else
    last_until(rest.last)
  end
  publish_to(how, KEYS[2], FREE)
  return 1
end

local function find(id)
  local value = redis.call('HGET', lock, 'onerun:' .. id)
  local hold = value and parse('onerun:' .. id, value)
  return hold and hold.ends > now and hold or nil
end

-- keep has the hold of another ID take the place of one, whose time goes on.
local function keep(hold)
  local old = 'onerun:' .. hold.id
  hold.letter = hold.letter == 'S' and 'M' or 'K'
  hold.id, hold.owner, hold.text = by, by, label
  timeout = KEYS[5]
  put(hold)
  redis.call('HDEL', lock, old, old .. ':read')
  if READ_WRITE then
    redis.call('DEL', KEYS[4])
  end
  return 1
end

local function break_claim(id)
  local hold = find(id)
  if not hold then
    local before = what == 'keep' and find(by)
    return before and 1 or 0 -- broken before: the answer to that was lost
  end
  if hold.letter == 'D' then
    return 0
  end
  if what == 'now' then
    if READ_WRITE then
      redis.call('DEL', KEYS[4])
    end
    return release('onerun:' .. id, 'onerun:' .. id .. ':read')
  end
  if hold.letter == 'K' or hold.letter == 'M' then
    return 0
  end
  return keep(hold)
end

local function forget()
  local done = {}
  local fields = redis.call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local hold = parse(fields[i], fields[i + 1])
    if hold and hold.letter == 'D' and hold.ends > now then
      done[#done + 1] = fields[i]
    end
  end
  return #done > 0 and release(unpack(done)) or 0
end

local function serve()
  local id = ARGV[1]
  if redis.call('TYPE', lock).ok ~= 'hash' then
    return 0
  elseif what == 'forget' then
    return forget()
  elseif string.find(id, ':', 1, true) then -- a hold of Redisson's
    local field = what == 'now' and redis.call('HEXISTS', lock, id) == 1
    return field and release(id) or 0
  end
  return break_claim(id)
end
