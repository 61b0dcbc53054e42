-- Reports whether a key has a done marker, without its record.
--   KEYS  lock
-- It answers 1 or 0.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local hold = string.sub(field, 1, 7) == 'onerun:' and redis.call('HGET', KEYS[1], field)
  local ends = hold and string.match(hold, '^D(%d+) ')
  if ends and tonumber(ends) > now then
    return 1
  end
end
return 0
