-- What the scripts that grant keys have in common, where the quick way does not do. It answers
-- nothing.

-- read_special reads what few claims ask for: 'fences to reserve, fence to take the key under (or
-- 0), hint (or 0), seconds for which the server must have been up (or 0)', with a space between
-- them, or nothing.
local reserve, given, hint, min_uptime
local function read_special(special)
  reserve, given, hint, min_uptime = string.match(special, '^(%d+) (%d+) (%d+) (%d+)$')
  if not reserve then
    reserve, given, hint, min_uptime = '0', '0', '0', '0'
  end
end

-- granted returns the answer for a fence, and for how many further fences were reserved above it.
local function granted(fence, reserved)
  if hint == '0' and reserved == 0 then
    return fence -- the cheapest answer
  end
  return {1, fence, hint == '0' and 0 or clock, reserved}
end

-- new_fence returns the fence of a new holder, and how many further fences it reserved above
-- that; or nil and an error. The fence is the given one if there is one, the hint if it suits, or
-- else the clock, or one more than the last fence if that is larger. The counter then covers all
-- of them.
local function new_fence(counter)
  local last, refusal = last_fence(counter)
  if not last then
    return nil, refusal
  end
  local fence, reserved = tonumber(given), tonumber(reserve)
  if fence == 0 then
    local suits = tonumber(hint)
    if suits > last and suits <= clock and clock - suits <= AHEAD / 2 then
      fence = suits
    else
      fence = math.max(last + 1, clock)
    end
    -- A sixteenth of what is left up to AHEAD / 2: all keys of the slot share the counter. If it
    -- runs ahead of the clock, reservations become smaller, and end.
    local most = math.floor((clock + AHEAD / 2 - fence) / 16)
    reserved = math.max(math.min(reserved, most), 0)
  end
  -- What a quorum's claim brings with its fence is in use already, so that has no bound.
  remember(counter, last, fence + reserved)
  return fence, reserved
end

-- restarted returns the error of a server that has not been up for long enough: it may have
-- forgotten who holds what.
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
