-- The line of those who wait for a key, for the scripts of claims that see it. It answers nothing.
-- The line is a sorted set of claims' IDs, in the order in which they came, and the places are a
-- hash with a field for each: 'L' if the server had somebody who listens for it when it was last
-- heard of, else '-', when the place is lost (ms since 1970, by this server's clock), a space, and
-- the name of its Locker, which listens on a channel of the line's name and its own. IDs have no
-- spaces. Other fields begin with one: ' called' is who was called last, and has not come: ID,
-- when, and ID and Locker of those who see to it that he comes, with spaces between them. ' late'
-- and a Locker's name says that it did not come when it was called, or that nobody hears it: its
-- claims are passed over until one of them asks.
local line, places, sharded_calls
local line_time = redis.call('TIME')
local line_now = line_time[1] * 1000 + math.floor(line_time[2] / 1000)
local called_id, called_at, watchers

local function ms(number) return string.format('%.0f', number) end

-- say tells the claim of that ID to ask again in some ms, or not to, and answers how many have
-- heard it; one if that cannot be told.
local function say(locker, id, wait)
  local channel, text = line .. ':' .. locker, id .. ' ' .. wait
  local heard = sharded_calls and redis.pcall('SPUBLISH', channel, text)
  if type(heard) ~= 'number' then
    heard = redis.pcall('PUBLISH', channel, text) -- SPUBLISH came with Redis 7
  end
  return type(heard) == 'number' and heard or 1
end

-- listens tells whether somebody listens for the Locker here. Where that is not so, as it listens
-- on another node, that nobody has heard what was said means nothing.
local function listens(locker)
  local channel = line .. ':' .. locker
  local counts = sharded_calls and redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  if type(counts) ~= 'table' or counts.err then
    counts = redis.pcall('PUBSUB', 'NUMSUB', channel)
  end
  return type(counts) == 'table' and (counts[2] or 0) > 0
end

local function read_place(text)
  local letter, ends, locker = string.match(text or '', '^([L-])(%d+) (%S+)$')
  return letter == 'L', tonumber(ends), locker
end

local function read_called()
  local id, at, rest = string.match(redis.call('HGET', places, ' called') or '', '^(%S+) (%d+)(.*)$')
  -- not ahead: the clock may have stepped back
  called_id, called_at, watchers = id, math.min(tonumber(at) or 0, line_now), rest or ''
end

local function come()
  redis.call('HDEL', places, ' called')
  called_id, watchers = nil, ''
end

local function lose_place(id)
  -- first, as it is allowed when memory is full; what follows then is, too
  redis.call('ZREM', line, id)
  if redis.call('EXISTS', line) == 0 then
    redis.call('DEL', places)
  else
    redis.call('HDEL', places, id)
  end
end

-- look_around looks at two places somewhere in the line, as one has come, and drops those of which
-- nothing was heard for too long, so that there is no end of those who have died far behind.
local function look_around(number)
  local rank = number * 7919 % redis.call('ZCARD', line)
  for _, id in ipairs(redis.call('ZRANGE', line, rank, rank + 1)) do
    local _, ends = read_place(redis.call('HGET', places, id))
    if ends and ends <= line_now then
      lose_place(id)
    end
  end
end

-- keep_place takes a place at the end of the line, or keeps the one that is there.
local function keep_place(id, locker, ttl)
  if not redis.call('ZSCORE', line, id) then
    local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
    local number = (tonumber(last[2]) or 0) + 1
    redis.call('ZADD', line, ms(number), id)
    look_around(number)
  end
  redis.call('HSET', places, id, (listens(locker) and 'L' or '-') .. ms(line_now + ttl) .. ' ' .. locker)
  redis.call('HDEL', places, ' late ' .. locker)
  if math.min(redis.call('PTTL', line), redis.call('PTTL', places)) < tonumber(ttl) then
    redis.call('PEXPIRE', line, 2 * ttl)
    redis.call('PEXPIRE', places, 2 * ttl)
  end
end

local lateness = {}
local function is_late(locker)
  if lateness[locker] == nil then
    lateness[locker] = redis.call('HEXISTS', places, ' late ' .. locker) == 1
  end
  return lateness[locker]
end

local function set_late(locker)
  -- most of them have died long ago; who has not is found to be late again
  if redis.call('HLEN', places) - redis.call('ZCARD', line) > 100 then
    for _, field in ipairs(redis.call('HKEYS', places)) do
      if string.sub(field, 1, 6) == ' late ' then
        redis.call('HDEL', places, field)
      end
    end
    lateness = {}
  end
  lateness[locker] = true
  redis.call('HSET', places, ' late ' .. locker, '')
end

-- call has the claim come, which stands at that rank, and two behind it, of other processes if
-- there are any, see to it; it answers false if it cannot come.
local function call(id, locker, was_heard, rank)
  if say(locker, id, 0) == 0 and was_heard then
    return false
  end
  called_id, called_at, watchers = id, line_now, ''
  local ids = redis.call('ZRANGE', line, rank + 1, rank + 32)
  local texts = #ids > 0 and redis.call('HMGET', places, unpack(ids)) or {}
  local chosen, first = {[locker] = true}, nil
  local wait = grace
  local function watch(id, locker)
    say(locker, id, ms(wait))
    watchers = watchers .. ' ' .. id .. ' ' .. locker
    wait = wait + 50
    chosen[locker] = true
  end
  for i = 1, #ids do
    local _, ends, other = read_place(texts[i])
    if ends and ends > line_now and not is_late(other) then
      first = first or {ids[i], other}
      if not chosen[other] then
        watch(ids[i], other)
      end
      if wait > grace + 50 then
        break
      end
    end
  end
  if wait == grace and first then
    watch(first[1], first[2])
  end
  redis.call('HSET', places, ' called', id .. ' ' .. ms(line_now) .. watchers)
  return true
end

-- turn answers whose turn it is to take the key, which is free, and for how many ms it is that
-- yet; nil if nobody waits. Unless it is the asker, he is called.
local function turn(asker)
  read_called()
  local rank = 0 -- of the next to look at
  while true do
    local ids = redis.call('ZRANGE', line, rank, rank + 15)
    if #ids == 0 then
      return nil
    end
    local texts = redis.call('HMGET', places, unpack(ids))
    for i, id in ipairs(ids) do
      local was_heard, ends, locker = read_place(texts[i])
      if not ends or ends <= line_now then
        lose_place(id)
      elseif id == asker then
        return id, 0
      elseif is_late(locker) then
        rank = rank + 1
      elseif id == called_id then
        if called_at + grace > line_now then
          return id, called_at + grace - line_now
        end
        set_late(locker)
        come()
        lose_place(id)
      elseif call(id, locker, was_heard, rank) then
        return id, grace
      else
        set_late(locker)
        rank = rank + 1
      end
    end
  end
end

-- tell_some tells the first n of the line to ask now. If they are not to stay, they leave: what
-- they will be told is that the key is done.
local function tell_some(n, stay)
  local ids = redis.call('ZRANGE', line, 0, n - 1)
  local texts = #ids > 0 and redis.call('HMGET', places, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local _, _, locker = read_place(texts[i])
    if locker then
      say(locker, id, 0)
    end
    if not stay then
      lose_place(id)
    end
  end
end

-- stand's KEYS, behind those of acquire: line, places. ARGV, behind those of acquire: 1 to take a
-- place or 0, Locker, how to publish (plain or sharded), TTL in ms. Answers what acquire answers,
-- but for busy {0, ms left, label, holder, how many stand before, 1 if nobody has the key but who
-- stands before was called}.
local function stand(k, a)
  line, places = KEYS[k + 1], KEYS[k + 2]
  local id, queued, locker, ttl = ARGV[1], ARGV[a + 1] == '1', ARGV[a + 2], ARGV[a + 4]
  sharded_calls = ARGV[a + 3] ~= 'plain'
  local free = is_free(id)
  local waited = redis.call('EXISTS', line) == 1
  if free and waited then
    if queued then
      keep_place(id, locker, ttl)
    end
    local whose, left = turn(id)
    if whose and whose ~= id then
      return {0, left, '', whose, redis.call('ZRANK', line, id) or 0, 1}
    end
  end

  local answer = try()
  local state = 1
  if type(answer) == 'table' then
    state = answer[1] -- nil if it is an error
  end
  if state == 0 then
    if queued then
      keep_place(id, locker, ttl)
      read_called()
      if called_id == id then
        come() -- and somebody else was first
      end
    end
    answer[5], answer[6] = redis.call('ZRANK', line, id) or 0, 0
  elseif state and waited then
    lose_place(id)
    if state == 2 then
      tell_some(100, false)
    elseif free then
      read_called()
      for watcher, of in string.gmatch(watchers, '(%S+) (%S+)') do
        say(of, watcher, -1)
      end
      come()
    end
  end
  return answer
end

-- leave's KEYS, behind those of release: line, places. ARGV, behind those of release: how to
-- publish, what to leave. Answers what release answers.
local function leave(k, a)
  line, places = KEYS[k + 1], KEYS[k + 2]
  sharded_calls = ARGV[a + 1] ~= 'plain'
  local answer = give()
  if redis.call('EXISTS', line) == 0 then
    return answer
  end
  local id, left = ARGV[1], string.sub(ARGV[a + 2], 1, 1)
  lose_place(id)
  if is_free(id) then
    turn(nil)
  elseif answer == 1 and left == 'D' then
    tell_some(100, false)
  elseif answer == 1 and left == 'K' then
    tell_some(3, true) -- who wait like to know how long it takes now
  end
  return answer
end
