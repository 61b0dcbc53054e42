-- How programs read and write: each thing by itself. together.lua puts others in their place, which do it for many keys at once. It answers nothing.
local get = function(key) return redis.call('GET', key) end
local set_counter = function(counter, text) redis.call('SET', counter, text) end
local delete = function(key) redis.call('DEL', key) end
local wrote = function(key, value) end -- is told what was written to a key by other means
local before_all, after_all = function() end, function() end -- what a program does before and after many operations

local function digits(number)
  return string.format('%.0f', number)
end
