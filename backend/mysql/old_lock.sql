-- Reads rows that old has found, if that still holds, but none that another transaction has locked. ?
-- keys.
SELECT STATUS, k FROM onerun_leases FORCE INDEX (PRIMARY)
WHERE k IN (?) AND forget_on <= CLOCK DIV 86400000000 AND ends < CLOCK
	AND (state IN ('entry', 'counter') OR state <> 'gate' AND last >> 20 < CLOCK DIV 1000000)
FOR UPDATE SKIP LOCKED
