-- KEYS: lock, channel. ARGV: ID, what to leave ('' nothing, K the minimum hold, D a done marker), for how long in ms, record, how to publish (plain, sharded or both), label. Answers 1, or 0 if the lock is not this claim's.
local own, others = survey(ARGV[1])
if not own then
  return 0
end
if own.letter ~= 'H' then
  return 1 -- released before: the answer to that was lost
end
if own.ends <= now then
  return 0
end

if ARGV[2] ~= '' then
  own.letter = ARGV[2]
  own.ends = from_now(ARGV[3])
  last_until(math.max(others.last, own.ends))
  if ARGV[2] == 'D' then
    own.text = ARGV[4]
    own.label = ARGV[6]
  end
  write(own)
elseif others.last > 0 then
  redis.call('HDEL', KEYS[1], 'onerun:' .. own.id)
  last_until(others.last)
else
  redis.call('DEL', KEYS[1])
end

-- A release that could not be published is a release all the same: those who wait look for themselves, now and then.
if not others.H then
  if ARGV[5] == 'both' then
    redis.pcall('PUBLISH', KEYS[2], '0')
  end
  local said = ARGV[5] ~= 'plain' and redis.pcall('SPUBLISH', KEYS[2], '0')
  if ARGV[5] == 'plain' or ARGV[5] == 'sharded' and type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', KEYS[2], '0') -- Redis before 7
  end
end
return 1
