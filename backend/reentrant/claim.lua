-- What the scripts that acquire keys have in common. It follows holds.lua and grant.lua. Answers
-- nothing.
local ttl, label = shared(1), shared(2)
local ends = from_now(ttl) -- when the lease of a granted claim ends
local clock_digits = digits(clock)
local before_owner = 'H' .. digits(ends) .. ' ' .. clock_digits .. ' '

-- free_hold is the field of a hold that take_free writes.
local function free_hold(owner)
  return before_owner .. #owner .. ' ' .. owner .. label
end

-- take_free grants a free key to a claim that asks for nothing special: it writes these fields and
-- their values. The fence is the clock. It returns false if the counter is not behind the clock.
local function take_free(counter, ...)
  if not is_behind(redis.pcall('GET', counter), clock_digits)
    or type(redis.pcall('HSET', lock, ...)) ~= 'number' then
    return false
  end
  redis.call('PEXPIRE', lock, ttl)
  redis.call('SET', counter, clock_digits)
  return true
end

-- reentry_fence returns the fence of one more hold of an owner that holds the key under a fence, or
-- nil and an error. It reserves nothing, but the fences that a quorum's claim brings are in use.
local function reentry_fence(counter, fence)
  fence = math.max(tonumber(given), fence)
  local refusal = raise_counter(counter, given == '0' and fence or fence + reserve)
  return not refusal and fence or nil, refusal
end

-- busy is the answer because of a hold, until it ends or something else does.
local function busy(hold, ends)
  return {0, left(ends), string.sub(hold.text, 1, 512), string.sub(hold.owner, 1, 128)}
end

-- done_or_foreign is the answer if the key is done or Redisson holds it, or nil. A record of more
-- than 1 MiB (guard.MaxRecord) is not ours and is answered as an empty one.
local function done_or_foreign(others)
  local done, field = others.D, others.foreign
  if done then
    local record = #done.text <= 1048576 and done.text or ''
    return {2, left(done.ends), record, 0, string.sub(done.label or '', 1, 512)}
  end
  if field then
    field = string.sub(field, 1, 512)
    return {0, redis.call('PTTL', lock), field, '\0' .. field} -- NUL: it is not ours
  end
  return nil
end
