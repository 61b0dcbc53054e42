-- What the scripts have in common: the holds of the key lock. It answers nothing. A field that
-- begins with 'onerun:' and ends with a claim's ID is that claim's: one letter (H held, K kept by
-- a minimum hold, D done; S and M are the H and K of a claim that shares the key), when it ends
-- (ms since 1970, by this server's clock), the fence, the length of the owner's name, the owner,
-- and the label. For D there is a comma and the length of the label behind the owner's (neither in
-- markers of old), and the record after the label. For S and M, Among and the seat (or 0) are
-- behind the owner's length, with a comma before each; readwrite.lua has neither. Any other field
-- but Redisson's 'mode' is a hold of Redisson's, for as long as the key lasts. So is a 'mode'
-- without any other field.
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
    label = hold.label or ''
    lengths = lengths .. ',' .. #label
  elseif hold.seat then
    lengths = lengths .. ',' .. digits(hold.among) .. ',' .. hold.seat
  end
  redis.call('HSET', lock, 'onerun:' .. hold.id, hold.letter .. digits(hold.ends) .. ' ' .. digits(hold.fence) .. ' ' .. lengths .. ' ' .. hold.owner .. label .. hold.text)
end

-- parse returns the hold in a field, or nil if that is not a hold.
local function parse(field, value)
  local letter, ends, fence, length, second, seat, rest =
    string.match(value, '^([HKDSM])(%d+) (%d+) (%d+),?(%d*),?(%d*) (.*)$')
  if not letter or string.sub(field, 1, 7) ~= 'onerun:' then
    return nil
  end
  local hold = {id = string.sub(field, 8), letter = letter}
  hold.ends, hold.fence = tonumber(ends), tonumber(fence)
  local owner_end = tonumber(length)
  local label_end = owner_end
  if seat ~= '' then
    hold.among, hold.seat = tonumber(second), tonumber(seat)
  elseif second ~= '' then
    label_end = owner_end + tonumber(second)
    hold.label = string.sub(rest, owner_end + 1, label_end)
  end
  hold.owner = string.sub(rest, 1, owner_end)
  hold.text = string.sub(rest, label_end + 1)
  return hold
end

-- nobody returns what a key holds on which add has added nothing. held are all H, shared all S,
-- kept all K and M, and ended the IDs of what has ended. last is when the last hold ends. By a
-- letter, it has the hold with that letter that ends last.
local function nobody()
  return {held = {}, shared = {}, kept = {}, ended = {}, last = 0, any = false}
end

-- add adds a hold to what the key holds, unless it has ended.
local function add(all, hold)
  local letter = hold.letter
  if hold.ends <= now then
    all.ended[#all.ended + 1] = hold.id
    return
  end
  if letter ~= 'D' then
    local list = letter == 'H' and all.held or letter == 'S' and all.shared or all.kept
    list[#list + 1] = hold
  end
  local longest = all[letter]
  if not longest or longest.ends < hold.ends then
    all[letter] = hold
  end
  all.last = math.max(all.last, hold.ends)
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
