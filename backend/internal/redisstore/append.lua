-- Appends a record to a log, which is a sorted set. KEYS: log. ARGV: the record's time, the
-- record, entries to keep, TTL of the log in ms. Answers 1.
redis.call('ZADD', KEYS[1], 'NX', ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
