-- Releases keys.
--   KEYS  of each claim: lock, channel
--   ARGV  of each claim: ID; of all: what to leave, the label of a done marker, how to publish, the
--         record of the marker
-- Each claim gets 1, or 0 if it does not hold the lock. What to leave is '' for nothing, or a
-- letter and for how many ms: 'K1000' for a minimum hold, 'D1000' for a done marker.
local leave, label, how, record = shared(1), shared(2), shared(3), shared(4)

-- release_only releases the key if it has this hold and no other, as nearly always. The hold has
-- not ended, or the key would have.
local function release_only(i)
  local held = redis.call('HGETALL', lock)
  local last = #held
  if (last == 2 or last == 4 and held[1] == 'mode') and held[last - 1] == 'onerun:' .. ARGV[i]
    and string.sub(held[last], 1, 1) == 'H' then
    redis.call('DEL', lock)
    publish_to(how, KEYS[2 * i], FREE)
    return true
  end
  return false
end

local function serve(i)
  lock = KEYS[2 * i - 1]
  if leave == '' and release_only(i) then
    return 1
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
    publish_to(how, KEYS[2 * i], FREE, own.letter == 'D')
  end
  return 1
end
