-- The fence counter of a slot, for the scripts that grant keys or raise fences. It answers
-- nothing. The counter is the last fence that this store has issued or reserved, in decimal
-- digits.

-- AHEAD is 2^17 fences. The clock passes as many in 131 ms.
-- A store that finds no counter may have lost it. Then it cannot know which fences are in use. So
-- no store reserves a fence that is more than AHEAD / 2 ahead of its clock, and a store without a
-- counter grants the fence that is AHEAD ahead. That one is larger than all fences before it, also
-- larger than those under which a process still hands off an old lease. The other half of AHEAD is
-- for a replica that takes over: its clock may be that much behind.
-- A store that lost only its newest writes has an old counter, and goes by the clock. Its fences
-- were up to AHEAD ahead, and a hint may be AHEAD / 2 behind. So it must be away for 200 ms.
-- backend/memory reserves in the same way.
local AHEAD = 131072

-- last_fence returns the last fence that was issued or reserved, or nil and an error. If there is
-- no counter, it returns the largest fence that can have been.
local function last_fence(counter)
  local text = redis.call('GET', counter)
  if not text then
    return clock + AHEAD - 1
  end
  -- To tonumber alone, 'inf', 'nan' and '0x10' are numbers.
  local last = not string.find(text, '%D') and tonumber(text)
  if last and last < 9007199254740992 - AHEAD then -- 2^53: fences above the counter are exact, too
    return last
  end
  local shown = string.gsub(string.sub(text, 1, 40), '[^%w+.-]', '?')
  return nil, redis.error_reply('BADFENCE ' .. counter .. ' holds "' .. shown
    .. '", which is no fence; if the key is deleted, fences go on above all that were granted')
end

-- remember has the counter cover a fence. last is what last_fence returned.
local function remember(counter, last, fence)
  if fence > last then
    redis.call('SET', counter, digits(fence))
  end
end
