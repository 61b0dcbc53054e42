-- Lists keys. ?1 prefix, ?2 the first key after those with the prefix, or NULL, ?3 the last key of
-- the page before, ?4 the clock, ?5 how many.
SELECT key FROM onerun_leases
WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) AND key > ?3
	AND state IN ('held', 'kept', 'done', 'shared') AND ends > ?4
ORDER BY key LIMIT ?5
