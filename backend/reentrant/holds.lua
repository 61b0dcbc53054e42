-- What the scripts have in common: the holds of the key lock. It answers nothing. A field that
-- begins with 'onerun:' and ends with a claim's ID is that claim's: one letter (H held, K kept by
-- a minimum hold, D done), when it ends (ms since 1970, by this server's clock), the fence, the
-- length of the owner's name, the owner, and the label. For D there is a comma and the length of
-- the label behind the owner's (neither in markers of old), and the record after the label. Any
-- other field but Redisson's 'mode' is a hold of Redisson's, for as long as the key lasts. So is a
-- 'mode' without any other field.
local lock = KEYS[1]

local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- from_now is when that ends which lasts for some ms from now on: never early, though the clock is
-- cut to ms.
local function from_now(ms)
  return time[1] * 1000 + math.ceil(time[2] / 1000) + ms
end

-- left is for how long something lasts that has not ended: a ms at least.
local function left(ends)
  return math.max(ends - from_now(0), 1)
end

local function write(hold)
  local lengths = #hold.owner
  local label = ''
  if hold.letter == 'D' then
    label = hold.label
    lengths = lengths .. ',' .. #label
  end
  redis.call('HSET', lock, 'onerun:' .. hold.id, hold.letter .. digits(hold.ends) .. ' ' .. digits(hold.fence) .. ' ' .. lengths .. ' ' .. hold.owner .. label .. hold.text)
end

-- survey returns the claim's own hold, if there is one, and what the key holds beside it and has
-- not ended: the H, K and D that ends last, the first field of Redisson's, all H as a list, and
-- when the last of all ends.
local function survey(id)
  local own
  local all = {held = {}, last = 0, any = false}
  local fields = redis.call('HGETALL', lock)
  all.any = #fields > 0
  for i = 1, #fields, 2 do
    local of = string.sub(fields[i], 1, 7) == 'onerun:' and string.sub(fields[i], 8)
    local letter, ends, fence, length, labels, rest = string.match(fields[i + 1], '^([HKD])(%d+) (%d+) (%d+),?(%d*) (.*)$')
    if of and letter then
      length = tonumber(length)
      local hold = {id = of, letter = letter, ends = tonumber(ends), fence = tonumber(fence), owner = string.sub(rest, 1, length)}
      labels = length + (tonumber(labels) or 0)
      hold.label = string.sub(rest, length + 1, labels)
      hold.text = string.sub(rest, labels + 1)
      if hold.id == id then
        own = hold
      elseif hold.ends > now then
        if letter == 'H' then
          all.held[#all.held + 1] = hold
        end
        if not all[letter] or all[letter].ends < hold.ends then
          all[letter] = hold
        end
        all.last = math.max(all.last, hold.ends)
      end
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

-- last_until makes the key end with whatever ends last. It is the first write of a renewal or a
-- release, as it is allowed when memory is full; what follows then is, too.
local function last_until(ends)
  redis.call('PEXPIRE', lock, digits(left(ends)))
end

-- raise gives all of the holds a fence, unless theirs is higher.
local function raise(holds, fence)
  for _, hold in ipairs(holds) do
    if hold.fence < fence then
      hold.fence = fence
      write(hold)
    end
  end
end
