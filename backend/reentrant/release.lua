-- release's KEYS, behind k: lock, channel. ARGV, behind a: ID, what to leave ('' nothing, K the minimum hold, D a done marker) and for how long in ms, 'K1000', label of the marker, how to publish (plain, sharded or both), record. Answers 1, or 0 if the lock is not this claim's.
local function release(k, a)
  lock, counter = KEYS[k + 1], nil
  local channel, leave, publish = KEYS[k + 2], ARGV[a + 2], ARGV[a + 4]
  local own, others = survey(ARGV[a + 1])
  if not own then
    return 0
  end
  if own.letter ~= 'H' then
    return 1 -- released before: the answer to that was lost
  end
  if own.ends <= now then
    return 0
  end

  if leave ~= '' then
    own.letter = string.sub(leave, 1, 1)
    own.ends = from_now(string.sub(leave, 2))
    last_until(math.max(others.last, own.ends))
    if own.letter == 'D' then
      own.text = ARGV[a + 5]
      own.label = ARGV[a + 3]
    end
    write(own)
  elseif others.last > 0 then
    redis.call('HDEL', lock, 'onerun:' .. own.id)
    last_until(others.last)
  else
    redis.call('DEL', lock)
  end

  -- A release that could not be published is a release all the same: those who wait look for themselves, now and then.
  if not others.H then
    if publish == 'both' then
      redis.pcall('PUBLISH', channel, '0')
    end
    local said = publish ~= 'plain' and redis.pcall('SPUBLISH', channel, '0')
    if publish == 'plain' or publish == 'sharded' and type(said) == 'table' and said.err then
      redis.pcall('PUBLISH', channel, '0') -- Redis before 7
    end
  end
  return 1
end
