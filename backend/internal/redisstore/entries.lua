-- Reads a log. KEYS: log. ARGV: the largest number of records. Answers {record, time, record,
-- time, ...}, newest first.
return redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
