-- Raises a counter. $1 key, $2 number, $3 for how many days to keep it. Answers the number that it
-- had, or no row if that was not smaller.
INSERT INTO onerun_leases AS r (key, state, last, ends, version, forget_on)
VALUES ($1::bytea, 'counter', $2::bigint, clock_timestamp(), 0,
	(clock_timestamp() AT TIME ZONE 'UTC')::date + $3::int)
ON CONFLICT (key) DO UPDATE
SET version = r.last, last = EXCLUDED.last, ends = EXCLUDED.ends, forget_on = EXCLUDED.forget_on
WHERE r.last < EXCLUDED.last
RETURNING version
