-- What an RLock of Redisson's with several holders is, for the scripts of claims that share keys.
-- It answers nothing. readwrite.lua is its counterpart for an RReadWriteLock.
local READ_WRITE = false

local put = write

local function remove(id)
  redis.call('HDEL', lock, 'onerun:' .. id)
end
