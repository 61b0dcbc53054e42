-- Grants free keys to claims that ask for nothing special, under one fence: the clock, if their
-- counters are behind it. Claims that ask for a hint alone get the hint. Different keys may have
-- the same fence. KEYS and ARGV are those of acquire.lua, which answers all other claims. One
-- command reads all counters, and one raises those of the keys that were granted. If the user has
-- no right to MGET or MSET, each counter has a command of its own.
local fence = digits(clock)
local after_id = '\n' .. fence .. '\n' .. shared(2)

-- hint_alone returns the hint of a claim that asks for nothing else, if the clock allows it as a
-- fence (see new_fence), or false or nil.
local function hint_alone(special)
  local hint = tonumber(special) -- nil if there are several numbers
  return hint and hint <= clock and clock - hint <= AHEAD / 2 and special
end

-- try grants the key of the i-th claim if its counter, as GET or MGET has answered it, allows that.
-- It returns the fence, or nil.
local function try(i, last)
  local quick, rest = fence, after_id
  if ARGV[2 * i] ~= '' then
    quick = hint_alone(ARGV[2 * i])
    rest = quick and '\n' .. quick .. '\n' .. shared(2)
  end
  if quick and is_behind(last, quick) then
    local set = redis.pcall('SET', KEYS[2 * i - 1], HELD .. ARGV[2 * i - 1] .. rest, 'PX', shared(1), 'NX')
    return set and not set.err and quick or nil
  end
end

if n == 1 then -- without the tables that many claims need
  local quick = try(1, redis.pcall('GET', KEYS[2]))
  if quick then
    redis.call('SET', KEYS[2], quick)
    return clock
  end
else
  local counters = {}
  for i = 1, n do
    counters[i] = KEYS[2 * i]
  end
  local last = redis.pcall('MGET', unpack(counters))
  local refused = {} -- the keys of claims that acquire.lua answers: the next claims wait for that
  local raised, raises = {}, {} -- the new numbers of counters, and what to send for them
  for i = 1, n do
    local key, counter = KEYS[2 * i - 1], counters[i]
    local quick = not refused[key] and try(i, last.err and redis.pcall('GET', counter) or last[i])
    if not quick then
      refused[key] = true
    else
      answers[i], answered = clock, answered + 1
      if (raised[counter] or '') < quick then
        raised[counter] = quick
        raises[#raises + 1], raises[#raises + 2] = counter, quick
      end
    end
  end
  if #raises > 0 and redis.pcall('MSET', unpack(raises)).err then
    for i = 1, #raises, 2 do
      redis.call('SET', raises[i], raises[i + 1])
    end
  end
end
