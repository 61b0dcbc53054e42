-- Grants a key if nobody else has written it since it was read, and notes the grant in its gate. It
-- fails if another transaction has locked one of them, as a check of a fence does: x locks both, and
-- is DISTINCT so that no optimizer merges it with the rest. The row that is written is compared as
-- well: a server need not lock what x reads. ? gate, key, version that was read; state, ID, label,
-- fence, last fence, end, record, sharing, day; version of the grant, twice; version that was read.
UPDATE (
	SELECT DISTINCT r.k, g.k AS gate FROM onerun_leases r JOIN onerun_leases g ON g.k = ?
	WHERE r.k = ? AND r.version = ? FOR UPDATE NOWAIT
) x JOIN onerun_leases r ON r.k = x.k JOIN onerun_leases g ON g.k = x.gate
SET r.state = ?, r.id = ?, r.label = ?, r.fence = ?, r.last = ?, r.ends = ?, r.record = ?, r.sharing = ?,
	r.forget_on = ?, r.granted = ?, g.granted = ?, r.version = r.version + 1
WHERE r.version = ?
