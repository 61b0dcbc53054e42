-- Writes a key if it was not written since it was read. $1 key, $2 version that was read, or 0 if
-- there was no row, $3 state, $4 ID, $5 label, $6 fence, $7 last fence, $8 end in microseconds
-- since 1970, $9 record, $10 sharing, $11 whether it grants the key.
--
-- Answers whether it has written, whether the waiters of other processes are to be notified if it
-- has freed the key, and whether it grants the key by a session that would find another table.
WITH locked AS (
	-- A transaction that has checked a fence of this key keeps new holders away by this lock.
	SELECT 1 FROM onerun_leases
	WHERE key = $1::bytea AND version = $2::bigint AND $11::boolean FOR UPDATE
), put AS (
	INSERT INTO onerun_leases AS r (key, state, id, label, fence, last, ends, record, sharing, version, forget_on)
	SELECT $1::bytea, $3::text, $4::text, $5::bytea, $6::bigint, $7::bigint, t.ends, $9::bytea, $10::jsonb,
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (t.ends AT TIME ZONE 'UTC')::date + 2
	FROM (SELECT timestamptz 'epoch' + $8::bigint * interval '1 microsecond' AS ends) t
	WHERE NOT $11::boolean
		OR NOT ELSEWHERE AND ($2::bigint = 0 OR EXISTS (SELECT 1 FROM locked))
	ON CONFLICT (key) DO UPDATE SET state = EXCLUDED.state, id = EXCLUDED.id, label = EXCLUDED.label,
		fence = EXCLUDED.fence, last = EXCLUDED.last, ends = EXCLUDED.ends, record = EXCLUDED.record,
		sharing = EXCLUDED.sharing, version = r.version + 1, forget_on = EXCLUDED.forget_on
	WHERE r.version = $2::bigint
	RETURNING coalesce(notify_until > clock_timestamp(), false) AS notify
)
SELECT EXISTS (SELECT 1 FROM put), coalesce((SELECT notify FROM put), false), $11::boolean AND ELSEWHERE
