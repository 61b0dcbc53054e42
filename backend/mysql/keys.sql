-- Lists keys. ? prefix, the first key after those with the prefix, or NULL twice, the last key of the
-- page before, how many. Answers each key, and NULL if there are none.
SELECT STATUS, r.k FROM (SELECT 1) o LEFT JOIN (
	SELECT k FROM onerun_leases
	WHERE k >= X'01' AND k >= ? AND (? IS NULL OR k < ?) AND k > ?
		AND state IN ('held', 'kept', 'done', 'shared') AND ends > CLOCK
	ORDER BY k LIMIT ?
) r ON TRUE
ORDER BY r.k
