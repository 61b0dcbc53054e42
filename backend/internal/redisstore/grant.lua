-- The last fence of a slot, and the new fence of a grant, for scripts that grant keys or raise
-- fences. The quick path of these scripts does not use it. Answers nothing.

-- last_fence returns the last fence that was issued or reserved, or nil and an error. Without a
-- counter, it returns the largest fence that may have been issued or reserved.
local function last_fence(counter)
  local text = redis.call('GET', counter)
  if not text then
    return clock + AHEAD - 1
  end
  -- tonumber alone accepts 'inf', 'nan' and '0x10'
  local last = not string.find(text, '%D') and tonumber(text)
  if last and last < 9007199254740992 - AHEAD then -- 2^53: larger fences are exact as well
    return last
  end
  local shown = string.gsub(string.sub(text, 1, 40), '[^%w+.-]', '?')
  return nil, redis.error_reply('BADFENCE ' .. counter .. ' holds "' .. shown
    .. '", which is no fence; if the key is deleted, fences go on above all that were granted')
end

-- remember raises the counter to a fence. last is the result of last_fence.
local function remember(counter, last, fence)
  if fence > last then
    redis.call('SET', counter, digits(fence))
  end
end

-- raise_counter raises the counter to a fence that is in use. It returns an error or nil.
local function raise_counter(counter, fence)
  local last, refusal = last_fence(counter)
  if last then
    remember(counter, last, fence)
  end
  return refusal
end

-- read_special reads the rare parameters of a claim: fences to reserve, the fence to grant (or
-- 0), a hint (or 0), and the seconds for which the server must have been up (or 0). Spaces
-- separate them. The text is empty if there are none, and has the hint alone if there is no other.
local reserve, given, hint, min_uptime
local function read_special(special)
  reserve, given, hint, min_uptime = string.match(special, '^(%d+) (%d+) (%d+) (%d+)$')
  if not reserve then
    reserve, given, hint, min_uptime = '0', '0', special == '' and '0' or special, '0'
  end
end

-- granted returns the answer for a fence with that many reserved fences above it, and a seat, if
-- that is neither nil nor 0.
local function granted(fence, reserved, seat)
  if seat == 0 then
    seat = nil
  end
  if hint == '0' and reserved == 0 and not seat then
    return fence -- the cheapest answer
  end
  return {1, fence, hint == '0' and 0 or clock, reserved, seat}
end

-- restarted returns an error if the server has not been up for long enough. It may have forgotten
-- leases when it restarted.
local function restarted()
  if min_uptime == '0' then
    return nil
  end
  local up = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  if tonumber(up or 0) <= tonumber(min_uptime) then
    return redis.error_reply('RESTARTED ' .. (up or '0')
      .. ' s ago; it grants nothing before it has been up for more than ' .. min_uptime .. ' s')
  end
  return nil
end

-- new_fence returns the fence of a new holder and the number of reserved fences above it, or nil
-- and an error. The fence is the given one, if any, or else the hint, if it is suitable. Otherwise
-- it is the clock, or one more than the last fence if that is larger. new_fence raises the counter
-- to the last reserved fence. It refuses to grant on a server that restarted, see restarted.
local function new_fence(counter)
  local refusal, last = restarted(), nil
  if not refusal then
    last, refusal = last_fence(counter)
  end
  if refusal then
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
    -- A sixteenth of what is left up to AHEAD / 2, as all keys of the slot share the counter. If
    -- the counter runs ahead of the clock, reservations become smaller and then stop.
    local most = math.floor((clock + AHEAD / 2 - fence) / 16)
    reserved = math.max(math.min(reserved, most), 0)
  end
  -- The fences that a quorum's claim brings are in use already, so they have no bound.
  remember(counter, last, fence + reserved)
  return fence, reserved
end
