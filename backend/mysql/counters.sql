-- Reads counters. ? keys. Answers the key and the number of each that exists, and for how many days
-- it is kept. There is one row without them if none does.
SELECT STATUS, r.k, COALESCE(r.last, 0), COALESCE(r.forget_on - CLOCK DIV 86400000000, 0)
FROM (SELECT 1) o LEFT JOIN onerun_leases r ON r.k IN (?)
