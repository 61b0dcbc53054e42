-- Renews rows that lock has found. ? TTL in microseconds, the same, keys, the same with their IDs.
UPDATE onerun_leases FORCE INDEX (PRIMARY)
SET ends = CLOCK + ?, forget_on = (CLOCK + ?) DIV 86400000000 + 2, version = version + 1
WHERE k IN (?) AND (k, id) IN (?) AND state = 'held' AND ends > CLOCK AND WRITABLE
