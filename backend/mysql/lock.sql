-- Reads the rows of several keys, but none that another transaction has locked. ? keys.
SELECT STATUS, k, state, id, fence, ends > CLOCK FROM onerun_leases FORCE INDEX (PRIMARY)
WHERE k IN (?) ORDER BY k FOR UPDATE SKIP LOCKED
