-- The server's clock, for other scripts. Answers nothing.
local time = redis.call('TIME')
local clock = time[1] * 1048576 + time[2] -- as a fence, exact in a Lua number until the year 2242

-- digits returns a number in decimal digits. tostring would round it.
local function digits(number)
  return string.format('%.0f', number)
end
