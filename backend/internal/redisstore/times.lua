-- Times in ms since 1970 by this server's clock, for other scripts. It follows clock.lua. Answers
-- nothing.
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- from_now is the time after some ms: never early, although times are whole ms.
local function from_now(ms)
  return time[1] * 1000 + math.ceil(time[2] / 1000) + ms
end

-- left is for how many ms something lasts that has not expired: at least one.
local function left(expires)
  return math.max(expires - from_now(0), 1)
end
