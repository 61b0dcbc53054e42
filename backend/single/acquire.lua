-- KEYS: lease, fence counter. ARGV: ID, TTL in ms, label, fences to reserve. Answers the fence if it granted, else {state (0 busy, 2 done), ms left (-1 if it never ends), label or record}.
-- A lease is one letter (H held, K kept by a minimum hold, D done), the claim's ID, a newline, and for H and K the fence, a newline and the label, for D the record.
local lease = redis.call('GET', KEYS[1])
if lease then
  local letter = string.sub(lease, 1, 1)
  local id_end = string.find(lease, '\n', 1, true)
  if id_end and letter == 'D' then
    return {2, redis.call('PTTL', KEYS[1]), string.sub(lease, id_end + 1)}
  end
  local fence_end = id_end and string.find(lease, '\n', id_end + 1, true)
  if not fence_end then
    return {0, redis.call('PTTL', KEYS[1]), ''} -- somebody else's value
  end
  if letter == 'H' and string.sub(lease, 2, id_end - 1) == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return tonumber(string.sub(lease, id_end + 1, fence_end - 1))
  end
  return {0, redis.call('PTTL', KEYS[1]), string.sub(lease, fence_end + 1)}
end

-- The clock's seconds, shifted left by 20 bits, and its microseconds; or one more than the last fence if that is
-- larger. It is exact in a Lua number until the year 2242, and '%.0f' prints it whole.
local now = redis.call('TIME')
local fence = now[1] * 1048576 + now[2]
local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
if fence <= last then
  fence = last + 1
end
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], ARGV[4] == '0' and text or string.format('%.0f', fence + ARGV[4]))
redis.call('SET', KEYS[1], 'H' .. ARGV[1] .. '\n' .. text .. '\n' .. ARGV[3], 'PX', ARGV[2])
return fence
