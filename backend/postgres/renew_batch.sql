-- Renews claims that hold their keys alone. $1 claims in JSON, with the TTL in microseconds. A claim
-- may be there several times: the highest fence counts.
--
-- Answers for each claim: its index, whether it was renewed, and whether it must be renewed by
-- itself, because claims share the key, or because another transaction has locked the row. One
-- locked row must not delay the others.
WITH claims AS MATERIALIZED (
	SELECT c.i, decode(c.key, 'base64') AS key, c.id, c.fence, c.reserve, c.ttl
	FROM json_to_recordset($1::json) AS c(i int, key text, id text, fence bigint, reserve bigint, ttl bigint)
), latest AS MATERIALIZED (
	SELECT DISTINCT ON (key, id) * FROM claims ORDER BY key, id, fence DESC, i DESC
), locked AS MATERIALIZED (
	SELECT l.key, l.id FROM latest c JOIN onerun_leases l ON l.key = c.key
	WHERE l.id = c.id AND l.state = 'held' AND l.ends > clock_timestamp()
	FOR NO KEY UPDATE OF l SKIP LOCKED
), put AS (
	UPDATE onerun_leases l SET ends = clock_timestamp() + c.ttl * interval '1 microsecond',
		last = CASE WHEN c.fence > l.fence THEN greatest(l.last, c.fence + c.reserve) ELSE l.last END,
		fence = greatest(l.fence, c.fence), version = l.version + 1,
		forget_on = ((clock_timestamp() + c.ttl * interval '1 microsecond') AT TIME ZONE 'UTC')::date + 2
	FROM locked k JOIN latest c ON c.key = k.key AND c.id = k.id
	WHERE l.key = k.key AND l.id = c.id AND l.state = 'held' AND l.ends > clock_timestamp()
	RETURNING l.key, l.id
)
SELECT false, c.i, p.key IS NOT NULL, p.key IS NULL
	AND coalesce(l.state = 'shared' OR l.state = 'held' AND l.id = c.id AND l.ends > clock_timestamp(), false)
FROM claims c LEFT JOIN put p ON p.key = c.key AND p.id = c.id LEFT JOIN onerun_leases l ON l.key = c.key
