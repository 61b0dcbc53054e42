-- Grants free keys to claims that ask for nothing special, under one fence: the clock, if their
-- counters are behind it. Claims that ask for a hint alone get the hint. Different keys may have
-- the same fence. KEYS and ARGV are those of acquire.lua, which answers all other claims. One
-- command reads all counters, and one raises those of the keys that were granted. If the user has
-- no right to MGET or MSET, each counter has a command of its own.

-- fence_for returns the fence of a claim: clock_digits, unless it asks for a hint alone, and the
-- clock allows that as a fence (see new_fence). It returns nil for other claims.
local function fence_for(special, clock_digits)
  if special == '' then
    return clock_digits or digits(clock)
  end
  local hint = tonumber(special) -- nil if there are several numbers
  return hint and hint <= clock and clock - hint <= AHEAD / 2 and special or nil
end

-- grant grants the key of the i-th claim under a fence, and reports whether the key was free.
local function grant(i, fence)
  local lease = HELD .. ARGV[2 * i - 1] .. '\n' .. fence .. '\n' .. shared(2)
  local set = redis.pcall('SET', KEYS[2 * i - 1], lease, 'PX', shared(1), 'NX')
  return set and not set.err
end

if n == 1 then -- without the tables that many claims need
  local fence = fence_for(ARGV[2])
  if fence and is_behind(redis.pcall('GET', KEYS[2]), fence) and grant(1, fence) then
    redis.call('SET', KEYS[2], fence)
    return clock
  end
else
  local clock_digits = digits(clock)
  local counters = {}
  for i = 1, n do
    counters[i] = KEYS[2 * i]
  end
  local last = redis.pcall('MGET', unpack(counters))
  local refused = {} -- the keys of claims that acquire.lua answers: the next claims wait for that
  local raised, raises = {}, {} -- the new numbers of counters, and what to send for them
  for i = 1, n do
    local key, counter = KEYS[2 * i - 1], counters[i]
    local fence = not refused[key] and fence_for(ARGV[2 * i], clock_digits)
    if fence and is_behind(last.err and redis.pcall('GET', counter) or last[i], fence) and grant(i, fence) then
      answers[i], answered = clock, answered + 1
      if (raised[counter] or '') < fence then
        raised[counter] = fence
        raises[#raises + 1], raises[#raises + 2] = counter, fence
      end
    else
      refused[key] = true
    end
  end
  if #raises > 0 and redis.pcall('MSET', unpack(raises)).err then
    for i = 1, #raises, 2 do
      redis.call('SET', raises[i], raises[i + 1])
    end
  end
end
