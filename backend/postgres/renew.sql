-- Renews a claim that holds its key alone. $1 key, $2 ID, $3 TTL in microseconds, $4 the fence in
-- use, $5 fences to reserve above a fence that is new.
--
-- Answers whether the claim holds the key, and the state that the statement found.
WITH put AS (
	UPDATE onerun_leases SET ends = clock_timestamp() + $3::bigint * interval '1 microsecond',
		last = CASE WHEN $4::bigint > fence THEN greatest(last, $4::bigint + $5::bigint) ELSE last END,
		fence = greatest(fence, $4::bigint), version = version + 1,
		forget_on = ((clock_timestamp() + $3::bigint * interval '1 microsecond') AT TIME ZONE 'UTC')::date + 2
	WHERE key = $1::bytea AND state = 'held' AND id = $2::text AND ends > clock_timestamp()
	RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM put),
	coalesce((SELECT state FROM onerun_leases WHERE key = $1::bytea), '')
