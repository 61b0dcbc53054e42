-- Publishing, for other scripts. Answers nothing. how is '' for PUBLISH, sharded for SPUBLISH (or
-- PUBLISH before Redis 7), or both.

-- publish_to publishes a message, and returns how many received it, or an error: then waiters learn
-- of a release when they poll.
local function publish_to(how, channel, message)
  if how == 'both' then
    redis.pcall('PUBLISH', channel, message)
  end
  local received = how ~= '' and redis.pcall('SPUBLISH', channel, message)
  if how == '' or how == 'sharded' and type(received) == 'table' then
    received = redis.pcall('PUBLISH', channel, message)
  end
  return received
end

-- subscribers returns how many subscribe on this node, or -1 if that is not known.
local function subscribers(how, channel)
  local counts = redis.pcall('PUBSUB', how ~= '' and 'SHARDNUMSUB' or 'NUMSUB', channel)
  return type(counts) == 'table' and counts[2] or -1
end
