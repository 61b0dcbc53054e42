-- acquire asks for a key: the lease, the fence counter, the claim's ID, TTL in ms, label, what
-- else it asks for, see read_special, and the lease's value if it is known. If it grants, it
-- answers the fence, which is negative if the claim held the key already. With a hint, or with
-- fences reserved, it answers {1, that, clock as a fence or 0, fences reserved}. Else it answers
-- {0 busy, ms left (-1 if it never ends), label, holder} or {2 done, ms left, lease, bytes of it
-- before the record, label}: to cut the record out here would cost a third of the time. A record
-- of more than 16 MiB (guard.MaxRecord) is none of ours and is answered as an empty one, and a
-- label is cut, so that what somebody else has written is not carried around. A lease is one
-- letter (H held, K kept by a minimum hold, D done), the claim's ID, a newline, and for H and K
-- the fence, a newline and the label. For D there is a space and the length of the label before
-- the newline (neither in markers of old), and the label and the record after it.
local function acquire(key, counter, id, ttl, label, special, lease)
  read_special(special)
  lease = lease or redis.call('GET', key)
  if lease then
    local letter = string.sub(lease, 1, 1)
    local id_end = string.find(lease, '\n', 1, true)
    if id_end and letter == 'D' then
      local length = tonumber(string.match(string.sub(lease, 1, math.min(id_end, 256)), ' (%d+)\n$') or 0)
      local label_end = math.min(id_end + length, #lease)
      return {2, redis.call('PTTL', key), #lease - label_end <= 16777216 and lease or '', label_end, string.sub(lease, id_end + 1, math.min(label_end, id_end + 512))}
    end
    local fence_end = id_end and string.find(lease, '\n', id_end + 1, true)
    if not fence_end then
      return {0, redis.call('PTTL', key), '', ''} -- somebody else's value
    end
    local holder = string.sub(lease, 2, id_end - 1)
    if letter == 'H' and holder == id then
      redis.call('PEXPIRE', key, ttl)
      return granted(-tonumber(string.sub(lease, id_end + 1, fence_end - 1)), 0)
    end
    return {0, redis.call('PTTL', key), string.sub(lease, fence_end + 1, fence_end + 512), string.sub(holder, 1, 128)}
  end

  local refusal = restarted()
  if refusal then
    return refusal
  end
  local fence, reserved = new_fence(counter)
  if not fence then
    return reserved -- which is an error then
  end
  if not redis.call('SET', key, 'H' .. id .. '\n' .. digits(fence) .. '\n' .. label, 'PX', ttl, 'NX') then
    redis.call('GET', key) -- which fails, and says that the key is not a string
  end
  return granted(fence, reserved)
end
