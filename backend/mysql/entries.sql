-- Reads a log. ? first key of the log and the one after it, how many entries. Answers the number that
-- orders an entry, and its record. There is one row without them if the log is empty.
SELECT STATUS, r.last, r.record FROM (SELECT 1) o LEFT JOIN (
	SELECT last, record FROM onerun_leases WHERE k >= ? AND k < ? AND state = 'entry'
	ORDER BY last DESC, record DESC LIMIT ?
) r ON TRUE
ORDER BY r.last DESC, r.record DESC
