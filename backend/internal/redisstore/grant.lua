-- What the scripts that grant keys have in common, where the quick way does not do. It answers nothing.

-- read_special reads what few claims ask for: 'fences to reserve, fence to take the key under (or 0), hint (or 0), seconds for which the server must have been up (or 0)', with a space between them, or nothing.
local reserve, given, hint, min_uptime
local function read_special(special)
  reserve, given, hint, min_uptime = string.match(special, '^(%d+) (%d+) (%d+) (%d+)$')
  if not reserve then
    reserve, given, hint, min_uptime = '0', '0', '0', '0'
  end
end

-- granted returns the answer for a fence.
local function granted(fence)
  if hint == '0' then
    return fence
  end
  return {1, fence, clock}
end

-- new_fence returns the fence of a new holder, and has the counter remember it and those set aside: the given one if there is one, the hint if it suits, else the clock, or one more than the last fence if that is larger.
local function new_fence(counter)
  local last = tonumber(redis.call('GET', counter) or 0) or 0
  local fence = tonumber(given)
  if fence == 0 then
    local suits = tonumber(hint)
    if suits > last and last > 0 and suits <= clock and clock - suits <= 65536 then
      fence = suits -- a sixteenth of a second behind at most: no server loses its newest writes and is back in less
    elseif clock > last then
      fence = clock
    else
      fence = last + 1
    end
  end
  if fence + reserve > last then
    redis.call('SET', counter, digits(fence + reserve))
  end
  return fence
end

-- restarted returns the error of a server that has not been up for long enough: it may have forgotten who holds what.
local function restarted()
  if min_uptime == '0' then
    return nil
  end
  local up = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  if tonumber(up or 0) <= tonumber(min_uptime) then
    return redis.error_reply('RESTARTED ' .. (up or '0') .. ' s ago; it grants nothing before it has been up for more than ' .. min_uptime .. ' s')
  end
  return nil
end
