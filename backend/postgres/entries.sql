-- Reads logs. $1 what the keys of the entries of each begin with, in JSON and base64, $2 how many
-- entries of each. Answers whether the server is a standby, the number of the log, and the number
-- that orders it and the record of each entry. There is one row without them if a log is empty.
SELECT pg_is_in_recovery(), k.i, e.last, encode(e.record, 'base64')
FROM json_array_elements_text($1::json) WITH ORDINALITY AS k(key, i) LEFT JOIN LATERAL (
	SELECT last, record FROM onerun_leases
	WHERE key >= decode(k.key, 'base64') || '\x00'::bytea AND key < decode(k.key, 'base64') || '\x01'::bytea
		AND state = 'entry'
	ORDER BY last DESC, record DESC LIMIT $2::int
) e ON true
ORDER BY k.i, e.last DESC, e.record DESC
