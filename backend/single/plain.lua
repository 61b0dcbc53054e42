-- What the scripts that publish releases or show keys need if leases have names that other programs
-- use. Answers nothing.

-- channel_of returns the channel. It is in the slot of the lease, and begins with onerun, because
-- the application may use a channel of the lease's own name.
local function channel_of(key)
  if string.find(key, '{', 1, true) then
    return 'onerun:released:' .. key -- the hash tag of the lease
  end
  return 'onerun:released:{' .. key .. '}'
end

-- is_lock reports whether the beginning of a value is all of it, and so perhaps a lock of another
-- program.
local function is_lock(head)
  return #head < 2048
end

-- foreign_id is the ID of another program's lock: its value, or a digest of one that is long or
-- cannot be printed.
local function foreign_id(value)
  if #value <= 128 and string.find(value, '^[%w%p]+$') and string.sub(value, 1, 5) ~= 'sha1:' then
    return value
  end
  return 'sha1:' .. redis.sha1hex(value)
end
