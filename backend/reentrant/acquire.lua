-- acquire asks for a key: the lock, the fence counter, the claim's ID, owner, TTL in ms, label,
-- and what else it asks for, see read_special. If it grants, it answers the fence, which is
-- negative if the claim or its owner held the key already. With a hint, or with fences reserved,
-- it answers {1, that, clock as a fence or 0, fences reserved}. Else it answers {0 busy, ms left
-- (-1 if it never ends), label, holder} or {2 done, ms left, record, 0, label}. A record of more
-- than 16 MiB (guard.MaxRecord) is none of ours and is answered as an empty one, and a label is
-- cut, so that what somebody else has written is not carried around.
local function acquire(key, fences, id, owner, ttl, label, special)
  lock, counter = key, fences
  read_special(special)
  local own, others = survey(id)
  local ends = from_now(ttl)

  if own and own.letter == 'H' and own.ends > now then -- a claim that is repeated
    last_until(math.max(others.last, ends))
    own.ends = ends
    write(own)
    return granted(-own.fence, 0)
  end
  if own and own.ends > now then
    others[own.letter] = own
    others.last = math.max(others.last, own.ends)
  end

  if others.D then
    return {2, left(others.D.ends), #others.D.text <= 16777216 and others.D.text or '', 0, string.sub(others.D.label, 1, 512)}
  end
  if others.foreign then
    local field = string.sub(others.foreign, 1, 512)
    return {0, redis.call('PTTL', lock), field, field}
  end
  local holder = others.H or others.K
  if holder and (holder.letter == 'K' or holder.owner ~= owner) then
    return {0, left(others.last), string.sub(holder.text, 1, 512), string.sub(holder.owner, 1, 128)}
  end

  if holder then -- one more hold of the owner's
    local last, refusal = last_fence(counter)
    if not last then
      return refusal
    end
    local fence = math.max(tonumber(given), holder.fence)
    write({id = id, letter = 'H', ends = ends, fence = fence, owner = owner, text = label})
    last_until(math.max(others.last, ends))
    raise(others.held, fence)
    -- It reserves nothing, but a quorum's claim brings fences that are in use.
    remember(counter, last, given == '0' and fence or fence + reserve)
    return granted(-fence, 0)
  end

  local refusal = restarted()
  if refusal then
    return refusal
  end
  local fence, reserved = new_fence(counter)
  if not fence then
    return reserved -- which is an error then
  end
  if others.any then
    redis.call('DEL', lock) -- what has ended
  end
  write({id = id, letter = 'H', ends = ends, fence = fence, owner = owner, text = label})
  redis.call('PEXPIRE', lock, ttl)
  return granted(fence, reserved)
end
