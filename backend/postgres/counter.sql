-- Reads a counter. $1 key. Answers whether the server is a standby, the number, and for how many
-- days it is kept.
SELECT pg_is_in_recovery(), coalesce(r.last, 0),
	coalesce(r.forget_on - (clock_timestamp() AT TIME ZONE 'UTC')::date, 0)
FROM (VALUES (1)) v LEFT JOIN onerun_leases r ON r.key = $1::bytea
