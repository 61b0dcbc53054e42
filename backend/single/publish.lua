-- Notifies waiters, for scripts that release keys. Answers nothing.

-- publish notifies the waiters, which subscribe to a channel of the key's name. If it cannot
-- publish, the key is released all the same: waiters also poll at times.
local function publish(key)
  local said = sharded and redis.pcall('SPUBLISH', key, '')
  if not sharded or type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', key, '') -- SPUBLISH came with Redis 7
  end
end
