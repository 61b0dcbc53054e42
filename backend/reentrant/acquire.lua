-- Asks for keys.
--   KEYS  of each claim: lock, fence counter
--   ARGV  of each claim: ID, what few claims ask for (see read_special), owner; of all: TTL in ms,
--         label
--
-- A claim                                   gets
--   granted                                 fence
--   granted, held by it or its owner        -fence
--   granted with fences reserved or a hint  {1, fence, clock as a fence or 0, fences reserved}
--   refused, because the key is busy        {0, ms left (-1 if it never ends), label, holder}
--   refused, because the key is done        {2, ms left, record, 0, label}
--   of a key that claims share              the error SHARED: shared_acquire.lua has to answer it
--
-- Labels and holders are cut, so that foreign values are not carried around.

local function serve(i)
  local id, special, owner = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local counter = KEYS[2 * i]
  lock = KEYS[2 * i - 1]
  if special == '' and redis.call('EXISTS', lock) == 0
    and take_free(counter, 'onerun:' .. id, free_hold(owner)) then
    return clock
  end

  read_special(special)
  local own, others = survey(id)
  if own and own.letter == 'H' and own.ends > now then -- a claim that is repeated
    last_until(math.max(others.last, ends))
    own.ends = ends
    write(own)
    return granted(-own.fence, 0)
  end
  if own then
    add(others, own)
  end

  local refusal = done_or_foreign(others)
  if refusal then
    return refusal
  end
  if others.S or others.M then
    return redis.error_reply('SHARED by claims is ' .. lock)
  end
  local holder = others.H or others.K
  if holder and (holder.letter == 'K' or holder.owner ~= owner) then
    return busy(holder, others.last)
  end

  if holder then -- one more hold of the owner's
    local fence, unsound = reentry_fence(counter, holder.fence)
    if not fence then
      return unsound
    end
    write({id = id, letter = 'H', ends = ends, fence = fence, owner = owner, text = label})
    last_until(math.max(others.last, ends))
    raise(others.held, fence)
    return granted(-fence, 0)
  end

  local new, reserved = new_fence(counter)
  if not new then
    return reserved -- the error
  end
  if others.any then
    redis.call('DEL', lock) -- what has ended
  end
  write({id = id, letter = 'H', ends = ends, fence = new, owner = owner, text = label})
  redis.call('PEXPIRE', lock, ttl)
  return granted(new, reserved)
end
