-- Deletes rows that nothing needs any more. $1 how many at most. A row whose fence is ahead of the
-- clock stays: without it, the next fence of the key could be smaller.
DELETE FROM onerun_leases WHERE key IN (
	SELECT key FROM onerun_leases
	WHERE forget_on <= (clock_timestamp() AT TIME ZONE 'UTC')::date AND ends < clock_timestamp()
		AND (state IN ('entry', 'counter')
			OR last >> 20 < floor(extract(epoch FROM clock_timestamp()))::bigint)
		AND coalesce(notify_until < clock_timestamp(), true)
	LIMIT $1::int FOR UPDATE SKIP LOCKED
)
