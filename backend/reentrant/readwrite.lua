-- What the scripts of WithReadWrite have in common, after holds.lua: a key is the hash of
-- Redisson's RReadWriteLock. It answers nothing. The field 'mode' is 'write' if the key is held
-- alone, and 'read' if it is shared: Redisson looks at nothing else before it takes a lock.
--
-- A claim that shares the key has two fields and a timeout key, as a reader of Redisson's has:
--   onerun:ID        S (held) or M (kept by a minimum hold), and the rest as in holds.lua
--   onerun:ID:read   1, how often the reader holds the lock
--   {KEY}:onerun:ID:read:rwlock_timeout:1   1, with the TTL of the hold
-- When the last reader of Redisson's leaves, it deletes the hash unless a field that is a number
-- has a timeout key, and otherwise gives the hash the TTL of the timeout key that ends last.

-- A field of Redisson's is the UUID of a client and the number of a thread.
local REDISSON = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$'

-- reader_left is for how long a reader that is not ours has the lock (ms, 0 if its holds have
-- ended), if the lock lasts for most.
local function reader_left(field, count, most)
  if not string.find(field, REDISSON) or count > 100 then
    return most
  end
  local name = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local longest = 0
  for i = count, 1, -1 do
    local ms = redis.pcall('PTTL', name .. ':' .. field .. ':rwlock_timeout:' .. i)
    if type(ms) ~= 'number' or ms == -1 then
      return most
    end
    longest = math.max(longest, ms)
  end
  return longest
end

-- add_foreign adds a field that is not ours: a reader, or something that excludes all others.
local function add_foreign(all, field, value)
  local most = redis.call('PTTL', lock)
  local count = all.mode == 'read' and most > 0 and string.match(value, '^%d+$')
  if not count then
    all.foreign = all.foreign or field
    all.last = math.max(all.last, from_now(most))
    return
  end
  local ms = reader_left(field, tonumber(count), most)
  if ms > 0 then
    all.reader = field
    add(all, {letter = 'M', owner = field, text = field, ends = from_now(ms)})
  end
end

-- survey returns the claim's own hold or nil, and a summary of all others. The field reader of the
-- summary is a reader of another program: it is also among those that are kept. What Lockers
-- without the option share is foreign.
local function survey(id)
  local own
  local all = empty_summary()
  local fields = redis.call('HGETALL', lock)
  local rest, known = {}, {}
  all.any = #fields > 0
  for i = 1, #fields, 2 do
    local hold = parse(fields[i], fields[i + 1])
    if hold and not hold.seat then
      known[hold.id] = true
      if hold.id == id then
        own = hold
      else
        add(all, hold)
      end
    elseif fields[i] == 'mode' then
      all.mode = fields[i + 1]
    else
      rest[#rest + 1] = i
    end
  end
  for _, i in ipairs(rest) do
    local of = string.match(fields[i], '^onerun:(.*):read$')
    if not (of and known[of] and fields[i + 1] == '1') then
      add_foreign(all, fields[i], fields[i + 1])
    end
  end
  if #fields == 2 and all.mode then
    all.foreign = 'mode' -- alone, it is not Redisson's: an application has a hash of this name
    all.last = math.max(all.last, from_now(redis.call('PTTL', lock)))
  end
  return own, all
end

local READ_WRITE = true
local timeout -- the claim's timeout key

-- put writes a hold, and what Redisson reads of it.
local function put(hold)
  if hold.letter == 'S' or hold.letter == 'M' then
    redis.call('HSET', lock, 'mode', 'read', 'onerun:' .. hold.id .. ':read', '1')
    redis.call('SET', timeout, '1', 'PX', digits(left(hold.ends)))
  else
    redis.call('HSET', lock, 'mode', 'write')
  end
  write(hold)
end

-- remove removes a shared hold. If it is not the claim's own, its timeout key has ended.
local function remove(id)
  redis.call('HDEL', lock, 'onerun:' .. id, 'onerun:' .. id .. ':read')
  if id == ARGV[1] then
    redis.call('DEL', timeout)
  end
end
