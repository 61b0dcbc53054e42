-- Writes a key if it was not written since it was read. $1 key, $2 version that was read, or 0 if
-- there was no row, $3 state, $4 ID, $5 label, $6 fence, $7 last fence, $8 end in microseconds
-- since 1970, $9 record, $10 sharing, $11 whether it grants the key.
--
-- Answers whether it has written, whether the waiters of other processes are to be notified if it has
-- freed the key, and whether it grants the key by a session that would find another table.
WITH locked AS (
	-- A transaction that has checked a fence of this key keeps new holders away by this lock.
	SELECT 1 FROM onerun_leases
	WHERE key = $1::bytea AND version = $2::bigint AND $11::boolean FOR UPDATE
), put AS (
	UPDATE onerun_leases SET state = $3::text, id = $4::text, label = $5::bytea,
		fence = $6::bigint, last = $7::bigint, record = $9::bytea, sharing = $10::jsonb,
		ends = timestamptz 'epoch' + $8::bigint * interval '1 microsecond', version = version + 1,
		forget_on = ((timestamptz 'epoch' + $8::bigint * interval '1 microsecond') AT TIME ZONE 'UTC')::date + 2
	WHERE key = $1::bytea AND version = $2::bigint
		AND (NOT $11::boolean OR NOT ELSEWHERE AND EXISTS (SELECT 1 FROM locked))
	RETURNING coalesce(notify_until > clock_timestamp(), false) AS notify
), made AS (
	INSERT INTO onerun_leases (key, state, id, label, fence, last, ends, record, sharing, version, forget_on)
	SELECT $1::bytea, $3::text, $4::text, $5::bytea, $6::bigint, $7::bigint,
		timestamptz 'epoch' + $8::bigint * interval '1 microsecond', $9::bytea, $10::jsonb,
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		((timestamptz 'epoch' + $8::bigint * interval '1 microsecond') AT TIME ZONE 'UTC')::date + 2
	WHERE $2::bigint = 0 AND NOT ($11::boolean AND ELSEWHERE)
	ON CONFLICT (key) DO NOTHING
	RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM put) OR EXISTS (SELECT 1 FROM made),
	coalesce((SELECT notify FROM put), false), $11::boolean AND ELSEWHERE
