-- How many claims and releases are served at once. Answers what each of them answers.
-- false where there is nothing, and where there is no string
local values = redis.call('MGET', unpack(KEYS))

-- Claims that ask for nothing special take free keys under one fence, the clock, if the counter
-- is behind it: digits of the same length are in the order of their numbers. Any other counter is
-- left to last_fence.
local id, ids = column()
local ttl, ttls = column()
local label, labels = column()
local special, specials = column()
local fence = digits(clock)
local behind = '\n' .. fence .. '\n'
local whole = label and behind .. label
local call, find, counters, last = redis.pcall, string.find, {}, 0
for i = 1, acquires do
  local counter = values[all + i]
  answers[i] = false
  if counter and not values[i] and (special or specials[i]) == ''
    and #counter == #fence and counter < fence and not find(counter, '%D') then
    local set = call('SET', KEYS[i], 'H' .. (id or ids[i]) .. (whole or behind .. labels[i]), 'PX', ttl or ttls[i], 'NX')
    if set and not set.err then
      answers[i] = clock
      counters[last + 1], counters[last + 2] = KEYS[all + i], fence
      last = last + 2
    end
  end
end
if last > 0 then
  redis.call('MSET', unpack(counters))
end
one_by_one(1, acquires, function(i)
  return acquire(KEYS[i], KEYS[all + i], id or ids[i], ttl or ttls[i], label or labels[i], special or specials[i], values[i])
end)

-- Those who release tell at the end, at once, so that those for which nobody waits cost next to
-- nothing.
local sub, gone, places, n = string.sub, {}, {}, 0
local publish = freed
freed = function(key)
  n = n + 1
  gone[n] = key
end

local id, ids = column()
local leave, leaves = column()
local label, labels = column()
local record, records = column()
for i = 1, releases do
  local lease = values[acquires + i]
  local mine = 'H' .. (id or ids[i]) .. '\n'
  if lease and (leave or leaves[i]) == '' and sub(lease, 1, #mine) == mine then
    n = n + 1
    gone[n], places[n], answers[acquires + i] = KEYS[acquires + i], acquires + i, 1
  else
    answers[acquires + i] = false
  end
end
delete_all(gone, places)
one_by_one(acquires + 1, all, function(i)
  local of = i - acquires
  return release(KEYS[i], id or ids[of], leave or leaves[of], label or labels[of], record or records[of])
end)
for _, key in ipairs(listened(gone)) do
  publish(key)
end
return answers
