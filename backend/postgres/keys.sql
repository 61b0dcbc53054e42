-- Lists keys. $1 prefix, $2 the first key after those with the prefix, or NULL, $3 the last key of
-- the page before, $4 how many. Answers whether the server is a standby, and each key. There is one
-- row without a key if there are none.
SELECT s.standby, encode(k.key, 'base64')
FROM (SELECT pg_is_in_recovery() AS standby) s LEFT JOIN (
	SELECT key FROM onerun_leases
	WHERE key >= $1::bytea AND ($2::bytea IS NULL OR key < $2::bytea) AND key > $3::bytea
		AND state IN ('held', 'kept', 'done', 'shared') AND ends > clock_timestamp()
	ORDER BY key LIMIT $4::int
) k ON true
ORDER BY k.key
