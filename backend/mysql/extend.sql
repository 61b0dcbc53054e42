-- Renews rows that lock has locked. ? TTL in microseconds, the same, keys.
UPDATE onerun_leases FORCE INDEX (PRIMARY)
SET ends = CLOCK + ?, forget_on = (CLOCK + ?) DIV 86400000000 + 2, version = version + 1 WHERE k IN (?)
