-- The fence counter of a slot, for scripts that grant keys or raise fences. Answers nothing. The
-- counter is the last fence that this store has issued or reserved, in decimal digits.

-- AHEAD is 2^17 fences. The clock takes 131 ms to advance by that many.
--
-- A store without a counter may have lost it, and cannot know which fences are in use. So no store
-- reserves a fence that is more than AHEAD / 2 ahead of its clock. A store without a counter
-- grants the fence that is AHEAD ahead. That fence is larger than all earlier ones, including
-- those under which a process still hands off an old lease. The other half of AHEAD allows the
-- clock of a replica that takes over to be behind by that much.
--
-- A store that lost only its newest writes has an old counter, and grants by its clock. Its fences
-- were up to AHEAD ahead, and a hint may be AHEAD / 2 behind. So its failover must take 200 ms or
-- longer. backend/memory reserves fences in the same way.
local AHEAD = 131072

-- is_behind reports whether a counter, as GET or MGET has answered it, is smaller than a fence,
-- given in digits. It returns false unless both have the same number of digits: only then does
-- text sort like numbers. last_fence handles all other counters.
local function is_behind(last, fence)
  return type(last) == 'string' and #last == #fence and last < fence and not string.find(last, '%D')
end
