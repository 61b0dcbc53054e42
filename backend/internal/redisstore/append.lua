-- KEYS: log. ARGV: at, record, entries to keep, ms to keep the log for. Answers 1. A log is a
-- sorted set of records.
redis.call('ZADD', KEYS[1], 'NX', ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
