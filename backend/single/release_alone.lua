-- KEYS: lease. ARGV: ID, what to leave, label, record; what is empty at the end is not sent.
-- Answers what release does. The quick way for one that leaves nothing, where PUBLISH is how to
-- tell.
if not ARGV[2] then
  local lease = redis.call('GET', KEYS[1])
  local mine = 'H' .. ARGV[1] .. '\n'
  if lease and string.sub(lease, 1, #mine) == mine then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', KEYS[1], '')
    return 1
  end
end
