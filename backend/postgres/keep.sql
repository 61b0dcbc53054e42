-- Keeps a counter. $1 key, $2 for how many days from now.
UPDATE onerun_leases SET forget_on = (clock_timestamp() AT TIME ZONE 'UTC')::date + $2::int
WHERE key = $1::bytea
