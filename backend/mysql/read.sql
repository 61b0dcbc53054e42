-- Reads a key. ? key.
SELECT STATUS, CLOCK, COALESCE(r.version, 0), COALESCE(r.state, ''), COALESCE(r.id, ''), r.label,
	COALESCE(r.fence, 0), COALESCE(r.last, 0), COALESCE(r.ends, 0), r.record, r.sharing, COALESCE(r.granted, 0)
FROM (SELECT 1) o LEFT JOIN onerun_leases r ON r.k = ?
