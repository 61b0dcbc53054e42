-- Releases keys that the claims hold, if nothing is to be left. KEYS and ARGV are those of
-- release.lua, which answers all other claims. One command reads all leases, and one deletes them.
-- If the user has no right to MGET, release.lua answers all claims.

-- is_held reports whether a lease, as GET or MGET has answered it, is that of the i-th claim.
local function is_held(i, lease)
  local mine = HELD .. ARGV[i] .. '\n'
  return type(lease) == 'string' and string.sub(lease, 1, #mine) == mine
end

if shared(1) ~= '' then -- something is to be left
elseif n == 1 then
  if is_held(1, redis.pcall('GET', KEYS[1])) then
    redis.call('DEL', KEYS[1])
    publish(KEYS[1], FREE)
    return 1
  end
else
  local leases = redis.pcall('MGET', unpack(KEYS))
  local released, listed = {}, {}
  for i = 1, leases.err and 0 or n do
    local key = KEYS[i]
    if is_held(i, leases[i]) and not listed[key] then
      listed[key], released[#released + 1] = true, key
      answers[i], answered = 1, answered + 1
    end
  end
  if #released > 0 then
    redis.call('DEL', unpack(released))
  end
  for i = 1, #released do
    publish(released[i], FREE)
  end
end
