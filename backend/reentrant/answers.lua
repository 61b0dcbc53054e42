-- Answers to claims that are refused, for the scripts that acquire keys.

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
