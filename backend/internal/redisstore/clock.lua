-- The server's clock. It answers nothing.
local time = redis.call('TIME')
local clock = time[1] * 1048576 + time[2] -- as a fence: exact in a Lua number until the year 2242

-- digits is exact where tostring is not.
local function digits(number)
  return string.format('%.0f', number)
end
