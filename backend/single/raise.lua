-- raise.lua follows renew.lua, with its KEYS, ARGV and answer, if the fence in use is a new one.
local last, refusal = last_fence(KEYS[2])
if not last then
  return refusal
end
remember(KEYS[2], last, ARGV[3] + ARGV[4])
redis.call('SET', KEYS[1], mine .. ARGV[3] .. string.sub(lease, fence_end), 'KEEPTTL')
return 1
