-- Renews leases that the claims hold under the fence in use. KEYS and ARGV are those of renew.lua,
-- which answers all other claims. One command reads all leases. If the user has no right to MGET,
-- renew.lua answers all claims.
local leases = {}
for i = 1, n do
  leases[i] = KEYS[2 * i - 1]
end
leases = redis.pcall('MGET', unpack(leases))
for i = 1, leases.err and 0 or n do
  local mine = HELD .. ARGV[2 * i - 1] .. '\n' .. ARGV[2 * i] .. '\n'
  if leases[i] and string.sub(leases[i], 1, #mine) == mine then
    redis.call('PEXPIRE', KEYS[2 * i - 1], shared(1))
    answers[i], answered = 1, answered + 1
  end
end
