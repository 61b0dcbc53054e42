-- Asks for keys.
--   KEYS  of each claim: lease, fence counter
--   ARGV  of each claim: ID, what few claims ask for (see read_special); of all: TTL in ms, label
--
-- A claim                                   gets
--   granted                                 fence
--   granted, which held the key already     -fence
--   granted with fences reserved or a hint  {1, fence, clock as a fence or 0, fences reserved}
--   granted the hint that it asks for alone clock as a fence
--   refused, because the key is busy        {0, ms left (-1 if it never ends), label, holder}
--   refused, because another program has it {0, ms left, '', NUL}
--   refused, because the key is done        {2, ms left, lease, bytes before the record, label}
--   of a key that claims share              the error SHARED: shared_acquire.lua has to answer it
--
-- Labels and holders are cut, so that foreign values are not carried around. A record is not cut
-- out of the lease, which would take a third of the time. One of more than 1 MiB
-- (guard.MaxRecord) is not ours and is answered as an empty one.
--
-- A lease is a string. LEAD is '', or 'onerun:' if other programs use the names of the leases.
--   held                    LEAD 'H' ID '\n' fence '\n' label
--   kept by a minimum hold  LEAD 'K' ID '\n' fence '\n' label
--   done                    LEAD 'D' ID ' ' bytes of the label '\n' label record
-- Markers of old versions have neither ' ' nor a label.
local ttl, label = shared(1), shared(2)
local ONE_DAY = 86400000 -- in ms, longer than leases go without being renewed

local function serve(i)
  local key, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local id, special = ARGV[2 * i - 1], ARGV[2 * i]
  read_special(special)
  local lease = redis.pcall('GET', key)
  if type(lease) == 'table' then -- the key is not a string
    if LEAD ~= '' and string.find(lease.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('WRONGTYPE ' .. key .. ' is not a string, so it is not a lock')
    end
    if LEAD == '' and type(redis.pcall('ZCARD', key)) == 'number' then
      return redis.error_reply('SHARED by claims is ' .. key)
    end
    return lease
  end
  if lease then
    local letter = string.sub(lease, #LEAD + 1, #LEAD + 1)
    local id_end = string.sub(lease, 1, #LEAD) == LEAD and string.find(lease, '\n', 1, true)
    if id_end and letter == 'D' then
      local head = string.sub(lease, 1, math.min(id_end, 256))
      local length = tonumber(string.match(head, ' (%d+)\n$') or 0)
      local label_end = math.min(id_end + length, #lease)
      local text = #lease - label_end <= 1048576 and lease or ''
      local of = string.sub(lease, id_end + 1, math.min(label_end, id_end + 512))
      return {2, redis.call('PTTL', key), text, label_end, of}
    end
    local fence_end = id_end and string.find(lease, '\n', id_end + 1, true)
    if not fence_end then
      return {0, redis.call('PTTL', key), '', '\0'} -- a foreign value
    end
    local holder = string.sub(lease, #LEAD + 2, id_end - 1)
    if letter == 'H' and holder == id then
      redis.call('PEXPIRE', key, ttl)
      return granted(-tonumber(string.sub(lease, id_end + 1, fence_end - 1)), 0)
    end
    local left = redis.call('PTTL', key)
    if left == -1 then -- PERSIST has made it last forever; its holder may have died
      left = math.max(ttl, ONE_DAY)
      redis.call('PEXPIRE', key, left)
    end
    local of = string.sub(lease, fence_end + 1, fence_end + 512)
    return {0, left, of, string.sub(holder, 1, 128)}
  end

  local new, reserved = new_fence(counter)
  if not new then
    return reserved -- the error
  end
  local value = HELD .. id .. '\n' .. digits(new) .. '\n' .. label
  if not redis.call('SET', key, value, 'PX', ttl, 'NX') then
    redis.call('GET', key) -- the error says that the key is not a string
  end
  return granted(new, reserved)
end
