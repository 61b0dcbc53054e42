-- The holds of the key lock, for the other scripts. It follows times.lua. Answers nothing.
--
-- The field 'onerun:' .. ID is the hold of the claim with that ID:
--   letter ends ' ' fence ' ' owner_len[,x[,seat]] ' ' owner label text
--
-- letter          ends (ms since 1970)      x               seat       label      text
--   H held        when the lease ends       -               -          -          label of the hold
--   K kept        when a minimum hold ends  -               -          -          label of the hold
--   S H, shared   like H                    MaxHolders      seat or 0  -          label of the hold
--   M K, shared   like K                    MaxHolders      seat or 0  -          label of the hold
--   D done        when the marker ends      bytes of label  -          the run's  record
--
-- Under WithReadWrite, S and M have neither x nor seat. Markers of old versions have neither x nor
-- a label. Any other field but Redisson's 'mode' is a hold of Redisson's, for as long as the key
-- lasts. So is a 'mode' without any other field.
local lock = KEYS[1]

local function write(hold)
  local lengths = #hold.owner
  local label = ''
  if hold.letter == 'D' then
    label = hold.label or ''
    lengths = lengths .. ',' .. #label
  elseif hold.seat then
    lengths = lengths .. ',' .. digits(hold.max_holders) .. ',' .. hold.seat
  end
  local head = hold.letter .. digits(hold.ends) .. ' ' .. digits(hold.fence) .. ' ' .. lengths .. ' '
  redis.call('HSET', lock, 'onerun:' .. hold.id, head .. hold.owner .. label .. hold.text)
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
    hold.max_holders, hold.seat = tonumber(second), tonumber(seat)
  elseif second ~= '' then
    label_end = owner_end + tonumber(second)
    hold.label = string.sub(rest, owner_end + 1, label_end)
  end
  hold.owner = string.sub(rest, 1, owner_end)
  hold.text = string.sub(rest, label_end + 1)
  return hold
end

-- empty_summary returns the summary of a key without holds, see add:
--   held, shared, kept  the H; the S; the K and M
--   ended               the IDs of the holds that have ended
--   last                when the last hold ends, or 0
--   any                 whether the key has a field
--   H, K, S, M, D       the hold with that letter that ends last, or nil
--   foreign             a field of another program, or nil
local function empty_summary()
  return {held = {}, shared = {}, kept = {}, ended = {}, last = 0, any = false}
end

-- add adds a hold to a summary.
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
