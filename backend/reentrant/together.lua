-- How many claims and releases are served at once. Answers what each of them answers.
-- Claims that ask for nothing special take free keys under one fence, the clock, if the counter
-- is behind it: digits of the same length are in the order of their numbers. Any other counter is
-- left to last_fence.
local counters = acquires > 0 and redis.call('MGET', unpack(KEYS, all + 1, all + acquires))
local free = acquires > 0 and redis.call('EXISTS', unpack(KEYS, 1, acquires)) == 0 -- all of them
local id, ids = column()
local owner, owners = column()
local ttl, ttls = column()
local label, labels = column()
local special, specials = column()
local fence = digits(clock)
local find, taken, raised, last = string.find, {}, {}, 0
local ttl_of, begin, owner_of, length -- of the claim before: mostly the same
for i = 1, acquires do
  local key, counter = KEYS[i], counters[i]
  answers[i] = false
  if counter and (special or specials[i]) == '' and #counter == #fence and counter < fence and not find(counter, '%D')
    and not taken[key] and (free or redis.call('EXISTS', key) == 0) then
    local ttl, owner = ttl or ttls[i], owner or owners[i]
    if ttl ~= ttl_of then
      ttl_of, begin = ttl, 'H' .. digits(from_now(ttl)) .. ' ' .. fence .. ' '
    end
    if #owner ~= owner_of then
      owner_of, length = #owner, #owner .. ' '
    end
    local set = redis.pcall('HSET', key, 'onerun:' .. (id or ids[i]), begin .. length .. owner .. (label or labels[i]))
    if type(set) == 'number' then
      redis.call('PEXPIRE', key, ttl)
      answers[i], taken[key] = clock, true
      raised[last + 1], raised[last + 2] = KEYS[all + i], fence
      last = last + 2
    end
  end
end
if last > 0 then
  redis.call('MSET', unpack(raised))
end
one_by_one(1, acquires, function(i)
  return acquire(KEYS[i], KEYS[all + i], id or ids[i], owner or owners[i], ttl or ttls[i], label or labels[i], special or specials[i])
end)

-- Releases that leave nothing delete keys that have the claim's hold and no other: that has not
-- ended, or the key would have, too.
local id, ids = column()
local publish, publishes = column()
local leave, leaves = column()
local label, labels = column()
local record, records = column()
local gone, places, n = {}, {}, 0
for i = acquires + 1, all do
  local of = i - acquires
  answers[i] = false
  if (leave or leaves[of]) == '' then
    local held = redis.pcall('HGETALL', KEYS[i])
    if #held == 2 and held[1] == 'onerun:' .. (id or ids[of]) and string.sub(held[2], 1, 1) == 'H' then
      n = n + 1
      gone[n], places[n], answers[i] = KEYS[i], i, 1
    end
  end
end
delete_all(gone, places)
for _, i in ipairs(places) do
  if answers[i] == 1 then
    tell(KEYS[all + i], publish or publishes[i - acquires])
  end
end
one_by_one(acquires + 1, all, function(i)
  local of = i - acquires
  return release(KEYS[i], KEYS[all + i], id or ids[of], publish or publishes[of], leave or leaves[of], label or labels[of], record or records[of])
end)
return answers
