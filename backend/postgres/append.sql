-- Adds an entry to a log, and drops the oldest ones. $1 key of the entry, $2 and $3 the range of
-- the keys of the log, $4 the number that orders it, $5 record, $6 how many to keep. Answers
-- nothing.
WITH entries AS MATERIALIZED (
	SELECT key, last, record FROM onerun_leases
	WHERE key >= $2::bytea AND key < $3::bytea AND state = 'entry'
), made AS (
	INSERT INTO onerun_leases (key, state, last, ends, record, version, forget_on)
	SELECT $1::bytea, 'entry', $4::bigint, clock_timestamp(), $5::bytea, 1,
		(clock_timestamp() AT TIME ZONE 'UTC')::date + 4000
	WHERE (SELECT count(*) FROM entries WHERE (last, record) > ($4::bigint, $5::bytea)) < $6::int
	ON CONFLICT (key) DO NOTHING
	RETURNING key, last, record
)
DELETE FROM onerun_leases WHERE key IN (
	SELECT key FROM (SELECT * FROM entries UNION SELECT * FROM made) e
	ORDER BY last DESC, record DESC OFFSET $6::int
)
