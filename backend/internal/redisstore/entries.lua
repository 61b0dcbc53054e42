-- KEYS: log. ARGV: the most to answer. Answers {record, at, record, at, ...}, the newest first.
return redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
