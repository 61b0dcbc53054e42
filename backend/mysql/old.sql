-- Finds rows that nothing needs any more. ? how many at most. A row whose fence is ahead of the clock
-- stays: without it, the next fence of the key could be smaller.
SELECT STATUS, k FROM onerun_leases
WHERE forget_on <= CLOCK DIV 86400000000 AND ends < CLOCK
	AND (state IN ('entry', 'counter') OR state <> 'gate' AND last >> 20 < CLOCK DIV 1000000)
LIMIT ?
