-- Releases keys. KEYS: the lock and the channel of each claim. ARGV: the ID of each claim; how to
-- publish ('' plainly, sharded or both), what to leave ('' for nothing, K for the minimum hold, D
-- for a done marker) and for how long in ms ('K1000'), the label of the marker, the record. Each
-- claim gets 1, or 0 if it does not hold the lock.
local leave, label, how, record = shared(1), shared(2), shared(3), shared(4)

local function serve(i)
  lock = KEYS[2 * i - 1]
  if leave == '' then
    -- The quick way if the key has this hold and no other. It has not ended, or the key would have.
    local held = redis.call('HGETALL', lock)
    if #held == 2 and held[1] == 'onerun:' .. ARGV[i] and string.sub(held[2], 1, 1) == 'H' then
      redis.call('DEL', lock)
      publish(how, KEYS[2 * i], FREE)
      return 1
    end
  end
  local own, others = survey(ARGV[i])
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
    publish(how, KEYS[2 * i], FREE)
  end
  return 1
end
