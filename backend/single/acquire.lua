-- KEYS: lease, fence counter. ARGV: ID, TTL in ms, label, fences to reserve, fence to take the key under (or 0), hint (or 0).
-- Answers the fence if it granted, negative if the claim held the key already; with a hint {1, that, clock as a fence}. Else {0 busy, ms left (-1 if it never ends), label, holder} or {2 done, ms left, record}.
-- A lease is one letter (H held, K kept by a minimum hold, D done), the claim's ID, a newline, and for H and K the fence, a newline and the label, for D the record.
local now
local function granted(fence)
  if ARGV[6] == '0' then
    return fence
  end
  now = now or redis.call('TIME')
  return {1, fence, now[1] * 1048576 + now[2]}
end

local lease = redis.call('GET', KEYS[1])
if lease then
  local letter = string.sub(lease, 1, 1)
  local id_end = string.find(lease, '\n', 1, true)
  if id_end and letter == 'D' then
    return {2, redis.call('PTTL', KEYS[1]), string.sub(lease, id_end + 1)}
  end
  local fence_end = id_end and string.find(lease, '\n', id_end + 1, true)
  if not fence_end then
    return {0, redis.call('PTTL', KEYS[1]), '', ''} -- somebody else's value
  end
  local id = string.sub(lease, 2, id_end - 1)
  if letter == 'H' and id == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return granted(-tonumber(string.sub(lease, id_end + 1, fence_end - 1)))
  end
  return {0, redis.call('PTTL', KEYS[1]), string.sub(lease, fence_end + 1), id}
end

-- The clock's seconds, shifted left by 20 bits, and its microseconds; or one more than the last fence if that is
-- larger. It is exact in a Lua number until the year 2242, and '%.0f' prints it whole.
now = redis.call('TIME')
local clock = now[1] * 1048576 + now[2]
local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
local hint = tonumber(ARGV[6])
local fence = tonumber(ARGV[5])
if fence == 0 then
  if hint > last and last > 0 and hint <= clock and clock - hint <= 65536 then
    fence = hint -- a sixteenth of a second behind at most: no server loses its newest writes and is back in less
  elseif clock > last then
    fence = clock
  else
    fence = last + 1
  end
end
local text = string.format('%.0f', fence)
if fence + ARGV[4] > last then
  redis.call('SET', KEYS[2], ARGV[4] == '0' and text or string.format('%.0f', fence + ARGV[4]))
end
redis.call('SET', KEYS[1], 'H' .. ARGV[1] .. '\n' .. text .. '\n' .. ARGV[3], 'PX', ARGV[2])
return granted(fence)
