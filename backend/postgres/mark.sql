-- Asks for notifications of releases. $1 keys in JSON, $2 for how long in microseconds.
INSERT INTO onerun_leases AS r (key, state, ends, version, notify_until, forget_on)
SELECT decode(k.key, 'base64'), 'free', clock_timestamp(),
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	clock_timestamp() + $2::bigint * interval '1 microsecond',
	(clock_timestamp() AT TIME ZONE 'UTC')::date + 2
FROM json_array_elements_text($1::json) AS k(key)
ORDER BY 1
ON CONFLICT (key) DO UPDATE SET notify_until = EXCLUDED.notify_until
WHERE coalesce(r.notify_until < EXCLUDED.notify_until - interval '1 second', true)
