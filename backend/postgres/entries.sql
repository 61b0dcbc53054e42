-- Reads a log. $1 and $2 the range of the keys of the log, $3 how many entries. Answers whether the
-- server is a standby, and the number that orders it and the record of each entry. There is one
-- row without them if the log is empty.
SELECT s.standby, e.last, encode(e.record, 'base64')
FROM (SELECT pg_is_in_recovery() AS standby) s LEFT JOIN (
	SELECT last, record FROM onerun_leases
	WHERE key >= $1::bytea AND key < $2::bytea AND state = 'entry'
	ORDER BY last DESC, record DESC LIMIT $3::int
) e ON true
ORDER BY e.last DESC, e.record DESC
