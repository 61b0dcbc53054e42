-- Takes a key from a claim for an operator, or forgets that it is done. It follows shared.lua and
-- publish.lua.
--   KEYS  lease, fence counter, holders, limits, wanted
--   ARGV  ID of the claim; nothing; what to do; another ID and its label, with a newline between
--         them
-- What to do:
--   keep    the claim of the other ID keeps the key for the time that is left
--   now     the claim no longer holds the key
--   forget  the done marker is removed
-- Answers 1, or 0 if there was nothing to do.
local what = shared(2)
local by, text = string.match(shared(3), '^(%S*)\n(.*)$')
local ONE_DAY = 86400000 -- in ms

local function free()
  redis.call('DEL', lease)
  publish(lease, FREE)
  return 1
end

-- break_foreign deletes another program's lock only if it has the value that the operator has seen.
local function break_foreign(value, id)
  local seen = LEAD ~= '' and what == 'now' and is_lock(value) and foreign_id(value) == id
  return seen and free() or 0
end

local function break_alone(id)
  local value = redis.call('GETRANGE', lease, 0, 2047)
  if string.sub(value, 1, #LEAD) ~= LEAD then
    return break_foreign(value, id)
  end
  local head = string.sub(value, #LEAD + 1)
  local letter, holder, rest = string.match(head, '^([HKD])(%S+)[^\n]*\n(.*)$')
  if letter == 'D' then
    return what == 'forget' and free() or 0
  end
  local fence = string.match(rest or '', '^(%d+)\n')
  if not fence then
    return break_foreign(value, id)
  elseif what == 'forget' then
    return 0
  end
  if what == 'now' then
    return holder == id and free() or 0
  end
  if letter == 'K' then
    return holder == by and 1 or 0 -- broken before: the answer to that was lost
  end
  if holder ~= id then
    return 0
  end
  if redis.call('PTTL', lease) == -1 then
    redis.call('PEXPIRE', lease, ONE_DAY)
  end
  redis.call('SET', lease, LEAD .. 'K' .. by .. '\n' .. fence .. '\n' .. text, 'KEEPTTL')
  return 1
end

local function break_shared(id)
  local own = find_holder(id)
  if what == 'now' and own then
    forget({id})
    publish(lease, ALL)
    return 1
  end
  if what ~= 'keep' or not own or own.letter ~= 'H' then
    return what == 'keep' and find_holder(by) and 1 or 0
  end
  local expires = redis.call('ZSCORE', lease, id)
  redis.call('ZADD', lease, expires, by) -- first, so that the key lasts on
  redis.call('ZADD', limits, own.max_holders, by)
  own.letter, own.label = 'K', text
  write_holder(by, own)
  forget({id})
  return 1
end

local function serve()
  local kind = redis.call('TYPE', lease).ok
  if kind == 'string' then
    return break_alone(ARGV[1])
  elseif kind == 'zset' and LEAD == '' then
    return break_shared(ARGV[1])
  end
  return 0
end
