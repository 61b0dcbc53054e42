-- is_free reports whether no claim holds the lock, or keeps it by a minimum hold or a done marker.
local function is_free(id)
  lock = KEYS[1]
  local own, others = survey(id)
  return not (own and own.ends > now) and others.last == 0 and not others.foreign
end
