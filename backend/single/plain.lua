-- Names the channel of a key whose lease has a name that other programs use, for the scripts that
-- publish releases or show keys. Answers nothing.

-- channel_of returns the channel. It is in the slot of the lease, and begins with onerun, because
-- the application may use a channel of the lease's own name.
local function channel_of(key)
  if string.find(key, '{', 1, true) then
    return 'onerun:released:' .. key -- the hash tag of the lease
  end
  return 'onerun:released:{' .. key .. '}'
end
