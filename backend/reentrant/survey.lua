-- survey returns the claim's own hold or nil, and a summary of all others. A reader of
-- WithReadWrite is foreign, too.
local function survey(id)
  local own
  local all = empty_summary()
  local fields = redis.call('HGETALL', lock)
  all.any = #fields > 0
  for i = 1, #fields, 2 do
    local hold = parse(fields[i], fields[i + 1])
    if hold and not hold.seat and (hold.letter == 'S' or hold.letter == 'M') then
      hold = nil
    end
    if hold and hold.id == id then
      own = hold
    elseif hold then
      add(all, hold)
    elseif fields[i] ~= 'mode' then
      all.foreign = all.foreign or fields[i]
    end
  end
  if #fields == 2 and fields[1] == 'mode' then
    all.foreign = 'mode' -- alone, it is not Redisson's: an application has a hash of this name
  end
  if all.foreign then
    all.last = math.max(all.last, now + redis.call('PTTL', lock))
  end
  return own, all
end
