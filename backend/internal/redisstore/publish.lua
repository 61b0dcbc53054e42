-- Publishing, for other scripts. Answers nothing. how is '' for PUBLISH, sharded for SPUBLISH (or
-- PUBLISH before Redis 7), or both. What crowd.go receives on the channel of a key:
--   0         the key is free: one waiter can be granted. If many received that, their number
--             follows, and few of them ask at once. It also follows if they were not quite as many,
--             because they may have been before, and expect it then
--   1         all waiters are to ask: the key is done, or several of them can be granted
-- Redisson has the same 0 and 1, and ignores other numbers. A 1 wakes none of its threads that is
-- about to wait. So what shares locks with it sends a 0 to all, which no number follows.

-- publish_to publishes a message, and returns how many received it, or an error: then waiters learn
-- of a release when they poll.
local function publish_to(how, channel, message, to_all)
  if how == 'both' then
    redis.pcall('PUBLISH', channel, message)
  end
  local received = how ~= '' and redis.pcall('SPUBLISH', channel, message)
  if how == '' or how == 'sharded' and type(received) == 'table' then
    received = redis.pcall('PUBLISH', channel, message)
  end
  if message == '0' and not to_all and type(received) == 'number' and received > CROWD / 2 then
    publish_to(how, channel, string.format('%.0f', received))
  end
  return received
end

-- subscribers returns how many subscribe on this node, or -1 if that is not known.
local function subscribers(how, channel)
  local counts = redis.pcall('PUBSUB', how ~= '' and 'SHARDNUMSUB' or 'NUMSUB', channel)
  return type(counts) == 'table' and counts[2] or -1
end
