-- is_free tells the queue, after a release, whether the next waiter may be granted: nobody holds
-- the key alone, and it is not done.
local function is_free(id)
  lock = KEYS[1]
  local own, others = survey(id)
  if own then
    add(others, own)
  end
  return not (others.H or others.K or others.D or others.foreign)
end
