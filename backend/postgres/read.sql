-- Reads a key. $1 key. A standby may be behind, so its answer does not count.
SELECT pg_is_in_recovery(), (extract(epoch FROM t.now) * 1000000)::bigint, coalesce(r.version, 0),
	coalesce(r.state, ''), coalesce(r.id, ''), encode(coalesce(r.label, ''), 'base64'),
	coalesce(r.fence, 0), coalesce(r.last, 0),
	coalesce((extract(epoch FROM r.ends) * 1000000)::bigint, 0), encode(r.record, 'base64'), r.sharing
FROM (SELECT clock_timestamp() AS now) t LEFT JOIN onerun_leases r ON r.key = $1::bytea
