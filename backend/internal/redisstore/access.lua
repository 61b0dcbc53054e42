-- How programs read and write: each thing by itself. together.lua puts others in their place, which do it for many keys at once. It answers nothing.
local get = function(key) return redis.call('GET', key) end
local set_counter = function(counter, text) redis.call('SET', counter, text) end
local delete = function(key) redis.call('DEL', key) end
local wrote = function(key, value) end -- is told what was written to a key by other means
local before_all, after_all = function() end, function() end -- what a program does before and after many operations

-- digits is exact where tostring is not. Many claims that come together get the same fence: the clock.
local digits_of, digits_text
local function digits(number)
  if number ~= digits_of then
    digits_of, digits_text = number, string.format('%.0f', number)
  end
  return digits_text
end
