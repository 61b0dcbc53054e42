-- The queue of the claims that wait for a key, for scripts that respect it. Answers nothing.
--
-- The queue is a sorted set of claims' IDs in the order of their arrival. The waiters are a hash.
-- IDs contain no spaces, and the names of other fields of the hash begin with one:
--   ID             'L' if the waiter had a live subscriber on this server when it last asked, or
--                  '-'; when it leaves the queue unless it asks again (ms since 1970, by this
--                  server's clock), a space, and the name of its Locker
--   ' notified'    the waiter that was notified last and has not asked since: its ID, when it was
--                  notified, and the ID and Locker of each watcher, separated by spaces
--   ' unresponsive' and a Locker's name
--                  this Locker did not ask when it was notified, or has no live subscriber
--
-- A Locker subscribes to a channel with the name of the queue, a colon and its own name. Watchers
-- are waiters that ask again later, in case the notified waiter does not. The queue skips the
-- waiters of an unresponsive Locker until one of them asks. They keep their positions, unless
-- there are many that had no live subscriber.
local queue, waiters
local how_to_publish -- see publish.lua
local queue_now = time[1] * 1000 + math.floor(time[2] / 1000)
local notified_id, notified_at, watchers

local function ms(number) return string.format('%.0f', number) end

-- send notifies the claim of that ID to ask again after some ms, or not to if that is negative. It
-- returns the number of subscribers that received it, or 1 if the number is not known.
local function send(locker, id, wait)
  local received = publish_to(how_to_publish, queue .. ':' .. locker, id .. ' ' .. wait)
  return type(received) == 'number' and received or 1
end

-- has_subscriber reports whether the Locker subscribes on this node. If it subscribes on another
-- node, the number of receivers of a message proves nothing.
local function has_subscriber(locker)
  local channel = queue .. ':' .. locker
  local count = subscribers(how_to_publish, channel)
  if count < 0 and how_to_publish ~= '' then
    count = subscribers('', channel) -- before Redis 7
  end
  return count > 0
end

-- parse_waiter returns whether a waiter had a live subscriber, when it expires, and its Locker.
local function parse_waiter(text)
  local letter, expires, locker = string.match(text or '', '^([L-])(%d+) (%S+)$')
  return letter == 'L', tonumber(expires), locker
end

local function read_notified()
  local text = redis.call('HGET', waiters, ' notified') or ''
  local id, at, rest = string.match(text, '^(%S+) (%d+)(.*)$')
  -- not in the future: the clock may have stepped back
  notified_id, notified_at, watchers = id, math.min(tonumber(at) or 0, queue_now), rest or ''
end

local function clear_notified()
  redis.call('HDEL', waiters, ' notified')
  notified_id, watchers = nil, ''
end

-- remove removes a waiter from the queue.
local function remove(id)
  -- ZREM comes first: it is allowed when memory is full, and so is all that follows it
  redis.call('ZREM', queue, id)
  if redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', waiters)
  else
    redis.call('HDEL', waiters, id)
  end
end

-- remove_expired checks two waiters at some position, and removes those that have expired. Each
-- new waiter calls it, so that dead waiters far behind the first do not accumulate.
local function remove_expired(number)
  local rank = number * 7919 % redis.call('ZCARD', queue)
  for _, id in ipairs(redis.call('ZRANGE', queue, rank, rank + 1)) do
    local _, expires = parse_waiter(redis.call('HGET', waiters, id))
    if expires and expires <= queue_now then
      remove(id)
    end
  end
end

-- enqueue adds a waiter at the end of the queue. A waiter that is in the queue keeps its position,
-- and expires later.
local function enqueue(id, locker, ttl)
  if not redis.call('ZSCORE', queue, id) then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    local number = (tonumber(last[2]) or 0) + 1
    redis.call('ZADD', queue, ms(number), id)
    remove_expired(number)
  end
  local letter = has_subscriber(locker) and 'L' or '-'
  redis.call('HSET', waiters, id, letter .. ms(queue_now + ttl) .. ' ' .. locker)
  redis.call('HDEL', waiters, ' unresponsive ' .. locker)
  if math.min(redis.call('PTTL', queue), redis.call('PTTL', waiters)) < tonumber(ttl) then
    redis.call('PEXPIRE', queue, 2 * ttl)
    redis.call('PEXPIRE', waiters, 2 * ttl)
  end
end

-- MAX_SKIPPED is how many waiters without a live subscriber are skipped. Those behind them are
-- removed, so that the cost of a call does not grow with what callers that have gone leave behind.
-- A waiter without a subscriber soon asks again if its caller is there.
local MAX_SKIPPED = 100

local unresponsive = {} -- by Locker, as far as it was read
local function is_unresponsive(locker)
  if unresponsive[locker] == nil then
    unresponsive[locker] = redis.call('HEXISTS', waiters, ' unresponsive ' .. locker) == 1
  end
  return unresponsive[locker]
end

local function mark_unresponsive(locker)
  -- Most of these Lockers died long ago. One that did not is found to be unresponsive again.
  if redis.call('HLEN', waiters) - redis.call('ZCARD', queue) > 100 then
    for _, field in ipairs(redis.call('HKEYS', waiters)) do
      if string.sub(field, 1, 14) == ' unresponsive ' then
        redis.call('HDEL', waiters, field)
      end
    end
    unresponsive = {}
  end
  unresponsive[locker] = true
  redis.call('HSET', waiters, ' unresponsive ' .. locker, '')
end

-- notify notifies the waiter at that rank, and chooses two watchers among those behind it, of
-- other Lockers if possible. It returns false if the waiter has lost its subscriber.
local function notify(id, locker, was_live, rank)
  if send(locker, id, 0) == 0 and was_live then
    return false
  end
  notified_id, notified_at, watchers = id, queue_now, ''
  local ids = redis.call('ZRANGE', queue, rank + 1, rank + 32)
  local texts = #ids > 0 and redis.call('HMGET', waiters, unpack(ids)) or {}
  local chosen, first = {[locker] = true}, nil
  local wait = grace
  local function watch(id, locker)
    send(locker, id, ms(wait))
    watchers = watchers .. ' ' .. id .. ' ' .. locker
    wait = wait + 50
    chosen[locker] = true
  end
  for i = 1, #ids do
    local _, expires, other = parse_waiter(texts[i])
    if expires and expires > queue_now and not is_unresponsive(other) then
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
  redis.call('HSET', waiters, ' notified', id .. ' ' .. ms(queue_now) .. watchers)
  return true
end

-- next_waiter returns the ID of the waiter that may take the key, which is free, and for how many
-- ms it still may. It notifies that waiter, unless it is the asker. It returns nil if the queue
-- is empty.
local function next_waiter(asker)
  read_notified()
  local rank = 0 -- of the next waiter to check
  while true do
    local ids = redis.call('ZRANGE', queue, rank, rank + 15)
    if #ids == 0 then
      return nil
    end
    local texts = redis.call('HMGET', waiters, unpack(ids))
    for i, id in ipairs(ids) do
      local was_live, expires, locker = parse_waiter(texts[i])
      if not expires or expires <= queue_now then
        remove(id)
      elseif id == asker then
        return id, 0
      elseif is_unresponsive(locker) then
        if was_live or rank < MAX_SKIPPED then
          rank = rank + 1
        else
          remove(id)
        end
      elseif id == notified_id then
        if notified_at + grace > queue_now then
          return id, notified_at + grace - queue_now
        end
        mark_unresponsive(locker)
        clear_notified()
        remove(id)
      elseif notify(id, locker, was_live, rank) then
        return id, grace
      else
        mark_unresponsive(locker)
        rank = rank + 1
      end
    end
  end
end

-- wake_first notifies the first n waiters to ask now. Unless they stay, it removes them, because
-- they will learn that the key is done.
local function wake_first(n, stay)
  local ids = redis.call('ZRANGE', queue, 0, n - 1)
  local texts = #ids > 0 and redis.call('HMGET', waiters, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local _, _, locker = parse_waiter(texts[i])
    if locker then
      send(locker, id, 0)
    end
    if not stay then
      remove(id)
    end
  end
end

-- enter is acquire for a claim that respects the queue. If admits is true, the next waiter may also
-- be granted after a claim was.
--   KEYS  those of acquire (k), queue, waiters
--   ARGV  those of acquire (a), 1 to join the queue or 0, Locker, how to publish, TTL in ms
--
-- A claim            gets
--   refused as busy  {0, ms left, label, holder, waiters ahead, notified, more of acquire}
--   in other cases   what acquire answers
-- notified is 1 if the key is free, and a waiter ahead was notified.
local function enter(k, a, admits)
  queue, waiters = KEYS[k + 1], KEYS[k + 2]
  local id, queued, locker, ttl = ARGV[1], ARGV[a + 1] == '1', ARGV[a + 2], ARGV[a + 4]
  how_to_publish = ARGV[a + 3]
  local free = is_free(id)
  local had_waiters = redis.call('EXISTS', queue) == 1
  if free and had_waiters then
    if queued then
      enqueue(id, locker, ttl)
    end
    local first, left = next_waiter(id)
    if first and first ~= id then
      return {0, left, '', first, redis.call('ZRANK', queue, id) or 0, 1}
    end
  end

  local answer = serve(1)
  local state = 1
  if type(answer) == 'table' then
    state = answer[1] -- nil if it is an error
  end
  if state == 0 then
    if queued then
      enqueue(id, locker, ttl)
      read_notified()
      if notified_id == id then
        clear_notified() -- it has asked, but another claim was faster
      end
    end
    answer[5], answer[6] = redis.call('ZRANK', queue, id) or 0, 0
  elseif state and had_waiters then
    remove(id)
    if state == 2 then
      wake_first(100, false)
    elseif free then
      read_notified()
      for watcher, of in string.gmatch(watchers, '(%S+) (%S+)') do
        send(of, watcher, -1)
      end
      clear_notified()
      if admits then
        next_waiter(nil)
      end
    end
  end
  return answer
end

-- leave is release for a claim that respects the queue, and answers what that does.
--   KEYS  those of release (k), queue, waiters
--   ARGV  those of release (a), how to publish, what to leave; or Q to release nothing, and only
--         remove the claim from the queue
local function leave(k, a)
  queue, waiters = KEYS[k + 1], KEYS[k + 2]
  how_to_publish = ARGV[a + 1]
  local id, left = ARGV[1], string.sub(ARGV[a + 2], 1, 1)
  local answer = left == 'Q' and 0 or serve(1)
  if redis.call('EXISTS', queue) == 0 then
    return answer
  end
  remove(id)
  if is_free(id) then
    next_waiter(nil)
  elseif answer == 1 and left == 'D' then
    wake_first(100, false)
  elseif answer == 1 and left == 'K' then
    wake_first(3, true) -- they learn how long the key remains busy
  end
  return answer
end
