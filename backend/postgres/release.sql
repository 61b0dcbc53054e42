-- Releases a claim that holds its key alone. $1 key, $2 ID, $3 the state that it leaves, $4 for how
-- long in microseconds, $5 label of the marker, $6 record.
--
-- Answers whether it has released the claim, whether waiters of other processes are to be notified,
-- and the state that it found: its name, whether it is that of the claim, and whether it has not
-- ended. A release that leaves nothing need not wait for the disk: if a crash loses it, the lease
-- ends by its TTL. It does not notify by itself: NOTIFY can fail, and it waits for a lock of the
-- whole instance.
WITH put AS (
	UPDATE onerun_leases SET state = $3::text, record = $6::bytea, version = version + 1,
		label = CASE WHEN $3::text = 'done' THEN $5::bytea ELSE label END,
		ends = clock_timestamp() + $4::bigint * interval '1 microsecond',
		forget_on = ((clock_timestamp() + $4::bigint * interval '1 microsecond') AT TIME ZONE 'UTC')::date + 2
	WHERE key = $1::bytea AND state = 'held' AND id = $2::text AND ends > clock_timestamp()
	RETURNING coalesce(notify_until > clock_timestamp(), false) AS notify
)
SELECT EXISTS (SELECT 1 FROM put), coalesce((SELECT notify FROM put), false),
	CASE WHEN $3::text = 'free' THEN ASYNCHRONOUS END,
	coalesce(r.state, ''), coalesce(r.id = $2::text, false), coalesce(r.ends > clock_timestamp(), false)
FROM (VALUES (1)) v LEFT JOIN onerun_leases r ON r.key = $1::bytea
