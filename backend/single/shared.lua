-- The holders of a key that several claims share, for the scripts of such claims. It follows
-- times.lua. Answers nothing.
-- KEYS, after the lease and the fence counter: holders, limits, wanted.
--
-- A claim with a MaxHolders above 1 holds the key if its ID is in the lease, a sorted set, and has
-- not expired. Nothing is counted but that: the other keys only describe the holders.
--   lease    a sorted set: IDs by the time when they expire (ms since 1970, by this server's clock)
--   limits   a sorted set: the same IDs by MaxHolders
--   holders  a hash: by ID, letter MaxHolders ' ' fence ' ' seat or 0 ' ' label; the letter is H
--            (held) or K (kept by a minimum hold)
--   wanted   see wanted.lua
local lease, holders, limits, wanted = KEYS[1], KEYS[3], KEYS[4], KEYS[5]

-- is_free reports whether waiters may be granted: nobody holds the key alone, and it is not done.
local function is_free()
  return type(redis.pcall('ZCARD', lease)) == 'number'
end

-- forget removes holders. ZREM comes first: it is allowed when memory is full, and so is all that
-- follows it.
local function forget(ids)
  redis.call('ZREM', lease, unpack(ids))
  redis.call('ZREM', limits, unpack(ids))
  redis.call('HDEL', holders, unpack(ids))
end

-- count_holders removes expired holders and returns how many are left, or nil if the key has
-- another type. It removes up to 1000, to bound the time that it takes. If there are more, they
-- count as holders a little longer.
local function count_holders()
  local expired = redis.pcall('ZRANGE', lease, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, 1000)
  if expired.err then
    if not string.find(expired.err, 'WRONGTYPE', 1, true) then
      -- raises the error, such as that the user has no right to ZRANGE
      redis.call('ZRANGE', lease, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, 1000)
    end
    return nil
  end
  if #expired > 0 then
    forget(expired)
  end
  return redis.call('ZCARD', lease)
end

-- count_if_shared is count_holders for a claim that may hold the key alone. Unless others share
-- the key, it needs no right to sorted sets.
local function count_if_shared()
  local value = redis.pcall('GET', lease)
  if type(value) == 'table' then -- not a string
    return count_holders()
  end
  return not value and 0 or nil
end

-- smallest returns the smallest MaxHolders of the holders. If some are not in limits, because a
-- key was evicted or changed by hand, it is 1: any of them could hold the key alone.
local function smallest(count)
  if count == 0 then
    return ANY
  end
  if redis.call('ZCARD', limits) ~= count then
    return 1
  end
  return tonumber(redis.call('ZRANGE', limits, 0, 0, 'WITHSCORES')[2])
end

-- parse_holder returns the parts of a field of holders. The letter is nil if that is not ours.
local function parse_holder(text)
  local letter, max_holders, fence, seat, label =
    string.match(text or '', '^([HK])(%d+) (%d+) (%d+) (.*)$')
  return {letter = letter, max_holders = max_holders, fence = tonumber(fence), seat = tonumber(seat), label = label or ''}
end

-- find_holder returns the holder with that ID, or nil.
local function find_holder(id)
  local expires = tonumber(redis.call('ZSCORE', lease, id))
  if not expires or expires <= now then
    return nil
  end
  return parse_holder(redis.call('HGET', holders, id) or '')
end

local function write_holder(id, h)
  redis.call('HSET', holders, id,
    h.letter .. h.max_holders .. ' ' .. digits(h.fence) .. ' ' .. h.seat .. ' ' .. h.label)
end

-- last_until makes the keys last until a time, and until the last holder expires. It is the first
-- write of a renewal or a release, as PEXPIRE is allowed when memory is full.
local function last_until(expires)
  local last = redis.call('ZRANGE', lease, -1, -1, 'WITHSCORES')
  local ttl = digits(math.max(tonumber(last[2]) or 0, expires) - now)
  redis.call('PEXPIRE', lease, ttl)
  redis.call('PEXPIRE', limits, ttl)
  redis.call('PEXPIRE', holders, ttl)
end
