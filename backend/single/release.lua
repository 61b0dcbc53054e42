-- KEYS: lease. ARGV: ID, what to leave ('' nothing, K the minimum hold, D a done marker), for how long in ms, record, label. Answers 1, or 0 if the lease is not this claim's.
local lease = redis.call('GET', KEYS[1])
if not lease then
  return 0
end
local id_end = string.find(lease, '\n', 1, true)
local letter = string.sub(lease, 1, 1)
local id = id_end and string.match(string.sub(lease, 2, id_end - 1), letter == 'D' and '^[^ ]*' or '.*')
if id ~= ARGV[1] then
  return 0
end
if letter ~= 'H' then
  return 1 -- released before: the answer to that was lost
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  return 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[3]) -- first, as it is allowed when memory is full; what follows then is, too
if ARGV[2] == 'K' then
  redis.call('SET', KEYS[1], 'K' .. string.sub(lease, 2), 'KEEPTTL')
else
  redis.call('SET', KEYS[1], 'D' .. ARGV[1] .. ' ' .. #ARGV[5] .. '\n' .. ARGV[5] .. ARGV[4], 'KEEPTTL')
end
return 1
