-- How a release tells those who wait for the key, which listen on a channel of the key's name. It
-- answers nothing. A release that could not be published is a release all the same: those who wait
-- look for themselves, now and then.
local freed = function(key)
  local said = sharded and redis.pcall('SPUBLISH', key, '')
  if not sharded or type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', key, '') -- SPUBLISH came with Redis 7
  end
end

-- listened returns those of the keys for which somebody waits, or all if that cannot be told: on a
-- Cluster, others may listen on another node.
local function listened(keys)
  local counts = not sharded and #keys > 1 and redis.pcall('PUBSUB', 'NUMSUB', unpack(keys))
  if type(counts) ~= 'table' or counts.err then
    return keys
  end
  local some = {}
  for i = 2, #counts, 2 do
    if counts[i] > 0 then
      some[#some + 1] = counts[i - 1]
    end
  end
  return some
end
