-- Deletes rows that nothing needs any more. ?1 today, ?2 the clock, ?3 how many at most. A row whose
-- fence is ahead of the clock stays: without it, the next fence of the key could be smaller.
DELETE FROM onerun_leases WHERE key IN (
	SELECT key FROM onerun_leases
	WHERE forget_on <= ?1 AND ends < ?2
		AND (state IN ('entry', 'counter') OR last >> 20 < ?2 / 1000000)
	LIMIT ?3
)
