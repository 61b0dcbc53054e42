-- publish notifies the waiters of a channel, also Redisson's. A release that cannot be published is
-- a release all the same: waiters also look for themselves, now and then. It answers nothing. how
-- is '' for PUBLISH, or sharded or both.
local function publish(how, channel, message)
  if how == 'both' then
    redis.pcall('PUBLISH', channel, message)
  end
  local said = how ~= '' and redis.pcall('SPUBLISH', channel, message)
  if how == '' or how == 'sharded' and type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', channel, message) -- Redis before 7
  end
end
