-- tell publishes that a key may be free. A release that could not be published is a release all
-- the same: those who wait look for themselves, now and then.
local function tell(channel, publish)
  if publish == 'both' then
    redis.pcall('PUBLISH', channel, '0')
  end
  local said = publish ~= '' and redis.pcall('SPUBLISH', channel, '0')
  if publish == '' or publish == 'sharded' and type(said) == 'table' and said.err then
    redis.pcall('PUBLISH', channel, '0') -- Redis before 7
  end
end

-- release gives a key back: the lock, the channel, the claim's ID, how to publish ('' plainly,
-- sharded or both), what to leave ('' nothing, K the minimum hold, D a done marker) and for how
-- long in ms, 'K1000', label of the marker, record. Answers 1, or 0 if the lock is not this
-- claim's.
local function release(key, channel, id, publish, leave, label, record)
  lock, counter = key, nil
  local own, others = survey(id)
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
      own.text = record
      own.label = label
    end
    write(own)
  elseif others.last > 0 then
    redis.call('HDEL', lock, 'onerun:' .. own.id)
    last_until(others.last)
  else
    redis.call('DEL', lock)
  end

  if not others.H then
    tell(channel, publish)
  end
  return 1
end
