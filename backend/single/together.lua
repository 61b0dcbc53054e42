-- Many releases tell at the end, at once, so that those for which nobody waits cost next to nothing. It answers nothing.
local publish = freed
local free_now = {}
before_all = function()
  freed = function(key) free_now[#free_now + 1] = key end
end

after_all = function()
  for _, key in ipairs(listened(free_now)) do
    publish(key)
  end
end
