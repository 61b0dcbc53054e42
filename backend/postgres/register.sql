-- Notes that the holder of a key uses a fence that it has reserved. $1 key, $2 fence.
UPDATE onerun_leases SET fence = $2::bigint, version = version + 1
WHERE key = $1::bytea AND state = 'held' AND ends > clock_timestamp()
	AND fence < $2::bigint AND $2::bigint <= last
