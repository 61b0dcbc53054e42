-- Notifies waiters, for scripts that release keys. Answers nothing.

-- publish notifies waiters, who subscribe to a channel of the key's name. A release that cannot be
-- published is a release all the same: waiters also look for themselves, now and then.
local function publish(key)
  local said = sharded and redis.pcall('SPUBLISH', key, '')
  if not sharded or type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', key, '') -- SPUBLISH came with Redis 7
  end
end
